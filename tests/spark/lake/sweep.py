"""Archives a topic again and again, with one fault each time: at call 1, 2, and so on until a run has no call k.

After the fault the archive is simply run again, as an operator would. Then every row that was produced is in the live
files of the table once, as DuckDB reads them, and the table's ranges are all offsets, each once.

`values/sweep.py` does the same with a schema of the values and a table of rejects.

A format plugs in as a function that opens a table in a directory, over a store that may fail:

    python tests/spark/lake/sweep.py --bootstrap-server localhost:9092 --format parquet
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from spark.lake.faults import DriverKilledError, FaultyStore, FaultyTable, How, Strike
from spark.lake.produced import PARTITIONS, Topic, expected_rows, file_rows, new_topic, produce

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.jobs.archiving import read_options
from barnabas_spark.lake.archive import ArchiveResult, ArchiveSettings, RunPieces, archive
from barnabas_spark.lake.formats.delta import DeltaFormat
from barnabas_spark.lake.formats.iceberg import IcebergFormat
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import RECORD_SCHEMA, Layout
from barnabas_spark.lake.store import DirectoryStore, Store
from barnabas_spark.lake.table import TableFormat
from barnabas_spark.lake.writing import FileSettings, Piece, Unreadable, Written, write_to

__all__ = ["FORMATS", "ROWS", "Swept", "in_process", "settings_for", "sweep", "sweep_at"]

OpenTable = Callable[[Path, Store], TableFormat]

ROWS = 90
# Where a sync costs nothing: two thirds of a run on a disk is waiting for it.
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
# Three or four rounds, and two files a partition and round.
ROUND_BYTES = 900
FILES = FileSettings(row_group_bytes=300, file_bytes=1, folder="data/", partition_by="day")


def _parquet(_root: Path, store: Store) -> TableFormat:
    return ParquetFormat(store, Layout(RECORD_SCHEMA, FILES.partition_by), checkpoint_every=2)


def _delta(root: Path, _store: Store) -> TableFormat:
    layout = Layout(RECORD_SCHEMA, FILES.partition_by)
    return DeltaFormat(str(root), layout.table_schema, layout.partition_columns)


def _iceberg(root: Path, _store: Store) -> TableFormat:
    return IcebergFormat(str(root), "lake.swept", RECORD_SCHEMA, FILES.partition_by)


# The calls that Delta and Iceberg make of their own files are struck in `formats/sweep.py`.
FORMATS: dict[str, OpenTable] = {"parquet": _parquet, "delta": _delta, "iceberg": _iceberg}


class Swept(NamedTuple):
    """What a sweep found: the number of calls that a run makes, and what was wrong after which strike."""

    calls: int
    wrong: list[str]


def settings_for(topic: Topic, round_bytes: int = ROUND_BYTES) -> ArchiveSettings:
    return ArchiveSettings(topic.name, read_options(topic.bootstrap, topic.name), round_bytes)


def in_process(store: Store, settings: ArchiveSettings, files: FileSettings = FILES) -> RunPieces:
    """Return what runs the pieces of a round here, one after the other."""

    def run(pieces: Sequence[Piece]) -> list[Written | Unreadable]:
        return [write_to(store, piece, settings.options, files) for piece in pieces]

    return run


def run_archive(topic: Topic, root: Path, opened: OpenTable, strike: Strike) -> ArchiveResult:
    """Run the archive once, in a new driver."""
    store = FaultyStore(DirectoryStore(root), strike)
    settings = settings_for(topic)
    table = FaultyTable(opened(root, store), strike)
    return archive(table, settings, in_process(store, settings), wait=lambda _: None)


def sweep_at(topic: Topic, opened: OpenTable, at: int, how: How) -> tuple[bool, str]:
    """Archive `ROWS` rows with one strike; return whether it struck, and what was wrong afterwards, or ""."""
    root = Path(tempfile.mkdtemp(prefix="sweep-", dir=MEMORY if MEMORY.is_dir() else None))
    strike = Strike(at, how)
    try:
        try:
            run_archive(topic, root, opened, strike)
        except (DriverKilledError, BarnabasError, OSError):
            assert strike.struck, "it failed by itself"
            run_archive(topic, root, opened, Strike(0, how))
        return bool(strike.struck), judged(topic, root, opened)
    except BarnabasError as error:
        return True, f"{strike.struck} {how.value}: {error}"
    finally:
        shutil.rmtree(root)


def judged(topic: Topic, root: Path, opened: OpenTable, rows: int = ROWS) -> str:
    """Compare a table with the topic; return what is wrong, or ""."""
    table = opened(root, DirectoryStore(root))
    state = table.load()
    found, expected = file_rows(root, table.files(state)), expected_rows(topic, range(rows))
    if found != expected:
        lost, more = set(map(str, expected)) - set(map(str, found)), len(found) - len(expected)
        return f"{len(lost)} rows are lost, {more} more rows than produced"
    spans = {key.partition: [tuple(one[:2]) for one in spans] for key, spans in state.spans.items()}
    if spans != {each: [(0, rows // PARTITIONS)] for each in range(PARTITIONS)}:
        return f"the ranges are {spans}"
    return ""


def sweep(topic: Topic, opened: OpenTable, how: How, every: int = 1, first: int = 1) -> Swept:
    """Strike at call `first`, and at each `every`-th behind it, until a run has no such call."""
    wrong, at = [], first
    while True:
        struck, problem = sweep_at(topic, opened, at, how)
        if problem:
            wrong.append(f"call {at}: {problem}")
        if not struck:
            return Swept(at - every, wrong)
        at += every


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--format", choices=sorted(FORMATS), action="append")
    given = parser.parse_args()
    topic = new_topic(given.bootstrap_server)
    produce(topic, range(ROWS))
    failed = 0
    for name in given.format or sorted(FORMATS):
        for how in How:
            calls, wrong = sweep(topic, FORMATS[name], how)
            said = "\n  ".join([f"{name}: {calls} calls, each {how.value}: {len(wrong)} tables wrong", *wrong])
            sys.stdout.write(f"{said}\n")
            failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
