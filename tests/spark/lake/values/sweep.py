"""Archives JSON values with a schema again and again, with one fault each time, and a schema that has grown after it.

Whatever happened, every record is in the table once, and decoded as a whole or a reject: the rows without fields are
those of which the table of rejects has a copy, each once. Some values fit the first schema and not the second one. So a
driver that died between the two commits shows that what it began is ended with its own schema.

    python tests/spark/lake/values/sweep.py --bootstrap-server localhost:9092 --format delta
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
from confluent_kafka import Producer
from spark.lake.faults import DriverKilledError, FaultyStore, FaultyTable, How, Strike
from spark.lake.produced import Topic, new_topic
from spark.lake.sweep import FILES, MEMORY, Swept, settings_for

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.jobs import archiving
from barnabas_spark.jobs.archiving import ArchiveJob, Tables, open_tables
from barnabas_spark.lake.archive import RunPieces, archive
from barnabas_spark.lake.formats.choosing import FORMATS, open_as_it_is, open_rejects, open_table
from barnabas_spark.lake.store import DirectoryStore, Location
from barnabas_spark.lake.values.texts import from_json_schema
from barnabas_spark.lake.writing import Piece, Unreadable, Written, write_to

__all__ = ["PARTITIONS", "ROWS", "fill_values", "job_of", "judged", "new_values", "run_once", "sweep"]

PARTITIONS, ROWS = 2, 24
FIRST = from_json_schema({"properties": {"id": {"type": "integer"}}})
SECOND = from_json_schema({"properties": {"id": {"type": "integer"}, "more": {"type": "integer"}}})
# In turns: one that fits, one that fits the first schema only, one that never does, and one that deletes a key.
VALUES = (b'{"id": 1, "more": 2}', b'{"id": 1, "more": "x"}', b'{"id": "x"}', None, b'{"id": 2}')


def value_of(number: int) -> bytes | None:
    return VALUES[number // PARTITIONS % len(VALUES)]


def new_values(bootstrap: str) -> Topic:
    """Return a topic with `ROWS` values."""
    topic = new_topic(bootstrap, PARTITIONS)
    fill_values(topic)
    return topic


def fill_values(topic: Topic) -> None:
    """Write `ROWS` values."""
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for number in range(ROWS):
        producer.produce(topic.name, value=value_of(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def job_of(topic: Topic, root: Path, kind: str) -> ArchiveJob:
    return ArchiveJob(topic.name, Location(str(root / "lake")), kind, topic.bootstrap, files=FILES)


def run_once(job: ArchiveJob, schema: Any, strike: Strike) -> None:
    """Run the archive, in a new driver."""
    settings = settings_for(Topic(job.bootstrap, job.topic), 300)

    def pieces(tables: Tables) -> RunPieces:
        store = FaultyStore(DirectoryStore(job.location.directory), strike)
        rejects = FaultyStore(DirectoryStore(job.rejects.directory), strike)

        def run(wanted: Sequence[Piece]) -> list[Written | Unreadable]:
            return [write_to(store, one, settings.options, tables.files, rejects) for one in wanted]

        return run

    def opened(*words: Any, **named: Any) -> Any:
        table, layout = open_as_it_is(*words, **named)
        return FaultyTable(table, strike), layout

    def opened_rejects(*words: Any, **named: Any) -> Any:
        return FaultyTable(open_rejects(*words, **named), strike)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(archiving, "open_as_it_is", opened))
        stack.enter_context(mock.patch.object(archiving, "open_rejects", opened_rejects))
        tables = open_tables(job, settings, schema, pieces, wait=_not)
        archive(tables.table, settings, pieces(tables), rejects=tables.rejects, wait=_not)


def _not(_: int) -> None:
    """Do not wait."""


def judged(job: ArchiveJob) -> str:
    """Return what is wrong with the two tables, or ""."""
    rows = _rows(job.kind, job.location, '"partition", "offset", "value", id')
    places = [(number % PARTITIONS, number // PARTITIONS, value_of(number)) for number in range(ROWS)]
    if sorted(row[:3] for row in rows) != sorted(places, key=lambda one: one[:2]):
        return f"the rows are {rows}"
    rejects = _rows(job.kind, job.rejects, '"partition", "offset", "value", "reason"')
    if rejects != sorted(set(rejects)) or not all(row[3] for row in rejects):
        return f"the rejects are {rejects}"
    bare = [row[:3] for row in rows if row[3] is None and row[2] is not None]
    if bare != [row[:3] for row in rejects]:
        return f"rows without fields are {bare}, and rejects {rejects}"
    return "" if len(bare) >= ROWS // len(VALUES) - 1 else f"there are {len(bare)} rejects"


def _rows(kind: str, location: Location, columns: str) -> list[tuple[Any, ...]]:
    table = open_table(kind, location, None)
    paths = [str(location.directory / path) for path in table.files(table.load())]
    with duckdb.connect() as connection:
        query = f"select {columns} from read_parquet(?, union_by_name = true) order by 1, 2"  # noqa: S608 - our names
        found = connection.execute(query, [paths]).fetchall()
    return [tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in found]


def sweep(topic: Topic, kind: str, how: How, every: int = 1, first: int = 1) -> Swept:
    """Strike at call `first`, and at each `every`-th behind it, until a run has no such call."""
    wrong, at = [], first
    while True:
        root = Path(tempfile.mkdtemp(prefix="sweep-", dir=MEMORY if MEMORY.is_dir() else None))
        strike = Strike(at, how)
        job = job_of(topic, root, kind)
        try:
            try:
                run_once(job, FIRST, strike)
            except (DriverKilledError, BarnabasError, OSError):
                assert strike.struck, "it failed by itself"
            run_once(job, SECOND, Strike(0, how))
            problem = judged(job)
        except BarnabasError as error:
            problem = str(error)
        finally:
            shutil.rmtree(root)
        if problem:
            wrong.append(f"call {at}, {strike.struck}: {problem}")
        if not strike.struck:
            return Swept(strike.calls, wrong)
        at += every


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--format", choices=FORMATS, action="append")
    given = parser.parse_args()
    topic = new_values(given.bootstrap_server)
    failed = 0
    for kind in given.format or FORMATS:
        for how in How:
            calls, wrong = sweep(topic, kind, how)
            said = "\n  ".join([f"{kind}: {calls} calls, each {how.value}: {len(wrong)} tables wrong", *wrong])
            sys.stdout.write(f"{said}\n")
            failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
