"""An operator goes on without a voter of a page-cache group that never comes back."""

import pytest

from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.messages import GiveUp, PeerLive, PeerSilent
from barnabas_raftlog.raft.uncertainty import why_not_given_up

from .group import Group


def waiting(voters: int = 3) -> Group:
    """Voters 2 and 3 have acknowledged a value; 3 is gone for good, and the machine of 2 lost power, and the value."""
    group = Group(range(1, voters + 1))
    group.set_page_cache()
    group.elect(2)
    group.settle()
    group.propose(2, "a")
    group.lose(target=1)
    group.settle()
    group.die(3)
    group.lose_power(2, 1)
    for node in group.cores.keys() - group.dead - {2}:
        group.step(2, PeerLive(node))
        group.step(node, PeerSilent(2))
        group.step(node, PeerLive(2))
    return group


def stand(group: Group, rounds: int = 6) -> list[int]:
    """Let the living stand for election, and return the leader."""
    for _ in range(rounds):
        for node in sorted(group.cores.keys() - group.dead):
            if group.cores[node].role is not Role.LEADER and group.cores[node].leader_id is None:
                group.to_deadline(node)
                for dead in group.dead:
                    group.lose(target=dead)
                group.settle()
    return [node for node in sorted(group.cores.keys() - group.dead) if group.cores[node].role is Role.LEADER]


def test_without_it_the_others_wait_and_with_it_they_elect() -> None:
    group = waiting()
    assert stand(group) == []
    group.lines.clear()
    for node in (1, 2):
        group.step(node, GiveUp(3))
    assert len(stand(group)) == 1
    told = "\n".join(group.lines)
    assert told.count("fact: voter given up, node 3, by an operator") == 2
    assert "fact: acknowledged records may be missing" in told
    assert group.cores[1].given_up == group.cores[2].given_up == set(), "it holds for one election"


def test_it_holds_until_a_leadership_is_confirmed() -> None:
    """1 is elected, and nobody has heard of it when 2, to which it promised a vote just before, ends its term."""
    group = waiting()
    group.step(1, GiveUp(3))
    for source in (1, 2, 1):  # pre-vote, promise, vote
        group.lose(target=3)
        assert group.deliver(source=source)
    vote, group.inbox = group.inbox, []
    group.step(2, GiveUp(3))
    group.lose(target=3)
    group.deliver(source=2)
    promise, group.inbox = group.inbox, vote
    group.deliver(source=2)
    assert any(line.startswith("n1 fact: leader elected") for line in group.lines)
    group.inbox = promise
    group.deliver(source=1)
    group.lose(target=3)
    group.deliver(source=2)
    assert group.cores[1].role is not Role.LEADER
    assert group.cores[1].given_up == {3}
    assert stand(group) == [1]
    assert group.cores[1].confirmed
    assert group.cores[1].given_up == set()


def test_one_that_has_the_longer_log_must_be_told_too() -> None:
    group = waiting()
    group.disks[1].log.truncate_from(group.disks[1].log.last_index)
    group.cores[1] = group.boot(1)
    group.step(1, PeerLive(2))
    group.step(1, GiveUp(3))
    assert stand(group) == [], "nobody votes for a shorter log"
    group.step(2, GiveUp(3))
    assert stand(group) == [2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_is_void_when_anything_is_heard_of_that_voter(when: str) -> None:
    group = waiting()
    for node in (1, 2):
        if when == "before":
            group.step(node, PeerLive(3))
        group.step(node, GiveUp(3))
        if when == "after":
            group.step(node, PeerLive(3))
    assert not group.cores[1].given_up | group.cores[2].given_up
    assert stand(group) == []


def test_more_than_half_of_the_voters_must_be_left() -> None:
    group = waiting(5)
    for dead in (4, 5):
        group.die(dead)
    for node in (1, 2):
        for gone in (3, 4, 5):
            assert "fewer than a majority" in why_not_given_up(group.cores[node], gone)
            group.step(node, GiveUp(gone))
    assert stand(group) == []


def test_each_voter_that_is_gone_is_given_up_by_itself() -> None:
    group = waiting(5)
    group.die(5)
    for node in (1, 2, 4):
        group.step(node, GiveUp(3))
    group.lose_power(4, 0)
    for node in (1, 2):
        group.step(4, PeerLive(node))
        group.step(node, PeerSilent(4))
        group.step(node, PeerLive(4))
    group.step(4, GiveUp(3))
    assert stand(group) == [], "5 may have kept something"
    for node in (1, 2, 4):
        group.step(node, GiveUp(5))
    assert len(stand(group)) == 1


def test_what_is_refused() -> None:
    group = waiting()
    core = group.cores[1]
    assert why_not_given_up(core, 3) == ""
    assert "alive" in why_not_given_up(core, 1)
    assert "alive" in why_not_given_up(core, 2)
    assert "not one of its voters" in why_not_given_up(core, 9)
    for node in (1, 2):
        group.step(node, GiveUp(3))
    stand(group)
    assert "leads it" in why_not_given_up(group.cores[1], 3)
    durable = Group([1, 2, 3])
    durable.die(3)
    assert "flush.mode=fsync" in why_not_given_up(durable.cores[1], 3)
