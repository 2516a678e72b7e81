"""A candidate with the consent of all others, and only such, stands without a pre-vote."""

import pytest
from raftlog.messages import append_entries, peer_digest, vote_request

from barnabas_raftlog.raft.core import RaftCore, Role
from barnabas_raftlog.raft.messages import HardState, PeerDigest, PeerSilent, Tick, VoteRequest

from .group import Group


def digest(core: RaftCore, peer: int, *, term: int | None = None, leader_id: int | None = None) -> PeerDigest:
    """The digest of `peer` if its log is as long as that of `core`."""
    return peer_digest(
        peer=peer,
        term=core.term if term is None else term,
        leader_id=leader_id,
        last_index=core.log.last_index,
        last_term=core.log.last_term,
    )


def started(*, witnesses: tuple[int, ...] = ()) -> Group:
    """Three that were stopped in term 5 and start again."""
    group = Group([1, 2, 3], witnesses=witnesses)
    for node in group.cores:
        group.disks[node].hard_state = HardState(5, None)
        group.cores[node] = group.boot(node)
    return group


def stand(group: Group, node: int) -> list[VoteRequest]:
    """Let the deadline of `node` pass; return its requests."""
    deadline_ms = group.cores[node].deadline_ms
    assert deadline_ms is not None
    group.now_ms = max(group.now_ms, deadline_ms)
    ready = group.step(node, Tick())
    return [one for one in (*ready.messages, *ready.messages_after_persist) if isinstance(one, VoteRequest)]


def test_with_the_consent_of_all_votes_are_asked_for_at_once() -> None:
    group = started()
    group.step(1, digest(group.cores[1], 2))
    group.step(1, digest(group.cores[1], 3))
    asked = stand(group, 1)
    assert [(one.term, one.target, one.pre) for one in asked] == [(6, 2, False), (6, 3, False)]
    assert (group.cores[1].term, group.cores[1].voted_for) == (6, 1)
    assert any("campaign" in line for line in group.lines)


@pytest.mark.parametrize("terms", [(5, 7), (7, 5), (3, 4), (5, 6)])
def test_it_stands_in_the_first_term_that_is_new_to_all(terms: tuple[int, int]) -> None:
    group = started()
    for peer, term in zip((2, 3), terms, strict=True):
        group.step(1, digest(group.cores[1], peer, term=term))
    asked = stand(group, 1)
    assert [(one.term, one.pre) for one in asked] == [(max(5, *terms) + 1, False)] * 2
    assert group.cores[1].term == asked[0].term


def test_the_term_of_one_that_consented_alone_counts_for_nothing() -> None:
    group = started()
    group.step(1, digest(group.cores[1], 2, term=9))
    assert [(one.term, one.pre) for one in stand(group, 1)] == [(6, True)] * 2


def test_the_consent_of_a_majority_is_not_enough() -> None:
    group = started()
    group.step(1, digest(group.cores[1], 2))
    group.step(1, digest(group.cores[1], 2))
    assert all(one.pre for one in stand(group, 1))
    assert group.cores[1].term == 5


def test_who_failed_with_the_consent_of_all_asks_before_the_next_election() -> None:
    group = started()
    for peer in (2, 3):
        group.step(1, digest(group.cores[1], peer))
    assert not any(one.pre for one in stand(group, 1))
    assert all(one.pre for one in stand(group, 1))
    assert group.cores[1].term == 6


@pytest.mark.parametrize("why", ["leader", "longer log", "newer log", "another disk"])
def test_who_would_refuse_has_not_consented(why: str) -> None:
    group = Group([1, 2, 3], known_disks=why == "another disk")
    core = group.cores[1]
    said = digest(core, 2)
    said.directory_id = group.members[2].directory_id
    if why == "leader":
        said.leader_id = 3
    elif why == "longer log":
        said.last_index += 1
    elif why == "newer log":
        said.last_term += 1
    else:
        said.directory_id = bytes(15) + b"?"
    group.step(1, said)
    assert not core.consents
    said = digest(core, 2)
    said.directory_id = group.members[2].directory_id
    group.step(1, said)
    assert core.consents == ((2, core.term),)


def test_the_newest_digest_counts() -> None:
    group = started()
    for peer in (2, 3):
        group.step(1, digest(group.cores[1], peer))
    group.step(1, digest(group.cores[1], 2, leader_id=3))
    assert group.cores[1].consents == ((3, 5),)


def test_consents_end_with_their_term() -> None:
    group = started()
    for peer in (2, 3):
        group.step(1, digest(group.cores[1], peer))
    group.step(1, vote_request(term=6, source=2, target=1))
    assert group.cores[1].consents == ()


def test_consents_end_with_a_leader() -> None:
    group = started()
    for peer in (2, 3):
        group.step(1, digest(group.cores[1], peer))
    group.step(1, append_entries(term=5, source=2, target=1, round=1))
    assert group.cores[1].leader_id == 2
    assert group.cores[1].consents == ()


def test_consents_end_when_a_peer_falls_silent() -> None:
    group = started()
    for peer in (2, 3):
        group.step(1, digest(group.cores[1], peer))
    group.step(1, PeerSilent(3))
    assert group.cores[1].consents == ()


def test_a_witness_asks_first_all_the_same() -> None:
    group = started(witnesses=(3,))
    for peer in (1, 2):
        group.step(3, digest(group.cores[3], peer))
    assert all(one.pre for one in stand(group, 3))


def test_who_stands_with_consents_deposes_no_leader_elected_since() -> None:
    group = started()
    for peer in (2, 3):
        group.step(1, digest(group.cores[1], peer))
    stand(group, 2)
    group.deliver(2, 3)
    group.deliver(3, 2)
    group.deliver(2, 3)
    group.deliver(3, 2)
    group.lose(2, 1)
    assert group.cores[2].role is Role.LEADER
    assert not any(one.pre for one in stand(group, 1))
    group.deliver(1, 2)
    group.deliver(1, 3)
    assert (group.cores[2].role, group.cores[2].term) == (Role.LEADER, 6)
    assert group.cores[3].voted_for == 2
