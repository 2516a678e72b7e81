"""Ranges of a named snapshot: what is packed comes back, and what is impossible is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import outcome

from barnabas_metadata_quorum.image.pinned_ranges import (
    RANGE_BYTES,
    PinnedRange,
    count_of,
    packed,
    partitions_in,
    unpacked,
)

offsets = st.integers(0, 2**63 - 1)
one_range = st.builds(
    lambda partition, epoch, ends: PinnedRange(partition, epoch, min(ends), max(ends)),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    st.tuples(offsets, offsets),
)


@given(st.lists(one_range, min_size=1, max_size=300, unique_by=lambda one: one.partition))
def test_ranges_come_back_in_the_order_of_partitions(ranges: list[PinnedRange]) -> None:
    data, _ = outcome(packed(ranges))
    assert list(unpacked(data)) == sorted(ranges)
    assert count_of(data) == len(ranges) == len(data) // RANGE_BYTES
    assert partitions_in(data) == (min(ranges).partition, max(ranges).partition)


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ([(0, 1, 2, 3), (0, 1, 2, 3)], "partition 0 is named twice"),
        ([(-1, 1, 2, 3)], "are not a range"),
        ([(0, -2, 2, 3)], "are not a range"),
        ([(0, 1, -1, 3)], "are not a range"),
        ([(0, 1, 4, 3)], "offsets 4 to 3"),
    ],
)
def test_impossible_ranges_are_refused(ranges: list[tuple[int, int, int, int]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        outcome(packed(PinnedRange(*one) for one in ranges))


def test_ten_thousand_ranges_are_packed_in_small_pieces() -> None:
    steps = packed(PinnedRange(number, 0, 0, 1) for number in range(10_000))
    assert outcome(steps)[1] > 40
