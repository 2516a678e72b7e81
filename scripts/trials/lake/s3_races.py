"""Runs real S3 servers: do conditional writes hold, and do two archivers that race leave every row once?

This is `scripts/trials/lake/s3-servers`. On each server, one after the other:

* the *probe* of the archive: of two writes of one path, one after the other, the second must be refused, and of several
  at the same time all but one;
* *creation*: the same with more paths than a probe takes. A server may look first and write later;
* *archives*: two processes archive a topic into one table, all rounds at the same time. Then the table's files are
  taken from its own metadata, and DuckDB compares all rows with those that were produced.

Iceberg's commits are decided by its catalog (here SQLite), whatever the store does.
"""

import argparse
import logging
import multiprocessing
import sys
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import boto3  # type: ignore[import-untyped]
from machines.cache import NotInstalledError
from machines.cluster_handle import cluster
from spark.lake.formats import contents
from spark.lake.produced import Topic, expected_rows, file_rows, new_topic, produce
from spark.lake.sweep import FILES, ROWS, in_process, settings_for

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.delta import DeltaFormat
from barnabas_spark.lake.formats.iceberg import IcebergFormat
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.opening import open_store, probe
from barnabas_spark.lake.store import Location, PresentError, Store, StoreError
from barnabas_spark.lake.writing import Piece, Unreadable, Written

from .servers import SERVERS, running

__all__ = ["Found", "Race", "creations", "main", "raced", "table"]

KINDS = ("parquet", "delta", "iceberg")
LAYOUT = Layout(partition_by=FILES.partition_by)
WRITERS = 8
PATHS = 40
RACE_LIMIT_S = 180.0


class Race(NamedTuple):
    """Two archivers of a topic into one table. `folder` is here, for the catalog and for copies."""

    topic: Topic
    kind: str
    location: Location
    folder: Path

    def open(self) -> ParquetFormat | DeltaFormat | IcebergFormat:
        url, options = self.location
        if self.kind == "delta":
            return DeltaFormat(url, LAYOUT.table_schema, LAYOUT.partition_columns, options)
        if self.kind == "iceberg":
            catalog = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", **options}
            return IcebergFormat(url, "lake.raced", LAYOUT.schema, LAYOUT.partition_by, catalog)
        return ParquetFormat(open_store(self.location), LAYOUT)

    def files(self, copy: Path) -> Sequence[str]:
        """Return the live files, by the bytes of a copy of the table alone."""
        if self.kind == "delta":
            return contents.delta_files(copy)
        if self.kind == "iceberg":
            return contents.iceberg_files(self.folder, "raced", {self.location.url: str(copy)})
        return contents.parquet_files(copy)


class Found(NamedTuple):
    """One row of the table. `is_wrong`: rows were lost or doubled in a store that the archive takes."""

    server: str
    probe: str
    created: str
    results: Mapping[str, str] = {}
    is_wrong: bool = False


def creations(store: Store, paths: int = PATHS, writers: int = WRITERS) -> Counter[int]:
    """Let several writers create each of some paths at once; return how often so many of them succeeded."""
    ready = threading.Barrier(writers)

    def create(number: int) -> list[bool]:
        succeeded = []
        for path in range(paths):
            ready.wait(60)
            try:
                store.put_if_absent(f"created/{path}", b"%d" % number * 100)
            except PresentError:
                succeeded.append(False)
            else:
                succeeded.append(True)
        return succeeded

    with ThreadPoolExecutor(writers) as pool:
        told = [*pool.map(create, range(writers))]
    return Counter(sum(each) for each in zip(*told, strict=True))


def archive_racing(race: Race, together: Any, results: Any) -> None:
    """Archive the topic, each commit at the same time as the other archiver's; the process' own function."""
    logging.getLogger("barnabas_spark").setLevel(logging.ERROR)  # Each round is lost by one of them: no news.
    settings = settings_for(race.topic)
    write = in_process(open_store(race.location), settings)

    def run_pieces(pieces: Sequence[Piece]) -> Sequence[Written | Unreadable]:
        written = write(pieces)
        with suppress(threading.BrokenBarrierError):
            together.wait(30)
        return written

    try:
        done = archive(race.open(), settings, run_pieces, wait=lambda _: None)
        results.put((done.rounds, done.lost_rounds, ""))
    except BarnabasError as error:
        results.put((0, 0, str(error)))
    finally:
        together.abort()


