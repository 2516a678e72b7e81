"""A micro-batch keeps its limit exactly, in proportion, and no partition starves."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.planning.limits import backlog, cut_by_bytes, cut_by_offsets, is_delayed

Ends = dict[tuple[str, int], int]
BACKLOGS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9)),
    st.tuples(st.integers(0, 2**40), st.integers(0, 10) | st.integers(0, 2**40)),
    min_size=1,
    max_size=12,
)
WEIGHTS = st.floats(0.5, 1e6)


def both(backlogs: dict[tuple[str, int], tuple[int, int]]) -> tuple[Ends, Ends]:
    starts = {key: start for key, (start, _) in backlogs.items()}
    return starts, {key: start + size for key, (start, size) in backlogs.items()}


@given(BACKLOGS, st.integers(1, 100) | st.integers(1, 2**41))
def test_a_batch_has_as_many_offsets_as_the_limit_or_all(
    backlogs: dict[tuple[str, int], tuple[int, int]], limit: int
) -> None:
    starts, ends = both(backlogs)
    cut = cut_by_offsets(starts, ends, limit)
    assert cut.keys() == ends.keys()
    assert all(starts[key] <= cut[key] <= ends[key] for key in cut)
    assert backlog(starts, cut) == min(limit, backlog(starts, ends))


@given(BACKLOGS, st.integers(1, 2**41))
def test_shares_are_in_proportion_and_nobody_is_left_out(
    backlogs: dict[tuple[str, int], tuple[int, int]], limit: int
) -> None:
    starts, ends = both(backlogs)
    sizes = {key: size for key, (_, size) in backlogs.items() if size}
    total = sum(sizes.values())
    if not len(sizes) <= limit < total:
        return
    cut = cut_by_offsets(starts, ends, limit)
    for key, size in sizes.items():
        taken = cut[key] - starts[key]
        assert taken >= 1
        # The largest may give one offset to each of the others.
        assert abs(taken - limit * size / total) < max(1, len(sizes))


def test_partitions_take_turns_if_the_limit_is_smaller_than_their_number() -> None:
    ends = {("t", partition): 6 for partition in range(4)}
    starts = dict.fromkeys(ends, 0)
    batches = []
    while starts != ends:
        cut = cut_by_offsets(starts, ends, 2)
        batches.append([cut[key] - starts[key] for key in sorted(cut)])
        starts = cut
    assert len(batches) == 12
    assert all(sum(taken) == 2 for taken in batches)
    # In any three batches in a row everybody has its turn.
    for at in range(len(batches) - 2):
        assert all(sum(batch[partition] for batch in batches[at : at + 3]) for partition in range(4))


@given(BACKLOGS, st.integers(1, 2**40), st.data())
def test_a_batch_keeps_the_limit_of_bytes_unless_one_offset_is_larger(
    backlogs: dict[tuple[str, int], tuple[int, int]], limit_bytes: int, data: st.DataObject
) -> None:
    starts, ends = both(backlogs)
    weights = {key: data.draw(WEIGHTS) for key in backlogs}
    cut = cut_by_bytes(starts, ends, limit_bytes, weights)
    assert all(starts[key] <= cut[key] <= ends[key] for key in ends)
    taken = backlog(starts, cut)
    size_bytes = sum((cut[key] - starts[key]) * max(1.0, weights[key]) for key in cut)
    assert cut == ends or taken == 1 or size_bytes <= limit_bytes * (1 + 1e-9)
    assert taken >= min(1, backlog(starts, ends))


def test_a_partition_of_unknown_size_is_taken_for_a_usual_one() -> None:
    ends = {("t", 0): 100, ("t", 1): 100}
    starts = dict.fromkeys(ends, 0)
    assert cut_by_bytes(starts, ends, 1000, {("t", 0): 10.0}) == {("t", 0): 50, ("t", 1): 50}


@pytest.mark.parametrize("cut", [cut_by_offsets, lambda starts, ends, limit: cut_by_bytes(starts, ends, limit, {})])
def test_everything_is_read_in_the_end(cut: Callable[[Ends, Ends, int], Ends]) -> None:
    ends = {("t", 0): 100_000, ("t", 1): 7, ("u", 0): 3}
    starts = {("t", 0): 99_000, ("t", 1): 0, ("u", 0): 3}
    for _ in range(10_000):
        if starts == ends:
            break
        starts = cut(starts, ends, 3_000)
    assert starts == ends


@pytest.mark.parametrize(
    ("available", "wanted", "waited_ms", "expected"),
    [(9, None, 0, False), (9, 10, 0, True), (10, 10, 0, False), (9, 10, 999, True), (9, 10, 1000, False)],
)
def test_a_batch_waits_for_enough_but_not_for_ever(
    available: int, wanted: int | None, waited_ms: int, expected: bool
) -> None:
    assert is_delayed(available, wanted, waited_ms, 1000) is expected
