"""A range is committed where the table ends, or where it has nothing, and nowhere else."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.lake.ranges import (
    CommittedRange,
    NotNextError,
    PartitionKey,
    Purpose,
    Span,
    after,
    check_next,
    gaps,
)

KEY = PartitionKey("cluster", "8a2b", 3)


def proposed(start: int, end: int, key: PartitionKey = KEY) -> CommittedRange:
    return CommittedRange(key, start, end, 5, "read_uncommitted", end - start, 0, "orders")


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_first_range_may_begin_anywhere(purpose: Purpose) -> None:
    check_next({}, [proposed(70, 90)], purpose)


@pytest.mark.parametrize("start", [0, 89, 91])
@pytest.mark.parametrize("purpose", [Purpose.ARCHIVE, Purpose.GAP])
def test_an_archive_goes_on_where_the_table_ends(start: int, purpose: Purpose) -> None:
    stored = {KEY: [Span(70, 90)]}
    check_next(stored, [proposed(90, 95)], purpose)
    with pytest.raises(NotNextError, match=r"orders-3: \[\d+, 120\) was not committed: the table ends at 90"):
        check_next(stored, [proposed(start, 120)], purpose)


@pytest.mark.parametrize(("start", "end"), [(60, 71), (70, 90), (75, 80), (89, 100), (60, 100)])
def test_a_back_fill_overlaps_nothing(start: int, end: int) -> None:
    stored = {KEY: [Span(70, 90)]}
    check_next(stored, [proposed(60, 70)], Purpose.BACKFILL)
    check_next(stored, [proposed(90, 91)], Purpose.BACKFILL)
    with pytest.raises(NotNextError, match=r"the table has \[70, 90\)"):
        check_next(stored, [proposed(start, end)], Purpose.BACKFILL)


def test_nothing_is_committed_twice_in_one_commit_nor_without_offsets() -> None:
    with pytest.raises(NotNextError, match="another range"):
        check_next({}, [proposed(0, 1), proposed(1, 2)], Purpose.ARCHIVE)
    with pytest.raises(NotNextError, match="empty"):
        check_next({}, [proposed(4, 4)], Purpose.ARCHIVE)
    check_next({}, [proposed(0, 1), proposed(0, 1, KEY._replace(topic_id="made anew"))], Purpose.ARCHIVE)


@given(st.sets(st.integers(0, 30), max_size=20))
def test_spans_and_gaps_share_all_offsets(offsets: set[int]) -> None:
    spans: list[Span] = []
    for offset in sorted(offsets, key=lambda one: (one % 3, one)):
        check_next({KEY: spans}, [proposed(offset, offset + 1)], Purpose.BACKFILL)
        spans = after(spans, offset, offset + 1, offset)
    assert {offset for one in spans for offset in range(one.start_offset, one.end_offset)} == offsets
    assert all(one.end_offset < other.start_offset for one, other in pairwise(spans))
    holes = {offset for one in gaps(spans) for offset in range(one.start_offset, one.end_offset)}
    assert holes == (set(range(min(offsets), max(offsets))) - offsets if offsets else set())
    assert [one.leader_epoch for one in spans] == [one.end_offset - 1 for one in spans]
