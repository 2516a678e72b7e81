"""Names the columns of a table, and how its files are laid out.

The columns are those of Spark's Kafka source, and `topicId` beside them: a topic that was deleted and created again
has its old offsets twice, and only its id tells them apart. It is a UUID as text, or the topic's name where the cluster
has no ids.

*Time.* A table that is partitioned by time has `date`, and with hours `hour`, too. Both follow from `timestamp`, in
UTC. They stand in the path of a file and in the table's own metadata, and not in the file, as in Hive and Delta.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["FIELD", "PARTITION_TYPES", "RECORD_COLUMNS", "RECORD_SCHEMA", "Layout", "marked", "partition_path"]

# In the metadata of a column that is decoded from the JSON of the value: the name of its field there.
FIELD = "barnabas.field"

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
RECORD_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topicId", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)
RECORD_COLUMNS = tuple(RECORD_SCHEMA.names)
PARTITION_TYPES = {"date": pa.date32(), "hour": pa.int32()}
PARTITIONINGS: Mapping[str, tuple[str, ...]] = {"": (), "day": ("date",), "hour": ("date", "hour")}


class Layout(NamedTuple):
    """What a file of a table has, and by what it is partitioned: a key of `PARTITIONINGS`.

    `values` are the columns that are decoded from the JSON of `value`, and the fields that they have there. Where
    partitions are hidden, as in Iceberg, they are no columns of the table.
    """

    schema: Any = RECORD_SCHEMA
    partition_by: str = ""
    values: tuple[tuple[str, str], ...] = ()
    is_hidden: bool = False

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return PARTITIONINGS[self.partition_by]

    @property
    def archived_schema(self) -> Any:
        """The columns that an archive writes: those of records and of values, and none of others."""
        names = {*RECORD_SCHEMA.names, *(name for name, _ in self.values)}
        return pa.schema([one for one in self.schema if one.name in names])

    @property
    def table_schema(self) -> Any:
        """The columns of the table: those of its files, and those by which it is partitioned."""
        names = () if self.is_hidden else self.partition_columns
        return pa.schema([*self.schema, *(pa.field(name, PARTITION_TYPES[name]) for name in names)])


def marked(schema: Any, values: Sequence[tuple[str, str]]) -> Any:
    """Return a schema whose columns say of which field of the value they are, in their metadata."""
    fields = dict(values)
    return pa.schema([one.with_metadata({FIELD: fields[one.name]}) if one.name in fields else one for one in schema])


def partition_path(values: Sequence[tuple[str, str]]) -> str:
    """Return the folder of files with these values, as Hive names it, with a slash at its end; "" without any."""
    return "".join(f"{name}={value}/" for name, value in values)
