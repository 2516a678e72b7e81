"""The job `compact`: brings a table of latest records to where a changelog ends, and shows what it did."""

import time
from functools import partial
from typing import NamedTuple

from barnabas_spark.lake.formats.choosing import DATA_FOLDERS, open_table
from barnabas_spark.lake.opening import open_store, probe
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.writing import FileSettings
from barnabas_spark.latest.archived import ArchivedChangelog, ReadArchive
from barnabas_spark.latest.choosing import LATEST_LAYOUT
from barnabas_spark.latest.merging import ForeignFileError, Merged, merge
from barnabas_spark.latest.run import Changelog, CompactResult, TopicChangelog, compact
from barnabas_spark.latest.tasks import merge_on_spark, sift_on_spark
from barnabas_spark.latest.writing import ReadRange, ReadTopic

from .archiving import read_options
from .output import commits, print_table, say, say_json, say_progress
from .session import session

__all__ = ["CompactJob", "run_compact"]

# Files of a partition: with more, a run merges them. A reader opens all of them, and passes over what was superseded.
FILES_MAX = 16


class CompactJob(NamedTuple):
    """What the command line says."""

    topic: str
    location: Location
    kind: str
    bootstrap: str
    master: str = ""
    files: FileSettings = FileSettings()
    round_bytes: int = 1 << 30
    accept_gap: bool = False
    adopt: bool = False
    as_json: bool = False
    archive: Location | None = None
    archive_kind: str = "parquet"
    merges: bool = False
    isolation_level: str = "read_committed"


def run_compact(job: CompactJob) -> int:
    """Run it; return the exit status."""
    files = job.files._replace(folder=DATA_FOLDERS[job.kind])
    probe(open_store(job.location), job.location)
    table = open_table(job.kind, job.location, LATEST_LAYOUT, adopt=job.adopt)
    table.load()
    changelog, read = _changelog(job)
    with session("compact", job.master) as spark:
        began = time.monotonic()
        run_pieces = sift_on_spark(spark, read, job.location, files)
        tell = partial(_tell, began)
        result = compact(table, changelog, run_pieces, job.round_bytes, accept_gap=job.accept_gap, tell=tell)
        _show(result, time.monotonic() - began, as_json=job.as_json)
        try:
            merged = merge(table, 1 if job.merges else FILES_MAX, merge_on_spark(spark, job.location, files))
        except ForeignFileError as error:
            if job.merges:
                raise
            say(str(error))
        else:
            _show_merged(merged)
    return 0


def _show_merged(merged: Merged | None) -> None:
    if merged is not None:
        say(
            f"{merged.files_before} files became {merged.files_after}: "
            f"{merged.rows_before:,} rows, {merged.rows_after:,} of them the latest"
        )


def _changelog(job: CompactJob) -> tuple[Changelog, ReadRange]:
    """Return where records come from, and what reads them."""
    if job.archive is not None:
        return ArchivedChangelog(job.archive_kind, job.archive, job.topic), ReadArchive(job.archive)
    options = read_options(job.bootstrap, job.topic, job.isolation_level)
    return TopicChangelog(options, job.topic), ReadTopic(options)


def _tell(began: float, result: CompactResult) -> None:
    read = sum(one.read for one in result.partitions)
    plain_bytes = sum(one.plain_bytes for one in result.partitions)
    lost = f", {result.lost_rounds} lost to another run" if result.lost_rounds else ""
    say_progress(result.rounds, f"{read:,} records", plain_bytes, began, f"{result.left:,} offsets left{lost}")


def _show(result: CompactResult, took_s: float, *, as_json: bool) -> None:
    if as_json:
        say_json(one._asdict() | {"topic_id": result.topic_id} for one in result.partitions)
    else:
        print_table(
            (
                "partition",
                "offsets",
                "now ends at",
                "records",
                "latest",
                "deleted",
                "null keys",
                "files",
                "gap",
            ),
            (
                (
                    one.partition,
                    one.offsets,
                    one.end_offset,
                    one.read,
                    one.kept,
                    one.deleted,
                    one.null_keys,
                    one.files,
                    one.gap or None,
                )
                for one in result.partitions
            ),
        )
    read, kept = sum(one.read for one in result.partitions), sum(one.kept for one in result.partitions)
    rejected = sum(one.null_keys for one in result.partitions)
    say(f"{read:,} records, {kept:,} latest ones written in {commits(result.rounds)}, {took_s:.1f} s")
    if rejected:
        say(f"{rejected:,} records without a key were left out")
