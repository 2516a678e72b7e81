"""The way of a group between any members: allowed steps, no danger, and an end."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas_metadata_quorum.voters.steps import Desired, is_reached, next_step, waits_for
from barnabas_raftlog.raft.membership import Configuration, Member, check_change, configuration_of

NODES = range(9)


def disk(node_id: int, number: int = 0) -> bytes:
    return bytes([number + 1, node_id]) * 8


DISKS = {node_id: disk(node_id) for node_id in NODES}


def group(*voters: int, learners: Collection[int] = (), witness: int | None = None) -> Configuration:
    return Configuration(
        tuple(Member(node_id, disk(node_id)) for node_id in sorted(voters)),
        tuple(Member(node_id, disk(node_id)) for node_id in sorted(learners)),
        () if witness is None else (witness,),
    )


def ids(configuration: Configuration) -> tuple[list[int], list[int]]:
    return sorted(configuration.voter_ids), sorted(configuration.learner_ids)


class Way(NamedTuple):
    """Every configuration, from the first to the one that nothing followed."""

    steps: list[Configuration]

    @property
    def voter_counts(self) -> list[int]:
        return [len(one.voters) for one in self.steps]


def walk(
    start: Configuration,
    desired: Desired,
    directories: Mapping[int, bytes] = DISKS,
    live: Collection[int] = NODES,
    *,
    lag: int = 0,
    leads: Callable[[list[int]], int] = min,
) -> Way:
    """Carry out step after step; all catch up after `lag` more questions. `leads` chooses among those who can."""
    way = [start]
    asked = 0
    while True:
        current = way[-1]
        able = [node_id for node_id in sorted(current.voter_ids & set(live)) if node_id not in current.witnesses]
        assert able, "nobody could lead this group"
        caught_up = current.node_ids & set(live) if asked >= lag else frozenset[int]()
        step = next_step(current, desired, directories, caught_up, live, leads(able))
        asked += 1
        if step is None:
            if asked <= lag:
                continue
            return Way(way)
        check_change(current, step)
        assert step.learner_ids.isdisjoint(current.witnesses), "who was a witness must hear first that it is none"
        assert 2 * len(step.voter_ids & set(live)) > len(step.voters), "the group stopped by its own hand"
        way.append(step)
        asked = 0
        assert len(way) < 40, "it goes in circles"


def test_three_move_to_three_others_with_three_or_four_voters_all_the_way() -> None:
    way = walk(group(1, 2, 3), Desired((4, 5, 6)))
    assert [ids(one) for one in way.steps] == [
        ([1, 2, 3], []),
        ([1, 2, 3], [4, 5, 6]),
        ([1, 2, 3, 4], [5, 6]),
        ([1, 3, 4], [5, 6]),
        ([1, 3, 4, 5], [6]),
        ([1, 4, 5], [6]),
        ([1, 4, 5, 6], []),
        ([4, 5, 6], []),
    ]


def test_nobody_goes_before_somebody_has_come() -> None:
    current = group(1, 2, 3, learners=[4, 5, 6])
    desired = Desired((4, 5, 6))
    assert next_step(current, desired, DISKS, {}, NODES, 1) is None
    assert waits_for(current, desired, DISKS, {5}, NODES, 1) == ""
    assert waits_for(current, desired, DISKS, {}, {1, 2, 3, 4, 5}, 1) == (
        "brokers [4, 5] are catching up; brokers [6] cannot be reached"
    )


def test_a_learner_that_cannot_be_reached_does_not_become_a_voter() -> None:
    assert next_step(group(1, 2, 3, learners=[4]), Desired((1, 2, 4)), DISKS, {4}, {1, 2, 3}, 1) is None


def test_who_is_dead_goes_first_and_the_leader_last() -> None:
    current = group(1, 2, 3, 4, learners=[5, 6])
    step = next_step(current, Desired((4, 5, 6)), DISKS, {}, {1, 2, 4, 5, 6}, 1)
    assert step is not None
    assert ids(step) == ([1, 2, 4], [5, 6])
    assert next_step(group(1, 2, 3, 4), Desired((2, 3, 4)), DISKS, {}, NODES, 1) == group(2, 3, 4)


def test_no_live_voter_goes_while_the_rest_would_be_no_majority() -> None:
    current = group(1, 2, 3, 4, 5)
    desired = Desired((2, 3, 4))
    live = {1, 3, 5}  # 2 and 4 stay members, and are dead.
    assert next_step(current, desired, DISKS, {}, live, 1) is None
    assert waits_for(current, desired, DISKS, {}, live, 1) == (
        "no majority would be left: voters [2, 4] cannot be reached"
    )


def test_a_lost_disk_is_removed_before_its_successor_comes_under_the_same_node_id() -> None:
    directories = {**DISKS, 3: disk(3, 1)}
    way = walk(group(1, 2, 3), Desired((1, 2, 3)), directories)
    successor = Member(3, disk(3, 1))
    two = Configuration(group(1, 2).voters, (successor,))
    assert way.steps == [group(1, 2, 3), two, Configuration((*group(1, 2).voters, successor))]


def test_a_lost_disk_of_a_learner_is_replaced_at_once() -> None:
    directories = {**DISKS, 4: disk(4, 1)}
    step = next_step(group(1, 2, 3, learners=[4]), Desired((1, 2, 3), (4,)), directories, {4}, NODES, 1)
    assert step == Configuration(group(1, 2, 3).voters, (Member(4, disk(4, 1)),))


def test_an_unknown_disk_is_taken_for_the_one_that_is_there() -> None:
    old = configuration_of(frozenset({1, 2, 3}))
    assert is_reached(old, Desired((1, 2, 3)), DISKS)
    assert next_step(old, Desired((1, 2, 3)), DISKS, {}, NODES, 1) is None


def test_observers_come_and_go_without_touching_the_voters() -> None:
    way = walk(group(1, 2, 3), Desired((1, 2, 3), (4, 5)))
    assert way.steps == [group(1, 2, 3), group(1, 2, 3, learners=[4, 5])]
    assert is_reached(way.steps[-1], Desired((1, 2, 3), (4, 5)), DISKS)
    assert walk(way.steps[-1], Desired((1, 2, 3), (5,))).steps[-1] == group(1, 2, 3, learners=[5])


def test_a_voter_that_is_to_observe_becomes_a_learner_when_its_successor_votes() -> None:
    way = walk(group(1, 2, 3), Desired((1, 2, 4), (3,)))
    assert [ids(one) for one in way.steps[1:]] == [([1, 2, 3], [4]), ([1, 2, 3, 4], []), ([1, 2, 4], [3])]


def test_a_group_that_grows_has_never_fewer_and_one_that_shrinks_never_more() -> None:
    assert min(walk(group(1, 2, 3), Desired((4, 5, 6, 7, 8))).voter_counts) == 3
    assert max(walk(group(1, 2, 3, 4, 5), Desired((6, 7, 8))).voter_counts) == 5
    assert walk(group(1), Desired((2,))).voter_counts == [1, 1, 2, 1]


def test_a_cancelled_move_goes_back_from_wherever_it_was() -> None:
    for halfway in walk(group(1, 2, 3), Desired((4, 5, 6))).steps:
        assert walk(halfway, Desired((1, 2, 3))).steps[-1] == group(1, 2, 3)


def test_a_witness_is_replaced_like_a_voter_and_keeps_its_role() -> None:
    way = walk(group(1, 2, 3, witness=3), Desired((4, 5, 6), witness=6))
    assert way.steps[-1] == group(4, 5, 6, witness=6)
    assert min(way.voter_counts) == 3


def test_a_witness_that_becomes_a_replica_goes_and_comes_back() -> None:
    way = walk(group(1, 2, 3, witness=3), Desired((1, 2, 3)))
    assert [ids(one) for one in way.steps[1:]] == [([1, 2], []), ([1, 2], [3]), ([1, 2, 3], [])]
    assert way.steps[-1] == group(1, 2, 3)


def test_a_new_witness_comes_last_and_is_no_learner() -> None:
    way = walk(group(1, 2), Desired((1, 2, 3), witness=3))
    assert way.steps == [group(1, 2), group(1, 2, 3, witness=3)]
    way = walk(group(1, 2, 3, witness=3), Desired((4, 5, 6), witness=6))
    assert [(*ids(one), one.witnesses) for one in way.steps] == [
        ([1, 2, 3], [], (3,)),
        ([1, 2, 3], [4, 5], (3,)),
        ([1, 2, 3, 4], [5], (3,)),
        ([1, 2, 4], [5], ()),
        ([1, 2, 4, 5], [], ()),
        ([1, 4, 5], [], ()),
        ([1, 4, 5, 6], [], (6,)),
        ([4, 5, 6], [], (6,)),
    ]


def test_a_new_witness_learns_first_what_a_replica_that_is_away_or_behind_lacks() -> None:
    alone = group(1, 2, 3, witness=3)
    desired = Desired((1, 2, 4), witness=4)
    learning = group(1, 2, 3, learners=[4], witness=3)
    both = Configuration(group(1, 2, 3, 4).voters, witnesses=(3, 4))
    assert next_step(alone, desired, DISKS, {2, 3}, NODES, 1) == both
    for caught_up, live in (({2, 3}, {1, 3, 4}), ({3}, {1, 2, 3, 4})):
        assert next_step(alone, desired, DISKS, caught_up, live, 1) == learning
        assert next_step(learning, desired, DISKS, caught_up, live, 1) is None
        assert waits_for(learning, desired, DISKS, caught_up, live, 1) == "brokers [4] are catching up"
    assert waits_for(group(1, 2), Desired((1, 2, 4), witness=4), DISKS, {2}, {1, 2}, 1) == (
        "brokers [4] cannot be reached"
    )
    behind = group(1, 2, learners=[5])
    assert waits_for(behind, Desired((1, 5, 4), witness=4), DISKS, {2}, NODES, 1) == "brokers [5] are catching up"


def test_replica_and_witness_change_places_one_after_the_other() -> None:
    way = walk(group(1, 2, 3, witness=3), Desired((1, 3, 2), witness=2))
    assert way.steps[-1] == group(1, 2, 3, witness=2)
    assert min(way.voter_counts) == 2


node_sets = st.sets(st.sampled_from(NODES), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(node_sets, node_sets, st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES)), st.integers(0, 2))
def test_from_anywhere_it_gets_everywhere(
    old: set[int], new: set[int], learners: set[int], observers: set[int], lag: int
) -> None:
    start = group(*old, learners=learners - old)
    desired = Desired(tuple(sorted(new)), tuple(sorted(observers - new)))
    way = walk(start, desired, lag=lag)
    assert is_reached(way.steps[-1], desired, DISKS)
    assert way.steps[-1] == group(*new, learners=observers - new)
    assert min(way.voter_counts) >= min(len(old), len(new))
    assert max(way.voter_counts) <= max(len(old), len(new) + 1)
    assert len(way.steps) <= 2 + len(old - new) + len(new - old), "a detour"


@settings(max_examples=200, deadline=None)
@given(node_sets, node_sets, st.sets(st.sampled_from(NODES), max_size=2), st.sets(st.sampled_from(NODES), max_size=2))
def test_with_dead_nodes_and_lost_disks_it_goes_as_far_as_it_can_and_ends_when_all_are_back(
    old: set[int], new: set[int], dead: set[int], lost: set[int]
) -> None:
    live = set(NODES) - dead
    # A lost disk is known because its node is back with another one; until then nobody can count on it.
    assume(2 * len(old - dead - lost) > len(old))
    directories = {node_id: disk(node_id, node_id in lost) for node_id in NODES}
    desired = Desired(tuple(sorted(new)))
    there = walk(group(*old), desired, directories, live).steps[-1]
    for voter in there.voters:
        assert voter.directory_id == directories[voter.node_id]
    if not is_reached(there, desired, directories):
        able = min(there.voter_ids & live)
        assert waits_for(there, desired, directories, there.learner_ids, live, able)
    end = walk(there, desired, directories).steps[-1]
    assert is_reached(end, desired, directories)
    assert end.voters == tuple(Member(node_id, directories[node_id]) for node_id in sorted(new))


@settings(max_examples=100, deadline=None)
@given(st.permutations(NODES), st.permutations(NODES), st.sampled_from([min, max]))
def test_two_replicas_and_a_witness_get_anywhere_and_always_have_a_majority_that_keeps_the_log(
    old: list[int], new: list[int], leads: Callable[[list[int]], int]
) -> None:
    start = group(*old[:3], witness=old[2])
    way = walk(start, Desired(tuple(new[:3]), witness=new[2]), leads=leads)
    assert way.steps[-1] == group(*new[:3], witness=new[2])
    assert min(way.voter_counts) >= 2
    assert min(len(step.full_voter_ids) for step in way.steps) >= 2, "one replica alone has what was acknowledged"
