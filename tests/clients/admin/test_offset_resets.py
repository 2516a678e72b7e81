"""Resets of a group's positions lead to the planned offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_clients.admin.offset_resets import OffsetChange, ResetTo, planned
from barnabas_clients.topic_partition import TopicPartition

KEY = TopicPartition("t", 0)
OFFSETS = st.integers(0, 60)
TARGETS = (
    st.sampled_from([ResetTo.earliest(), ResetTo.latest()])
    | OFFSETS.map(ResetTo.offset)
    | st.integers(-60, 60).map(ResetTo.shift)
    | OFFSETS.map(ResetTo.time)
    | OFFSETS.map(ResetTo.ago)
)


@given(TARGETS, OFFSETS, OFFSETS, OFFSETS, OFFSETS)
def test_a_plan_is_what_reading_the_log_would_find(
    target: ResetTo, start: int, count: int, committed: int, now_ms: int
) -> None:
    """The log holds the offsets [start, start + count), each with its offset for a timestamp."""
    log = range(start, start + count)
    at_ms = target.timestamp_ms(now_ms)
    at_time = {} if at_ms is None else {KEY: next((offset for offset in log if offset >= at_ms), -1)}
    plan = planned(target, {KEY: (log.start, log.stop)}, {KEY: committed}, at_time)
    candidates = [*log, log.stop]
    match target.kind.value:
        case "earliest":
            expected = candidates[0]
        case "latest":
            expected = candidates[-1]
        case "time" | "ago":
            wanted = target.value if target.kind.value == "time" else max(0, now_ms - target.value)
            expected = next((offset for offset in log if offset >= wanted), candidates[-1])
        case kind:
            wanted = target.value if kind == "offset" else committed + target.value
            expected = min(candidates, key=lambda offset: abs(offset - wanted))
    assert plan == {KEY: OffsetChange(committed, expected)}


def test_a_shift_needs_something_committed() -> None:
    with pytest.raises(ValueError, match="t-0 cannot be shifted"):
        planned(ResetTo.shift(1), {KEY: (0, 5)}, {}, {})
    assert planned(ResetTo.latest(), {KEY: (0, 5)}, {}, {}) == {KEY: OffsetChange(None, 5)}


@pytest.mark.parametrize("make", [ResetTo.offset, ResetTo.time, ResetTo.ago])
def test_targets_are_not_negative(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="-1"):
        make(-1)
