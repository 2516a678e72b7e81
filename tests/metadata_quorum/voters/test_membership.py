"""Pure steps lead from the members of the metadata group to the configured ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_metadata_quorum.voters.membership import Membership, founders, next_change, waits
from barnabas_raftlog.raft.membership import UNKNOWN_DIRECTORY, Configuration, Member, check_change

ALL = (1, 2, 3, 4, 5)


def directory(node_id: int, life: int = 1) -> bytes:
    return bytes([node_id, life]) * 8


def member(node_id: int, life: int = 1) -> Member:
    return Member(node_id, directory(node_id, life))


def membership(*voters: int, learners: tuple[int, ...] = ()) -> Membership:
    return Membership(voters[0], "c", frozenset(voters), frozenset(learners))


def walk(current: Configuration, me: Membership, directories: dict[int, bytes]) -> list[Configuration]:
    """Return each configuration on the way, while everybody is live and catches up at once."""
    way: list[Configuration] = []
    everybody = current.node_ids | me.voters | me.learners
    while (change := next_change(current, me, directories, current.node_ids, everybody)) is not None:
        check_change(current, change)
        current = change
        way.append(change)
        assert len(way) <= 20
    return way


def test_founders_are_known_by_their_directories_and_learners_where_they_are_known() -> None:
    group = founders(membership(1, 2, learners=(3, 4)), {1: directory(1), 2: directory(2), 4: directory(4)})
    assert group == Configuration((member(1), member(2)), (Member(3), member(4)))


def test_another_disk_is_removed_then_learns_and_then_votes() -> None:
    now = {node_id: directory(node_id) for node_id in (1, 2)} | {3: directory(3, 2)}
    way = walk(Configuration((member(1), member(2), member(3))), membership(1, 2, 3), now)
    assert [(sorted(one.voter_ids), sorted(one.learner_ids)) for one in way] == [
        ([1, 2], [3]),
        ([1, 2, 3], []),
    ]
    assert way[-1].voters == (member(1), member(2), member(3, 2))


def test_a_voter_whose_directory_is_unknown_is_identified_when_all_are_in_place_one_at_a_time() -> None:
    current = Configuration((Member(1), Member(2), Member(3)))
    now = {node_id: directory(node_id) for node_id in (1, 2, 3)}
    assert next_change(current, membership(1, 2, 3), now, {1, 2}, {1, 2, 3}) is None
    assert next_change(current, membership(1, 2, 3), now, {1, 2, 3}, {1, 2}) is None
    way = walk(current, membership(1, 2, 3), now)
    assert [sum(one.directory_id != UNKNOWN_DIRECTORY for one in step.voters) for step in way] == [1, 2, 3]


def test_nobody_is_promoted_whose_directory_is_unknown() -> None:
    current = Configuration((member(1), member(2)), (Member(3),))
    assert next_change(current, membership(1, 2, 3), {}, {1, 2, 3}, {1, 2, 3}) is None
    assert waits(current, membership(1, 2, 3), {}, {1, 2, 3}, {1, 2, 3}) == "brokers [3] are catching up"


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_from_anywhere_it_walks_to_what_is_configured_with_known_directories(data: st.DataObject) -> None:
    lives = st.sampled_from([0, 1, 2])
    voters = data.draw(st.lists(st.sampled_from(ALL), min_size=1, unique=True))
    learners = data.draw(st.lists(st.sampled_from(sorted(set(ALL) - set(voters)) or [9]), unique=True))
    rows = {node_id: data.draw(lives) for node_id in {*voters, *learners}}
    leader_id = data.draw(st.sampled_from(voters))

    def known(node_ids: list[int]) -> tuple[Member, ...]:
        return tuple(member(n, rows[n]) if rows[n] else Member(n) for n in sorted(node_ids))

    now = {node_id: directory(node_id, data.draw(st.sampled_from([1, 2]))) for node_id in (*ALL, 9)}
    if rows[leader_id]:
        now[leader_id] = directory(leader_id, rows[leader_id])
    wanted = set(data.draw(st.lists(st.sampled_from(ALL), min_size=1, unique=True))) | {leader_id}
    others = frozenset(set(ALL) - wanted)
    me = Membership(leader_id, "c", frozenset(wanted), others)
    way = walk(Configuration(known(voters), known(learners)), me, now)
    end = way[-1] if way else Configuration(known(voters), known(learners))
    assert end.voters == tuple(Member(node_id, now[node_id]) for node_id in sorted(wanted))
    assert end.learner_ids == others
    assert not waits(end, me, now, end.node_ids, end.node_ids)


def test_filling_in_a_directory_is_a_change_of_one_voter() -> None:
    old = Configuration((Member(1), Member(2), member(3)))
    check_change(old, Configuration((member(1), Member(2), member(3))))
    for new in (
        Configuration((member(1), member(2), member(3))),
        Configuration((member(1), Member(2), member(3, 2))),
        Configuration((member(1), member(3))),
        Configuration((Member(1), Member(2), Member(3), member(4)), ()),
    ):
        with pytest.raises(ValueError, match="one voter at a time"):
            check_change(old, new)
