"""A back-fill that was killed goes on where it was, and what does not fit is refused."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.lake.produced import Topic, expected_rows, new_topic, row_of

from barnabas_spark.jobs import backfilling
from barnabas_spark.jobs.archiving import read_options
from barnabas_spark.jobs.backfill.marker import Marker, MarkerError, read_marker
from barnabas_spark.jobs.backfill.rows import COLUMNS
from barnabas_spark.jobs.backfill.target import ask_target, forget_marker, keep_marker
from barnabas_spark.jobs.backfill.writing import BackfillError, Writing, write_sorted
from barnabas_spark.jobs.backfilling import BackfillJob
from barnabas_spark.lake.logs import ask_logs
from barnabas_spark.lake.store import Location
from barnabas_spark.options.writes import parse_write_options
from barnabas_spark.planning.plan import Split
from barnabas_spark.reading.reader import read_split

WAIT_S = 120
MARKER = Marker("id", "/lake", "parquet", 3, "source", "offset >= 5", "keep", 3)
pytestmark = [pytest.mark.spark, pytest.mark.process]
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES = (pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary(), _HEADERS)
_SCHEMA = pa.schema(list(zip(COLUMNS, _TYPES, strict=True)))


class KilledError(BaseException):
    """The task is dead here."""


def batches(
    numbers: range, *, killed_after: int | None = None, before: Callable[[], object] = lambda: None
) -> Iterator[Any]:
    """Yield rows sorted by partition and offset, five at a time, until the task is killed, which `before` precedes."""
    rows = sorted((row_of("any", number) for number in numbers), key=lambda row: row[1:3])
    for at in range(0, len(rows), 5):
        if killed_after is not None and at >= killed_after:
            before()
            raise KilledError
        columns = [
            (one.partition, one.partition, one.offset, int(one.timestamp.timestamp() * 1000), one.key, one.value)
            for one in rows[at : at + 5]
        ]
        values: list[dict[str, Any]] = [dict(zip(COLUMNS, column, strict=False)) for column in columns]
        for value, one in zip(values, rows[at : at + 5], strict=True):
            value["headers"] = one.headers
        yield pa.RecordBatch.from_pylist(values, schema=_SCHEMA)


@pytest.fixture
def topic(cluster: Any) -> Topic:
    return new_topic(cluster.bootstrap)


def writing(topic: Topic) -> Writing:
    reads = read_options(topic.bootstrap, topic.name)
    writes = parse_write_options({"kafka.bootstrap.servers": topic.bootstrap, "topic": topic.name})
    return Writing(topic.name, writes, reads, dict.fromkeys(range(3), 0))


def wait_for_rows(topic: Topic, count: int) -> None:
    """Return when all requests of a task that has sent `count` rows are done.

    One that is under way when its task is killed may be carried out at any later time, which is another story: what the
    next task finds would not be certain, and rows of it might be there twice.
    """
    until_s = time.monotonic() + WAIT_S
    while sum(log.end_offset for log in ask_logs(read_options(*topic), topic.name).partitions.values()) < count:
        assert time.monotonic() < until_s, "rows that were sent do not arrive"


def rows_in(topic: Topic) -> list[tuple[Any, ...]]:
    options = read_options(topic.bootstrap, topic.name)
    logs = ask_logs(options, topic.name)
    names = ("partition", "offset", "timestamp", "key", "value", "headers")
    return [
        tuple(row.values())
        for partition, log in sorted(logs.partitions.items())
        for batch in read_split(Split(topic.name, logs.raw_id, partition, -1, 0, log.end_offset), options, names)
        for row in batch.to_pylist()
    ]


def test_a_task_that_is_killed_goes_on_and_nothing_is_lost_or_doubled(topic: Topic) -> None:
    how = writing(topic)
    with pytest.raises(KilledError):
        list(write_sorted(batches(range(90), killed_after=45, before=lambda: wait_for_rows(topic, 45)), how))
    assert len(rows_in(topic)) == 45
    (result,) = write_sorted(batches(range(90)), how)
    done = result.to_pylist()
    assert sum(one["skipped"] for one in done) == 45
    assert sum(one["written"] for one in done) == 45
    expected = [(one[1], one[2], one[3], *one[5:]) for one in expected_rows(topic, range(90))]
    assert rows_in(topic) == expected


def test_a_topic_to_which_somebody_else_wrote_is_not_gone_on_with(topic: Topic) -> None:
    list(write_sorted(batches(range(60)), writing(topic)))
    with pytest.raises(BackfillError, match="has 10 records more than the back-fill has rows"):
        list(write_sorted(batches(range(30)), writing(topic)))


def test_the_marker_stays_with_the_topic_until_the_back_fill_is_done(topic: Topic) -> None:
    options = read_options(topic.bootstrap, topic.name)
    assert ask_target(options, topic.name).marker is None
    keep_marker(options, topic.name, MARKER, {0: 4, 1: 5, 2: 6})
    target = ask_target(options, topic.name)
    assert (target.marker, target.begins, target.is_empty) == (MARKER, {0: 4, 1: 5, 2: 6}, True)
    forget_marker(options, topic.name)
    assert ask_target(options, topic.name).marker is None


def test_a_back_fill_goes_on_only_if_it_is_the_same(topic: Topic, tmp_path: Path) -> None:
    options = read_options(topic.bootstrap, topic.name)
    here = MARKER._replace(target_id=ask_target(options, topic.name).topic_id)
    job = BackfillJob(topic.name, Location(str(tmp_path)), topic.bootstrap, resumes=True)
    with pytest.raises(BackfillError, match="was begun and not ended; leave --resume out"):
        backfilling._begin(job, ask_target(options, topic.name), here)
    keep_marker(options, topic.name, here, dict.fromkeys(range(3), 0))
    target = ask_target(options, topic.name)
    assert backfilling._begin(job, target, here._replace(version=9)) == (here, dict.fromkeys(range(3), 0))
    with pytest.raises(BackfillError, match="it was begun with where 'offset >= 5', and 'offset >= 6' is asked for"):
        backfilling._begin(job, target, here._replace(where="offset >= 6"))
    with pytest.raises(BackfillError, match="--resume goes on with it"):
        backfilling._begin(job._replace(resumes=False), target, here)
    # A marker of a topic that was deleted and created again says nothing about the new one.
    again = target._replace(topic_id="another")
    assert backfilling._begin(job._replace(resumes=False), again, here)[0] == here


@settings(max_examples=25)
@given(st.text(), st.integers(0, 2**40), st.text())
def test_a_marker_is_read_as_it_was_written(lake: str, version: int, where: str) -> None:
    marker = MARKER._replace(lake=lake, version=version, where=where)
    try:
        assert read_marker(marker.encode()) == marker
    except MarkerError:
        assert len(lake) + len(where) > 300


@pytest.mark.parametrize("text", [None, "", "{}", "5", '{"barnabas": {"lake": 1}}', "first"])
def test_what_is_no_marker_is_none(text: str | None) -> None:
    assert read_marker(text) is None
