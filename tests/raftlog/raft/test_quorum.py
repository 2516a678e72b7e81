"""The commit rule against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.raft.quorum import committable_index, majority, majority_value

INDEXES = st.lists(st.integers(0, 9), min_size=1, max_size=7)


@given(st.integers(1, 20))
def test_two_majorities_always_meet(voter_count: int) -> None:
    assert 2 * majority(voter_count) > voter_count
    assert 2 * (majority(voter_count) - 1) <= voter_count  # The smallest such number.


@given(INDEXES)
def test_majority_value_is_the_highest_that_a_majority_reaches(values: list[int]) -> None:
    needed = len(values) // 2 + 1
    reached = [value for value in values if sum(other >= value for other in values) >= needed]
    assert majority_value(list(values)) == max(reached)


@given(INDEXES, st.integers(0, 9), st.integers(1, 9))
def test_only_own_terms_are_committed_by_counting(values: list[int], commit_index: int, start_index: int) -> None:
    index = committable_index(list(values), commit_index, start_index)
    assert index >= commit_index
    if index != commit_index:
        assert index >= start_index
        assert sum(value >= index for value in values) * 2 > len(values)
