"""Lets Iceberg's and Delta's own readers read tables of the archive, on Spark in an environment of their own.

This is `scripts/trials/lake/jvm-readers`. A topic is archived into tables of several kinds: partitioned by nothing, day
and hour, with small files replaced by a larger one, after an expiry of snapshots, behind a commit of another writer.
Then the readers write all rows that they see as Parquet files, and DuckDB compares those with the records that were
produced, and so it does with the live files by the tables' bytes alone and with what `read_lake` shows.
"""

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from machines.cache import CACHE, NotInstalledError, fetch, pip_packages
from machines.cluster_handle import cluster
from pyiceberg.catalog import load_catalog
from spark.lake.formats import contents
from spark.lake.produced import Row, Topic, expected_rows, file_rows, new_topic, produce
from spark.lake.sweep import FILES, in_process, settings_for

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.delta import DeltaFormat
from barnabas_spark.lake.formats.iceberg import IcebergFormat
from barnabas_spark.lake.layout import RECORD_SCHEMA, Layout
from barnabas_spark.lake.read import read_lake
from barnabas_spark.lake.store import DirectoryStore
from barnabas_spark.lake.table import DataFile

__all__ = ["CASES", "Case", "Made", "main", "make", "table_of"]

PYSPARK = "4.1.4"
JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",  # for pyiceberg's SQLite catalog, which Iceberg calls a JDBC catalog
    "io.delta:delta-spark_4.1_2.13:4.1.0",
    "io.delta:delta-storage:4.1.0",
)
ROWS = 90
LIMIT_S = 600.0
READER = Path(__file__).with_name("jvm_reader.py")


class Case(NamedTuple):
    """One table to make. `change` is done to it between two runs of the archive."""

    title: str
    kind: str
    partition_by: str = ""
    change: Callable[["Made"], None] | None = None


class Made(NamedTuple):
    """A table in a folder. Its namespace is that which `read_lake` expects."""

    case: Case
    root: Path

    @property
    def name(self) -> str:
        return f"lake.{self.root.name}"

    def open(self) -> DeltaFormat | IcebergFormat:
        layout = Layout(partition_by=self.case.partition_by)
        if self.case.kind == "delta":
            return DeltaFormat(str(self.root), layout.table_schema, layout.partition_columns)
        return IcebergFormat(str(self.root), self.name, RECORD_SCHEMA, self.case.partition_by)

    def iceberg(self) -> Any:
        return load_catalog("barnabas", type="sql", uri=f"sqlite:///{self.root}/catalog.db").load_table(self.name)

    def files(self) -> list[str]:
        """Return the live files by the table's bytes alone."""
        if self.case.kind == "delta":
            return contents.delta_files(self.root)
        return contents.iceberg_files(self.root, self.root.name)

    def described(self, out: Path) -> dict[str, str]:
        """Say to the reader what to read."""
        said = {"title": self.case.title, "kind": self.case.kind, "root": str(self.root), "out": str(out)}
        if self.case.kind == "iceberg":
            table = self.iceberg()
            said |= {"name": self.name, "metadata": table.metadata_location}
            table.catalog.close()
        return said


def compact(made: Made) -> None:
    """Replace all files by one with the same rows."""
    table = made.open()
    state = table.load()
    small = table.files(state)
    rows = pa.concat_tables(pq.read_table(made.root / path, schema=RECORD_SCHEMA, partitioning=None) for path in small)
    path = f"data/barnabas-{uuid.uuid4().hex}.parquet"
    pq.write_table(rows.sort_by([("partition", "ascending"), ("offset", "ascending")]), made.root / path)
    table.rewrite(state, small, [DataFile(path, (made.root / path).stat().st_size, rows.num_rows)])


