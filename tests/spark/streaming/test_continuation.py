"""A stream goes on where it was, and says so if it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.options.streams import StreamOptions, parse_stream_options
from barnabas_spark.planning.plan import DataLossError
from barnabas_spark.streaming.continuation import (
    Continuation,
    Heads,
    TopicRecreatedError,
    continued,
    doubts,
    merged,
    unread,
)
from barnabas_spark.streaming.offsets import NOWHERE, Offsets

A, B = bytes([1] * 16), bytes([2] * 16)


def options(**given: str) -> StreamOptions:
    return parse_stream_options(
        {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "startingOffsets": "earliest"} | given
    )


def heads(*ends: int, topic_id: bytes = A) -> Heads:
    return Heads({("t", partition): end for partition, end in enumerate(ends)}, {"t": topic_id})


def offsets(*positions: int, topic_id: bytes = A) -> Offsets:
    return Offsets({("t", partition): at for partition, at in enumerate(positions)}, {"t": topic_id})


def go_on(start: Offsets, now: Heads, begins: int = 0, **given: str) -> Continuation:
    return continued(start, now, dict.fromkeys(unread(start, now), begins), options(**given))


def starts(*positions: int) -> dict[tuple[str, int], int]:
    return {("t", partition): at for partition, at in enumerate(positions)}


def test_nothing_new_changes_nothing() -> None:
    assert go_on(offsets(3, 5), heads(3, 5)) == Continuation(starts(3, 5), ())
    assert not doubts(offsets(3, 5), heads(3, 7))


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert go_on(offsets(3), heads(9, 5)).starts == starts(3, 0)


def test_lost_records_of_a_new_partition_are_told() -> None:
    with pytest.raises(DataLossError, match="t-1 is new to the stream, and its offsets 0 to 4 are gone"):
        go_on(offsets(3), heads(9, 5), begins=4)
    found = go_on(offsets(3), heads(9, 5), begins=4, failOnDataLoss="false")
    assert found.starts == starts(3, 4)
    assert "goes on without" in found.warnings[0]


@pytest.mark.parametrize("end", [2, 100])
def test_a_topic_created_again_is_never_taken_for_the_old_one(end: int) -> None:
    again = heads(end, topic_id=B)
    assert doubts(offsets(10), again)
    for fail in ("true", "false"):
        with pytest.raises(TopicRecreatedError, match="onTopicRecreated"):
            go_on(offsets(10), again, failOnDataLoss=fail)
    found = go_on(offsets(10), again, onTopicRecreated="restart")
    assert found.starts == starts(0)
    assert "created again" in found.warnings[0]


def test_a_topic_without_an_id_is_taken_for_the_same() -> None:
    start = offsets(10)._replace(topic_ids={})
    assert go_on(start, heads(12)).starts == starts(10)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Heads({}, {}), "topic t was deleted"),
        (heads(3), "t-1 does not exist"),
        (heads(3, 4), "t-1 was read up to 5, and now the log ends at 4"),
    ],
)
def test_what_is_gone_is_an_error_or_left_out(now: Heads, words: str) -> None:
    assert doubts(offsets(3, 5), now)
    with pytest.raises(DataLossError, match=words):
        go_on(offsets(3, 5), now)
    found = go_on(offsets(3, 5), now, failOnDataLoss="false")
    assert found.starts == dict(now.ends)
    assert words in found.warnings[0]


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1))
def test_an_end_never_goes_back(looks: list[list[int]]) -> None:
    known = heads()
    for look in looks:
        now = merged(known, heads(*look))
        assert all(now.ends[key] >= end for key, end in known.ends.items())
        assert all(now.ends[key] == max(known.ends.get(key, 0), end) for key, end in heads(*look).ends.items())
        known = now


def test_the_end_of_another_topic_is_its_own() -> None:
    assert merged(heads(50), heads(2, topic_id=B)) == heads(2, topic_id=B)


def test_a_stream_that_is_nowhere_has_read_nothing() -> None:
    assert unread(NOWHERE, heads(3, 4)) == {("t", 0), ("t", 1)}
    assert not doubts(NOWHERE, heads(3, 4))
