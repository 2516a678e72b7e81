"""The job `backfill`: writes rows of a lake into a topic, and shows what it did."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.lake.read import read_lake
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.tasks import named_failure
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.options.writes import WriteOptions, parse_write_options

from .archiving import read_options
from .backfill.marker import Marker
from .backfill.rows import in_order
from .backfill.target import Target, ask_target, forget_marker, keep_marker
from .backfill.writing import RESULT_DDL, BackfillError, Done, Writing, write_sorted
from .lakes import find_lake
from .output import print_table, say, say_json, shown_bytes
from .session import session

__all__ = ["BackfillJob", "run_backfill"]

PROGRESS_S = 2.0
_MAX_MESSAGE = "max.message.bytes"


class BackfillJob(NamedTuple):
    """What the command line says. Offsets and times (in ms since 1970) are [from, to); None: without an end."""

    topic: str
    location: Location
    bootstrap: str
    kind: str = ""
    master: str = ""
    by_key: bool = False
    topic_id: str = ""
    offsets: tuple[int | None, int | None] = (None, None)
    times_ms: tuple[int | None, int | None] = (None, None)
    compression: str = "zstd"
    appends: bool = False
    resumes: bool = False
    as_json: bool = False


class Expected(NamedTuple):
    """The rows of one partition of the target."""

    rows: int
    first_ms: int


def run_backfill(job: BackfillJob) -> int:
    """Run it; return the exit status: 1 if the topic has other rows afterwards than it should."""
    began = time.monotonic()
    reads = read_options(job.bootstrap, job.topic)
    target = ask_target(reads, job.topic)
    asked = _asked(job, target)
    marker, begins = _begin(job, target, asked)
    with session("backfill", job.master) as spark:
        rows = read_lake(
            spark,
            job.location.url,
            table_format=marker.kind,
            version=marker.version,
            store_options=job.location.options,
        ).where(marker.where)
        plain, ordered = in_order(rows, by_key=job.by_key, count=len(target.ends))
        expected = _expected(plain)
        _check_partitions(job, target, expected)
        _warn(target, expected)
        if not job.resumes:
            keep_marker(reads, job.topic, marker, begins)
        writing = Writing(job.topic, _write_options(job, target), reads, begins)
        with _progress(reads, job.topic, begins, sum(one.rows for one in expected.values())):
            done = _write(ordered, writing)
    return _judge(job, reads, expected, done, begins, began)


def _asked(job: BackfillJob, target: Target) -> Marker:
    """Return what is asked for, as the marker says it."""
    lake = find_lake(job.location, job.kind)
    if not isinstance(lake.state.version, int):
        raise BackfillError(f"the table at {job.location.url} has no version that could be read again")
    ids = sorted({key.topic_id for key, spans in lake.state.spans.items() if spans})
    if not job.topic_id and len(ids) != 1:
        known = ", ".join(ids) or "none"
        raise BackfillError(f"--topic-id must say which topic of the lake is meant; it has: {known}")
    topic_id = job.topic_id or ids[0]
    if topic_id not in ids:
        raise BackfillError(f"--topic-id: the lake has no topic '{topic_id}'; it has: {', '.join(ids)}")
    (first, last), (since, until) = job.offsets, job.times_ms
    conditions = [
        f"topicId = '{topic_id}'",
        "" if first is None else f"offset >= {first}",
        "" if last is None else f"offset < {last}",
        "" if since is None else f"timestamp >= timestamp_millis({since})",
        "" if until is None else f"timestamp < timestamp_millis({until})",
    ]
    where = " and ".join(filter(None, conditions))
    partitions = "by-key" if job.by_key else "keep"
    url = str(job.location.directory) if job.location.is_local else job.location.url
    return Marker(target.topic_id, url, lake.kind, lake.state.version, topic_id, where, partitions, len(target.ends))


def _begin(job: BackfillJob, target: Target, asked: Marker) -> tuple[Marker, Mapping[int, int]]:
    """Decide whether the topic may be written, and from where on."""
    found = target.marker if target.marker is not None and target.marker.target_id == target.topic_id else None
    if job.resumes:
        if found is None:
            raise BackfillError(f"no back-fill of {job.topic} was begun and not ended; leave --resume out")
        if different := found.difference(asked):
            raise BackfillError(f"the back-fill of {job.topic} cannot go on: {different}")
        return found, target.begins
    if found is not None:
        raise BackfillError(f"a back-fill of {job.topic} was begun and not ended: --resume goes on with it")
    if not target.is_empty and not job.appends:
        raise BackfillError(f"{job.topic} is not empty; --append writes behind what it has")
    return asked, target.ends


def _expected(plain: Any) -> dict[int, Expected]:
    found = named_failure(lambda: plain.groupBy("target").agg({"*": "count", "timestamp": "min"}).collect())
    return {row["target"]: Expected(row["count(1)"], row["min(timestamp)"]) for row in found}


def _check_partitions(job: BackfillJob, target: Target, expected: Mapping[int, Expected]) -> None:
    lacking = sorted(set(expected) - set(target.ends))
    if lacking:
        raise BackfillError(
            f"{job.topic} has {len(target.ends)} partitions, and the lake has rows of partition {lacking[-1]}: add "
            "partitions, or write --partitions by-key"
        )


def _warn(target: Target, expected: Mapping[int, Expected]) -> None:
    """Say what the topic will do to the rows."""
    if target.configs.get("message.timestamp.type") == "LogAppendTime":
        say("the topic sets timestamps itself (message.timestamp.type), so those of the lake are not kept")
        return
    retention_ms = int(target.configs.get("retention.ms") or -1)
    first_ms = min((one.first_ms for one in expected.values()), default=None)
    deletes = "delete" in target.configs.get("cleanup.policy", "delete")
    if first_ms is not None and deletes and 0 <= retention_ms < time.time() * 1000 - first_ms:
        say("rows of the lake are older than retention.ms of the topic, which will delete them soon")


def _write_options(job: BackfillJob, target: Target) -> WriteOptions:
    largest = max(1 << 20, int(target.configs.get(_MAX_MESSAGE) or 0))
    given = {
        "kafka.bootstrap.servers": job.bootstrap,
        "topic": job.topic,
        "kafka.compression.type": job.compression,
        "kafka.max.request.size": str(largest),
        "kafka.buffer.memory": str(max(32 << 20, 4 * largest)),
    }
    return parse_write_options(given)


def _write(ordered: Any, how: Writing) -> list[Done]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        return write_sorted(batches, how)

    found = named_failure(lambda: ordered.mapInArrow(run, RESULT_DDL).collect())
    return sorted(Done(*row) for row in found)


@contextmanager
def _progress(options: ReadOptions, topic: str, begins: Mapping[int, int], rows: int) -> Iterator[None]:
    """Say every two seconds how far the topic has grown."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(PROGRESS_S):
            with suppress(BarnabasError, TimeoutError):
                grown = sum(end - begins[each] for each, end in ask_target(options, topic).ends.items())
                say(f"{grown:,} of {rows:,} rows are in the topic")

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _judge(
    job: BackfillJob,
    reads: ReadOptions,
    expected: Mapping[int, Expected],
    done: Sequence[Done],
    begins: Mapping[int, int],
    began: float,
) -> int:
    """Compare the topic with what it should have, and show the result."""
    ends = ask_target(reads, job.topic).ends
    by_partition = {one.partition: one for one in done}
    wrong = []
    rows = []
    for partition in sorted(ends):
        wanted = expected[partition].rows if partition in expected else 0
        one = by_partition.get(partition, Done(partition))
        there = ends[partition] - begins.get(partition, 0)
        rows.append((partition, begins.get(partition, 0), ends[partition], wanted, one.skipped, one.written))
        if there != wanted:
            what = "somebody else wrote to it, or rows are doubled" if there > wanted else "rows are missing"
            wrong.append(f"{job.topic}-{partition} has {there} records of {wanted}: {what}")
    if job.as_json:
        names = ("partition", "start_offset", "end_offset", "rows", "skipped", "written")
        say_json(dict(zip(names, row, strict=True)) for row in rows)
    else:
        print_table(("partition", "from", "to", "rows", "there before", "written"), rows)
    if wrong:
        raise BackfillError("; ".join(wrong))
    forget_marker(reads, job.topic)
    written = sum(one.written for one in done)
    size = shown_bytes(sum(one.plain_bytes for one in done))
    say(f"{written:,} rows written, {size}, {time.monotonic() - began:.1f} s")
    return 0
