"""The job `compact`: brings a table of latest records to where a changelog ends, and shows what it did."""

import time
from functools import partial
from typing import NamedTuple

from barnabas_spark.lake.formats.choosing import DATA_FOLDERS, open_table
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.writing import FileSettings
from barnabas_spark.latest.read import LATEST_LAYOUT
from barnabas_spark.latest.run import CompactResult, TopicChangelog, compact
from barnabas_spark.latest.tasks import sift_on_spark
from barnabas_spark.latest.writing import ReadTopic

from .archiving import read_options
from .output import print_table, say, say_json, shown_bytes
from .session import session

__all__ = ["CompactJob", "run_compact"]


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


def run_compact(job: CompactJob) -> int:
    """Run it; return the exit status."""
    files = job.files._replace(folder=DATA_FOLDERS[job.kind])
    table = open_table(job.kind, job.location, LATEST_LAYOUT, adopt=job.adopt)
    table.load()
    options = read_options(job.bootstrap, job.topic)
    changelog = TopicChangelog(options, job.topic)
    with session("compact", job.master) as spark:
        began = time.monotonic()
        run_pieces = sift_on_spark(spark, ReadTopic(options), job.location, files)
        tell = partial(_tell, began)
        result = compact(table, changelog, run_pieces, job.round_bytes, accept_gap=job.accept_gap, tell=tell)
        _show(result, time.monotonic() - began, as_json=job.as_json)
    return 0


def _tell(began: float, result: CompactResult) -> None:
    read = sum(one.read for one in result.partitions)
    plain_bytes = sum(one.plain_bytes for one in result.partitions)
    rate = plain_bytes / max(time.monotonic() - began, 1e-3)
    lost = f", {result.lost_rounds} lost to another run" if result.lost_rounds else ""
    say(
        f"{_commits(result.rounds)}: {read:,} records, {shown_bytes(plain_bytes)} ({shown_bytes(rate)}/s), "
        f"{result.left:,} offsets left{lost}"
    )


def _commits(count: int) -> str:
    return "1 commit" if count == 1 else f"{count} commits"


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
                "of them deleted",
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
    say(f"{read:,} records, {kept:,} latest ones written in {_commits(result.rounds)}, {took_s:.1f} s")
    if rejected:
        say(f"{rejected:,} records without a key were left out")