def expire(made: Made) -> None:
    """Let all snapshots expire but the current one."""
    table = made.iceberg()
    old = [one.snapshot_id for one in table.snapshots()][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    table.catalog.close()


# No log with a checkpoint: delta-spark 4.1.0 calls a constructor for it that Spark 4.1.4 has no longer.
CASES = (
    Case("iceberg", "iceberg"),
    Case("iceberg by day", "iceberg", "day"),
    Case("iceberg by hour", "iceberg", "hour"),
    Case("iceberg compacted", "iceberg", "", compact),
    Case("iceberg expired", "iceberg", "day", expire),
    Case("delta", "delta"),
    Case("delta by hour", "delta", "hour"),
    Case("delta compacted", "delta", "", compact),
)


def make(case: Case, topic: Topic, folder: Path, more: Callable[[], None]) -> Made:
    """Archive the topic, change the table, and archive once more what `more` has produced meanwhile."""
    made = Made(case, folder / case.title.replace(" ", "_"))
    archive_to(made, topic)
    if case.change is not None:
        case.change(made)
        more()
        archive_to(made, topic)
    return made


def archive_to(made: Made, topic: Topic) -> None:
    settings = settings_for(topic)
    files = FILES._replace(partition_by=made.case.partition_by)
    archive(made.open(), settings, in_process(DirectoryStore(made.root), settings, files), wait=lambda _: None)


class Compared(NamedTuple):
    """One row of the printed table: what each reader shows, as a claim."""

    title: str
    counts: Mapping[str, int]
    verdicts: Sequence[str]


def installed() -> tuple[Path, list[Path]]:
    """Return the folder of PySpark's packages and the readers' jars, fetching both if need be."""
    packages, jars = pip_packages("pyspark", PYSPARK), CACHE / "jvm-readers-4.1"
    for artifact in JARS:
        _, name, version = artifact.split(":")
        if not (jars / f"{name}-{version}.jar").exists():
            fetch("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jars}")
    return packages, sorted(jars.glob("*.jar"))


def read(tables: Sequence[Made], out: Path, day: dt.date) -> Any:
    """Let the readers read; return what they say of each table."""
    packages, jars = installed()
    described = [made.described(out / made.root.name) for made in tables]
    said = json.dumps({"jars": [str(one) for one in jars], "tables": described, "day": f"{day} 00:00:00"})
    kept = {name: value for name, value in os.environ.items() if name not in {"SPARK_HOME", "PYTHONPATH"}}
    environment = kept | {"PYTHONPATH": str(packages), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, READER, said], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise NotInstalledError(f"the readers failed: {reason(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def reason(said: str) -> str:
    """Return the lines of a trace that say why."""
    causes = [line.strip() for line in said.splitlines() if "Error" in line or line.startswith("Caused by:")]
    return "\n".join(causes[-4:]) or said[-500:]


def by_read_lake(made: Made, spark: Any, out: Path) -> list[Row] | str:
    """Return the rows that `read_lake` shows, or why it shows none."""
    try:
        rows = read_lake(spark, str(made.root), table_format=made.case.kind)
    except BarnabasError as error:
        return str(error)
    rows.coalesce(1).write.parquet(str(out / made.root.name))
    return rows_in(out / made.root.name)


def rows_in(folder: Path) -> list[Row]:
    return file_rows(folder, [one.name for one in folder.glob("*.parquet")])


def claim(found: list[Row] | str, expected: list[Row]) -> str:
    """Say in a word or two how rows differ from what was produced."""
    if isinstance(found, str):
        return found
    wrong = set(map(str, found)) ^ set(map(str, expected))
    return "equal" if found == expected else f"WRONG: {len(wrong)} rows differ, {len(found)} of {len(expected)}"


def table_of(found: Sequence[Compared]) -> str:
    """Return the findings as lines, one a table."""
    lines = [f"{'table':20}{'files':>6}{'versions':>9}{'rows':>6}  {'its own reader':16}{'DuckDB':16}read_lake"]
    for one in found:
        counts = f"{one.counts['files']:6}{one.counts['versions']:9}{one.counts['rows']:6}"
        lines.append(f"{one.title:20}{counts}  {one.verdicts[0]:16}{one.verdicts[1]:16}{one.verdicts[2]}")
    return "\n".join(lines)


def compare(tables: Sequence[tuple[Made, int, Topic]], folder: Path) -> list[Compared]:
    """Compare what everybody reads; each table comes with the number of records that it should have."""
    from barnabas_spark.jobs.session import session  # noqa: PLC0415 - after the other session has ended

    day = max(row.timestamp.date() for row in expected_rows(tables[0][2], range(ROWS)))
    said = read([made for made, _, _ in tables], folder / "theirs", day)
    found = []
    with session("readers", "local[2]") as spark:
        for made, count, topic in tables:
            expected, counts = expected_rows(topic, range(count)), said[made.case.title]
            theirs = claim(rows_in(folder / "theirs" / made.root.name), expected)
            if counts["day"] != sum(row.timestamp.date() >= day for row in expected):
                theirs = f"WRONG: {counts['day']} rows from {day} on"
            if counts.get("by_metadata", count) != count:
                theirs = "WRONG: other rows by the file of metadata"
            files = claim(file_rows(Path("/"), made.files()), expected)
            lake = claim(by_read_lake(made, spark, folder / "ours"), expected)
            found.append(Compared(made.case.title, counts | {"rows": count}, (theirs, files, lake)))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/trials/lake/jvm-readers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=[case.title for case in CASES], help="may be repeated")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="readers-") as folder, cluster() as brokers:
        tables = []
        for case in CASES:
            if not given.only or case.title in given.only:
                topic = new_topic(brokers.bootstrap)
                produce(topic, range(ROWS))
                made = make(case, topic, Path(folder), lambda topic=topic: produce(topic, range(ROWS, ROWS + 30)))  # type: ignore[misc]
                tables.append((made, ROWS + 30 * (case.change is not None), topic))
                print(f"{case.title}: made", file=sys.stderr, flush=True)
        try:
            found = compare(tables, Path(folder))
        except NotInstalledError as error:
            print(error, file=sys.stderr)
            return 1
    print(f"PySpark {PYSPARK}, {', '.join(one.partition(':')[2].replace(':', ' ') for one in JARS)}")
    print(table_of(found))
    return 0 if all(one == "equal" for each in found for one in each.verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
