"""The job `archive`: lands a topic in a table, once or again and again, and shows what it did."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from barnabas_spark.lake.archive import ArchiveResult, ArchiveSettings, RunPieces, archive
from barnabas_spark.lake.committing import pause
from barnabas_spark.lake.compaction import commit_compaction, groups_of
from barnabas_spark.lake.formats.choosing import DATA_FOLDERS, TABLE, open_as_it_is, open_rejects, open_table
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.logs import ask_logs
from barnabas_spark.lake.opening import open_store, probe
from barnabas_spark.lake.orphans import remove_orphans
from barnabas_spark.lake.rounds import holes_of
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError
from barnabas_spark.lake.tasks import rewrite_on_spark, run_on_spark
from barnabas_spark.lake.values.evolving import evolve_table
from barnabas_spark.lake.values.rejects import is_ahead
from barnabas_spark.lake.values.texts import read_value_schema
from barnabas_spark.lake.writing import FileSettings
from barnabas_spark.latest.choosing import has_latest
from barnabas_spark.options.reads import ReadOptions, parse_read_options

from .errors import INTERRUPTED
from .output import commits, print_table, say, say_json, say_progress, shown_bytes
from .positions import GroupPositions
from .session import session
from .stopping import at_sigterm

__all__ = ["ArchiveJob", "Tables", "ValueOptions", "open_tables", "read_options", "run_archive", "show_holes"]


class ValueOptions(NamedTuple):
    """What is said of values: their schema (or ""), what goes before names of its columns, where rejects go."""

    schema: str = ""
    prefix: str = ""
    rejects_url: str = ""


class ArchiveJob(NamedTuple):
    """What the command line says. `interval_s` is the pause between runs; None: one run. `group` may be empty."""

    topic: str
    location: Location
    kind: str
    bootstrap: str
    master: str = ""
    files: FileSettings = FileSettings()
    round_bytes: int = 1 << 30
    accept_gap: bool = False
    restart_topic: bool = False
    adopt: bool = False
    interval_s: float | None = None
    as_json: bool = False
    backfill: tuple[int, int] | None = None
    compacts: bool = False
    orphans_age_s: float | None = None
    values: ValueOptions = ValueOptions()
    group: str = ""
    isolation_level: str = "read_committed"

    @property
    def rejects(self) -> Location:
        """Where what does not fit the schema of values goes: a table of its own."""
        options = dict(self.location.options)
        if TABLE in options:
            options[TABLE] += "_rejects"
        return Location(self.values.rejects_url or f"{self.location.url.rstrip('/')}_rejects", options)


def read_options(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> ReadOptions:
    """Return the options with which a job reads a topic."""
    return parse_read_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafka.isolation.level": isolation_level,
        }
    )


def run_archive(job: ArchiveJob) -> int:
    """Run it; return the exit status."""
    options = read_options(job.bootstrap, job.topic, job.isolation_level)
    settings = ArchiveSettings(job.topic, options, job.round_bytes, job.accept_gap, job.restart_topic, job.backfill)
    # Before Spark starts, which takes seconds.
    table, layout = open_as_it_is(job.kind, job.location, job.files.partition_by, adopt=job.adopt)
    if has_latest(layout):
        raise TableError(f"{job.location.url} has the latest records of `compact`; archive to another place")
    for location in (job.location, job.rejects) if job.values.schema or layout.values else (job.location,):
        probe(open_store(location), location)
    table.load()
    stopping = threading.Event()
    # At SIGTERM a round is committed before the job ends.
    with session("archive", job.master) as spark, at_sigterm(stopping.set):
        given = read_value_schema(job.values.schema) if job.values.schema else None
        pieces = partial(_pieces, spark)
        tables = open_tables(job, settings, given, pieces)
        positions = GroupPositions(options, job.topic, job.group) if job.group else None
        while True:
            began = time.monotonic()
            result = archive(
                tables.table,
                settings,
                pieces(tables),
                rejects=tables.rejects,
                tell=partial(_tell, began, positions),
                should_stop=stopping.is_set,
            )
            _store(positions, result)
            _show(result, time.monotonic() - began, as_json=job.as_json, has_rejects=tables.rejects is not None)
            if stopping.is_set():
                say(f"asked to stop: {result.left:,} offsets left")
                return INTERRUPTED if result.left and job.interval_s is None else 0
            _tidy(spark, tables.table, job, job.location, tables.files._replace(schema=tables.layout.schema))
            if tables.rejects is not None:
                _tidy(spark, tables.rejects, job, job.rejects, tables.files.of_rejects)
            # A gap is accepted once, when somebody looks: one that comes later stops the job.
            settings = settings._replace(accept_gap=False, restart_topic=False)
            if job.interval_s is None or stopping.wait(job.interval_s):
                return 0
            if tables.table.layout_of() not in {None, tables.layout}:
                tables = open_tables(job, settings, given, pieces)


class Tables(NamedTuple):
    """The tables of a job, and how files are written for them. `layout` is that of the first one."""

    table: Any
    layout: Layout
    rejects: Any
    files: FileSettings
    job: ArchiveJob
    settings: ArchiveSettings


def open_tables(
    job: ArchiveJob,
    settings: ArchiveSettings,
    given: Mapping[str, Any] | None,
    pieces: Callable[[Tables], RunPieces],
    wait: Callable[[int], None] = pause,
) -> Tables:
    """Open the tables of a job, and give the first one the columns of a schema, if it lacks some. `pieces` runs them.

    Raises:
        SchemaChangeError: the schema does not fit the table; nothing was committed.
        ArchiveError, TableError: as `archive`.
    """
    table, layout = open_as_it_is(
        job.kind, job.location, job.files.partition_by, given, job.values.prefix, adopt=job.adopt
    )
    has_values = given is not None or layout.values
    rejects: Any = open_rejects(job.kind, job.rejects, adopt=job.adopt) if has_values else None
    tables = Tables(table, layout, rejects, _files(job, layout), job, settings)
    if rejects is None:
        return tables
    state, known = table.load(), rejects.load().spans
    if known and table.layout_of(state) is None:
        raise TableError(
            f"{job.rejects.url} has rejects of a table at {job.location.url}, and there is none: give another"
            " --rejects, or bring the table back"
        )
    if given is None:
        return tables
    if layout.values and is_ahead(state.spans, known):
        # Those of a driver that died: their values are decoded as their rejects were, before the schema changes.
        archive(table, settings._replace(only_known=True), pieces(tables), rejects=rejects, wait=wait)
    # Before anything is committed to the table of rejects: the schema of its rejects is always that of the table.
    layout = evolve_table(table, layout, given, job.values.prefix, wait=wait)
    return tables._replace(layout=layout, files=_files(job, layout))


def _files(job: ArchiveJob, layout: Layout) -> FileSettings:
    return job.files._replace(
        folder=DATA_FOLDERS[job.kind],
        partition_by=layout.partition_by,
        schema=layout.archived_schema,
        values=layout.values,
    )


def _pieces(spark: Any, tables: Tables) -> RunPieces:
    job = tables.job
    rejects = None if tables.rejects is None else job.rejects
    return run_on_spark(spark, job.location, tables.settings.options, tables.files, rejects)


def _tidy(spark: Any, table: Any, job: ArchiveJob, location: Location, files: FileSettings) -> None:
    """Compact files and remove orphans, as far as that was asked for."""
    if job.compacts:
        groups = groups_of(table.data_files(table.load()), files.file_bytes)
        if groups:
            done = commit_compaction(table, rewrite_on_spark(spark, location, files, groups))
            say(f"{done.files_before} files became {done.files_after}, {done.rows:,} rows")
    if job.orphans_age_s is not None:
        removed = remove_orphans(table, open_store(location), files.folder, job.orphans_age_s)
        say(f"{len(removed)} orphans were removed")


def show_holes(job: ArchiveJob) -> int:
    """Print the holes of a table, one a line; return the exit status."""
    table = open_table(job.kind, job.location, None, adopt=job.adopt)
    logs = ask_logs(read_options(job.bootstrap, job.topic, job.isolation_level), job.topic)
    rows = [
        (
            partition,
            hole.start_offset,
            hole.end_offset,
            hole.end_offset - hole.start_offset,
            "yes" if is_there else "no",
        )
        for partition, hole, is_there in holes_of(table.load().spans, logs)
    ]
    columns = ("partition", "from", "to", "offsets", "in the log")
    if job.as_json:
        say_json(
            dict(zip(("partition", "start_offset", "end_offset", "offsets", "is_in_log"), row, strict=True))
            for row in rows
        )
    else:
        print_table(columns, rows)
    return 0


def _store(positions: GroupPositions | None, result: ArchiveResult) -> None:
    if positions is not None:
        positions.store({one.partition: one.end_offset for one in result.partitions})


def _tell(began: float, positions: GroupPositions | None, result: ArchiveResult) -> None:
    _store(positions, result)
    rows = sum(one.rows for one in result.partitions)
    plain_bytes = sum(one.plain_bytes for one in result.partitions)
    lost = f", {result.lost_rounds} lost to another archiver" if result.lost_rounds else ""
    say_progress(result.rounds, f"{rows:,} rows", plain_bytes, began, f"{result.left:,} offsets left{lost}")


def _show(result: ArchiveResult, took_s: float, *, as_json: bool, has_rejects: bool) -> None:
    if as_json:
        say_json(one._asdict() | {"topic_id": result.topic_id} for one in result.partitions)
        return
    columns = ("partition", "from", "to", "rows", "files", "plain", "stored", "gap", "rejects")
    shown = [
        (
            one.partition,
            one.start_offset,
            one.end_offset,
            one.rows,
            one.files,
            shown_bytes(one.plain_bytes),
            shown_bytes(one.file_bytes),
            one.gap or None,
            one.rejects,
        )
        for one in result.partitions
    ]
    width = len(columns) - (not has_rejects)
    print_table(columns[:width], [row[:width] for row in shown])
    rows = sum(one.rows for one in result.partitions)
    say(f"{rows:,} rows in {commits(result.rounds)}, {took_s:.1f} s")
