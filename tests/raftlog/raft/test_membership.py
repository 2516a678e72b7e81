"""Configurations: their bytes, the changes that are allowed, and which one holds where."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.raft.membership import (
    NOBODY,
    UNKNOWN_DIRECTORY,
    Configuration,
    ConfigurationHistory,
    Member,
    check_change,
    configuration_of,
    same_directory,
)
from barnabas_raftlog.raft.quorum import majority


def directory(number: int) -> bytes:
    return number.to_bytes(16, "big")


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    nodes = draw(st.sets(st.integers(1, 6), min_size=1, max_size=5))
    voters = draw(st.sets(st.sampled_from(sorted(nodes)), min_size=1))
    witnesses = draw(st.sets(st.sampled_from(sorted(voters)), max_size=len(voters) - 1)) if len(voters) > 1 else set()
    members = {node: Member(node, directory(draw(st.integers(0, 2)))) for node in sorted(nodes)}
    return Configuration(
        tuple(members[node] for node in sorted(voters)),
        tuple(members[node] for node in sorted(nodes - voters)),
        tuple(sorted(witnesses)),
    )


@settings(deadline=None, max_examples=200)
@given(configurations())
def test_a_configuration_comes_back_as_it_was_written(configuration: Configuration) -> None:
    assert Configuration.decode(configuration.encode()) == configuration


def test_the_bytes_are_as_documented() -> None:
    configuration = Configuration((Member(1, directory(9)), Member(3)), (Member(2, directory(8)),), (3,))
    assert configuration.encode() == (
        b"\x01\x00\x03"
        + (b"\x00\x00\x00\x01\x01" + directory(9))
        + (b"\x00\x00\x00\x02\x00" + directory(8))
        + (b"\x00\x00\x00\x03\x02" + bytes(16))
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02\x00\x00",
        b"\x01\x00\x01",
        b"\x01\x00\x01\x00\x00\x00\x01\x03" + bytes(16),
        b"\x01\x00\x01\x00\x00\x00\x01\x02" + bytes(16),
        b"\x01\x00\x01\x00\x00\x00\x01\x00" + bytes(16),
        b"\x01\x00\x02" + 2 * (b"\x00\x00\x00\x01\x01" + bytes(16)),
        b"\x01\x00\x01\xff\xff\xff\xff\x01" + bytes(16),
    ],
)
def test_bytes_that_contradict_themselves_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Configuration.decode(body)


def test_members_are_sorted_and_nobody_is_a_member_twice() -> None:
    for voters, learners in (((2, 1), ()), ((1, 1), ()), ((1, 2), (2,))):
        with pytest.raises(ValueError, match=r"sorted|twice"):
            Configuration(tuple(map(Member, voters)), tuple(map(Member, learners)))


def test_a_node_with_another_directory_is_another_voter() -> None:
    configuration = Configuration((Member(1, directory(5)), Member(2)))
    assert configuration.has_voter(Member(1, directory(5)))
    assert not configuration.has_voter(Member(1, directory(6)))
    assert configuration.has_voter(Member(1)), "an unknown directory may be any"
    assert configuration.has_voter(Member(2, directory(6)))
    assert not configuration.has_voter(Member(3, directory(5)))
    assert same_directory(UNKNOWN_DIRECTORY, directory(1))
    assert not same_directory(directory(2), directory(1))


@settings(deadline=None, max_examples=300)
@given(configurations(), configurations())
def test_an_allowed_change_keeps_every_two_majorities_overlapping(old: Configuration, new: Configuration) -> None:
    """Naively: try all majorities of both. A member whose unknown directory is filled in stays the same member."""
    unknown = {member.node_id for member in old.voters if member.directory_id == UNKNOWN_DIRECTORY}

    def same(members: tuple[Member, ...]) -> set[Member]:
        return {Member(member.node_id) if member.node_id in unknown else member for member in members}

    overlapping = all(
        same(one) & same(other)
        for one in combinations(old.voters, majority(len(old.voters)))
        for other in combinations(new.voters, majority(len(new.voters)))
    )
    try:
        check_change(old, new)
    except ValueError:
        return
    assert overlapping


def test_one_voter_at_a_time() -> None:
    old = configuration_of(frozenset({1, 2, 3}), frozenset({4}))
    for voters, learners in (
        ({1, 2, 3}, {4, 5, 6}),  # learners come and go freely
        ({1, 2, 3}, set[int]()),
        ({1, 2, 3, 4}, set[int]()),  # promoted
        ({1, 2}, {3, 4}),  # demoted
        ({1, 2}, {4}),
        ({1, 2, 3, 9}, {4}),
    ):
        check_change(old, configuration_of(frozenset(voters), frozenset(learners)))
    for voters, learners in (({1, 2, 4}, set[int]()), ({1}, set[int]()), ({1, 2, 3, 4, 5}, set[int]())):
        with pytest.raises(ValueError, match="one voter at a time"):
            check_change(old, configuration_of(frozenset(voters), frozenset(learners)))
    with pytest.raises(ValueError, match="needs a voter"):
        check_change(configuration_of(frozenset({1})), NOBODY)


def test_a_replaced_directory_is_a_removal_and_later_an_addition() -> None:
    old = Configuration((Member(1, directory(1)), Member(2, directory(2))))
    new = Configuration((Member(1, directory(1)), Member(2, directory(3))))
    with pytest.raises(ValueError, match="one voter at a time"):
        check_change(old, new)
    between = Configuration(old.voters[:1], (Member(2, directory(3)),))
    check_change(old, between)
    check_change(between, new)


def test_a_witness_stays_one_until_it_leaves() -> None:
    old = Configuration((Member(1), Member(2), Member(3)), (), (3,))
    with pytest.raises(ValueError, match="from witness to voter"):
        check_change(old, Configuration(old.voters))
    check_change(old, Configuration(old.voters[:2]))
    check_change(Configuration(old.voters[:2]), old)


class NaiveHistory:
    """A configuration or None for every index from `start` on."""

    def __init__(self) -> None:
        self.start = 0
        self.rows = [configuration_of(frozenset({1}))]

    def at(self, index: int) -> Configuration:
        return self.rows[index - self.start]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["entry", "change", "truncate", "drop", "restart"]), st.integers(0, 8))))
def test_the_history_says_what_a_list_of_everything_says(steps: list[tuple[str, int]]) -> None:
    naive = NaiveHistory()
    history = ConfigurationHistory()
    history.assign(0, naive.rows[0])
    for number, (step, size) in enumerate(steps):
        last_index = naive.start + len(naive.rows) - 1
        fresh = configuration_of(frozenset({1, 2 + number}))
        if step == "entry":
            naive.rows.append(naive.rows[-1])
        elif step == "change":
            naive.rows.append(fresh)
            history.assign(last_index + 1, fresh)
        elif step == "truncate" and size:
            del naive.rows[max(1, len(naive.rows) - size) :]
            history.truncate_from(naive.start + len(naive.rows))
        elif step == "drop":
            dropped = min(size, len(naive.rows) - 1)
            naive.start += dropped
            del naive.rows[:dropped]
            history.drop_prefix(naive.start)
        elif step == "restart":
            naive.start = last_index + size
            naive.rows = [fresh]
            history.restart(last_index + size, fresh)
        history = ConfigurationHistory.from_rows(history.rows())
        last_index = naive.start + len(naive.rows) - 1
        assert history.newest == history.at(last_index) == naive.at(last_index)
        assert history.newest == history.at(history.newest_index)
        for index in range(naive.start, last_index + 1):
            assert history.at(index) == naive.at(index)


def test_a_log_without_a_configuration_belongs_to_nobody() -> None:
    history = ConfigurationHistory()
    assert (history.newest, history.newest_index, history.at(7)) == (NOBODY, 0, NOBODY)
    history.assign(4, configuration_of(frozenset({1})))
    assert history.at(3) == NOBODY
    history.truncate_from(4)
    assert (history.newest, history.newest_index) == (NOBODY, 0)