def raced(race: Race) -> tuple[str, bool]:
    """Let two processes race; return what became of the table, and whether rows are lost or doubled."""
    context = multiprocessing.get_context("spawn")
    together, results = context.Barrier(2), context.Queue()
    racers = [context.Process(target=archive_racing, args=(race, together, results)) for _ in range(2)]
    for racer in racers:
        racer.start()
    try:
        told = [results.get(timeout=RACE_LIMIT_S) for _ in racers]
    finally:
        for racer in racers:
            racer.join(10)
            racer.kill()
    failures = [text for _, _, text in told if text]
    with tempfile.TemporaryDirectory(dir=race.folder) as copy:
        root = download(race.location, Path(copy))
        found = file_rows(root, race.files(root))
    expected = expected_rows(race.topic, range(ROWS))
    lost = len(set(map(str, expected)) - set(map(str, found)))
    doubled = len(found) - len(expected) + lost
    if lost or doubled:
        return f"WRONG: {lost} rows lost, {doubled} doubled", True
    if failures:
        return f"FAILED: {failures[0]}", True
    return f"exact: {sum(won for won, _, _ in told)} commits, {sum(lost for _, lost, _ in told)} rounds lost", False


@contextmanager
def bucket(options: Mapping[str, str]) -> Iterator[str]:
    """Make a bucket; yield its name."""
    name = f"lake-{uuid.uuid4().hex[:12]}"
    client = client_of(options)
    client.create_bucket(Bucket=name)
    client.close()
    yield name


def client_of(options: Mapping[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
        region_name=options["region"],
    )


def download(location: Location, to: Path) -> Path:
    """Copy all objects below a location; return the folder that is its copy."""
    client = client_of(location.options)
    name, _, prefix = location.url.removeprefix("s3://").partition("/")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=name, Prefix=f"{prefix}/"):
        for one in page.get("Contents", ()):
            (to / one["Key"]).parent.mkdir(parents=True, exist_ok=True)
            (to / one["Key"]).write_bytes(client.get_object(Bucket=name, Key=one["Key"])["Body"].read())
    client.close()
    return to / prefix


def judged(topic: Topic, name: str, options: Mapping[str, str], kinds: Sequence[str], tables: int) -> Found:
    """Try one server."""
    with bucket(options) as made:
        location = Location(f"s3://{made}/probed", options)
        try:
            probe(open_store(location), location)
            probed = "taken"
        except StoreError as error:
            say(f"{name}: {error}")
            probed = "refused"
        count = creations(open_store(location))
        twice = sum(paths for winners, paths in count.items() if winners != 1)
        created = f"{twice} of {count.total()} more than once" if twice else f"{count.total()}, each once"
        say(f"{name}: the probe: {probed}; paths that {WRITERS} writers created at once: {created}")
        if probed == "refused":
            return Found(name, probed, created)
        results: dict[str, str] = {}
        is_wrong = False
        for kind in kinds:
            for number in range(tables):
                with tempfile.TemporaryDirectory(prefix="raced-") as folder:
                    where = Location(f"s3://{made}/{kind}-{number}", options)
                    result, was_wrong = raced(Race(topic, kind, where, Path(folder)))
                say(f"{name}: {kind}: {result}")
                results[kind] = result if was_wrong or not is_wrong else results[kind]
                is_wrong = is_wrong or was_wrong
        return Found(name, probed, created, results, is_wrong or bool(twice))


def table(found: Sequence[Found], kinds: Sequence[str] = KINDS) -> str:
    """Return the findings as lines, one a server."""
    rows = [("server", "probe", "created", *kinds)]
    rows += [
        (one.server, one.probe, one.created, *(one.results.get(kind, "-").partition(",")[0] for kind in kinds))
        for one in found
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/trials/lake/s3-servers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--server", action="append", choices=tuple(SERVERS), help="only this one; may be repeated")
    parser.add_argument("--format", action="append", choices=KINDS, help="only tables of this one; may be repeated")
    parser.add_argument("--tables", type=int, default=2, help="races for each format and server (default: 2)")
    given = parser.parse_args(argv)
    kinds, found = tuple(given.format or KINDS), []
    with cluster() as brokers:
        topic = new_topic(brokers.bootstrap)
        produce(topic, range(ROWS))
        for name in given.server or SERVERS:
            try:
                with running(name) as server:
                    found.append(judged(topic, name, server.options, kinds, given.tables))
            except NotInstalledError as error:
                say(f"{name}: {error}")
                found.append(Found(name, "not run", "-"))
    print(table(found, kinds))
    return 0 if found and not any(one.is_wrong or one.probe == "not run" for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
