"""A data source that has its rows in memory already: the ceiling of what a source in Python can reach in Spark.

`keep` reads a topic once by the data source that is measured, and keeps its Arrow batches in files, a file a task; the
folder should be in memory. `format("ceiling")` hands them to Spark as they are. What the data source does to cost Spark
little is done here, too: modules are imported only where they are needed, and the garbage collector is kept off them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

__all__ = ["Ceiling", "keep"]

SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"


def keep(options: dict[str, str], folder: Path) -> int:
    """Read a topic and keep its batches, as the data source makes them; return how many rows there are."""
    import pyarrow as pa  # noqa: PLC0415 - see the module's second paragraph

    from barnabas_spark.source import BarnabasDataSource  # noqa: PLC0415

    source = BarnabasDataSource({name.lower(): value for name, value in options.items()})
    schema = source.schema()
    assert not isinstance(schema, str), schema
    reader = source.reader(schema)
    rows = 0
    for number, partition in enumerate(reader.partitions()):
        batches = list(reader.read(partition))
        rows += sum(batch.num_rows for batch in batches)
        with pa.ipc.new_file(str(folder / f"{number:04}.arrow"), batches[0].schema) as file:
            for batch in batches:
                file.write_batch(batch)
    return rows


class Ceiling(DataSource):
    """The rows in the files of the folder `path`."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        from barnabas_spark.garbage import freeze_once  # noqa: PLC0415 - see the module's second paragraph

        freeze_once("planned")
        return _Reader(self.options["path"])


class _File(InputPartition):
    pass


class _Reader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> Sequence[InputPartition]:
        return [_File(str(file)) for file in sorted(Path(self._path).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - see the module's second paragraph

        from barnabas_spark.garbage import freeze_once, keep_pages  # noqa: PLC0415

        freeze_once("before a task")
        keep_pages()
        try:
            with pa.memory_map(partition.value) as memory:
                file = pa.ipc.open_file(memory)
                for number in range(file.num_record_batches):
                    yield file.get_batch(number)
        finally:
            freeze_once("behind a task")
