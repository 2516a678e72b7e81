"""Expired segments go by age and size, whole, from the oldest on, if committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.log.replica.retention import SegmentSpan, expired

NOW_MS = 1_000


def spans(*rows: tuple[int, ...]) -> list[SegmentSpan]:
    """Return segments of (records, bytes, largest timestamp), and perhaps when the file was written to."""
    found = []
    offset = 0
    for records, size_bytes, max_timestamp, *modified_ms in rows:
        found.append(
            SegmentSpan(
                base_offset=offset,
                end_offset=offset + records,
                size_bytes=size_bytes,
                max_timestamp=max_timestamp,
                modified_ms=modified_ms[0] if modified_ms else -1,
            )
        )
        offset += records
    return found


def start_of(
    segments: list[SegmentSpan], start: int = 0, high: int = 1 << 60, *, age: int = -1, size: int = -1
) -> int | None:
    expiry = expired(segments, start, high, NOW_MS, retention_ms=age, retention_bytes=size)
    return None if expiry is None else expiry.offset


def test_what_is_older_than_the_limit_goes_up_to_the_first_that_is_not() -> None:
    segments = spans((5, 100, 100), (5, 100, 899), (5, 100, 900), (5, 100, 100))
    assert start_of(segments, age=100) == 10
    assert start_of(segments, age=900) is None
    assert start_of(segments, age=899) == 5
    assert start_of(segments) is None


def test_a_topic_that_nobody_writes_to_ends_empty() -> None:
    assert start_of(spans((5, 100, 0), (5, 100, 1)), age=10) == 10


@pytest.mark.parametrize("lie", [-1, -(2**63), NOW_MS + 1, 2**63 - 1])
def test_where_no_timestamp_tells_the_age_the_time_of_the_file_does(lie: int) -> None:
    assert start_of(spans((5, 100, 1), (5, 100, lie, 2), (5, 100, 1)), age=10) == 15
    assert start_of(spans((5, 100, 1), (5, 100, lie, NOW_MS - 1), (5, 100, 1)), age=10) == 5
    assert start_of(spans((5, 100, 1), (5, 100, lie, -1), (5, 100, 1)), age=10) == 5, "nobody has looked"
    assert start_of(spans((5, 100, lie, NOW_MS + 5)), age=10) is None
    assert start_of(spans((5, 100, NOW_MS, 2)), age=10) is None, "a timestamp that can be true counts"


def test_control_frames_alone_keep_nothing_and_count_for_nothing() -> None:
    assert start_of(spans((5, 100, 1), (0, 70, -1), (5, 100, 1), (0, 70, -1)), age=10) == 10
    assert start_of(spans((0, 70, -1, 1)), age=10) is None


def test_a_log_is_never_made_smaller_than_its_limit() -> None:
    segments = spans((5, 100, 0), (5, 100, 0), (5, 100, 0))
    expected = {301: None, 300: None, 201: None, 200: 5, 101: 5, 100: 10, 1: 10, 0: 15}
    assert {size: start_of(segments, size=size) for size in expected} == expected


def test_what_is_below_the_start_already_counts_for_nothing() -> None:
    segments = spans((5, 100, 0), (5, 100, 0), (5, 100, 0))
    assert start_of(segments, start=7, size=100) == 10
    assert start_of(segments, start=7, size=200) is None
    assert start_of(segments, start=15, age=1) is None


def test_what_is_not_committed_stays() -> None:
    segments = spans((5, 100, 0), (5, 100, 0))
    assert start_of(segments, high=9, age=1) == 5
    assert start_of(segments, high=4, age=1) is None


def test_the_cause_says_what_went_and_why() -> None:
    expiry = expired(spans((5, 7, 0), (5, 8, 999)), 0, 10, NOW_MS, retention_ms=10, retention_bytes=0)
    assert expiry is not None
    assert expiry[:3] == (10, 2, 15)
    assert expiry.cause == "2 segments (15 bytes): 1 older than retention.ms=10, 2 beyond retention.bytes=0"
    expiry = expired(spans((5, 7, 0), (5, 8, -1, 3)), 0, 10, NOW_MS, retention_ms=10, retention_bytes=-1)
    assert expiry is not None
    assert expiry.cause == "2 segments (15 bytes): 2 older than retention.ms=10 (1 by the time of the file)"


def naive(segments: list[SegmentSpan], start: int, high: int, age: int, size: int) -> int:
    """Apply one rule after the other, each from the oldest segment on, as Kafka's log does."""
    left = [span for span in segments if span.end_offset > start]
    total = sum(span.size_bytes for span in left)
    while left and size >= 0 and total - left[0].size_bytes >= size and left[0].end_offset <= high:
        total -= left[0].size_bytes
        start = left.pop(0).end_offset
    while left and age >= 0 and left[0].end_offset <= high:
        claim = left[0].max_timestamp
        newest = left[0].modified_ms if claim < 0 or claim > NOW_MS else claim
        if newest < 0 or newest >= NOW_MS - age:
            break
        start = left.pop(0).end_offset
    return start


HUNDREDS = st.integers(-1, 12).map(lambda n: n * 100)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), HUNDREDS, HUNDREDS), max_size=6),
    st.integers(0, 18),
    st.integers(-1, 10).map(lambda n: n * 100),
    st.integers(-1, 30),
)
def test_every_log_starts_where_one_rule_after_the_other_would_let_it(
    rows: list[tuple[int, int, int, int]], high: int, age: int, size: int
) -> None:
    segments = spans(*rows)
    assert (start_of(segments, high=high, age=age, size=size) or 0) == naive(segments, 0, high, age, size)
