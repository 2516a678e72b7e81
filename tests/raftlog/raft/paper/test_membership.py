"""Chapter 4 of Ongaro's thesis (one server at a time), and 3.10, rule by rule.

As in `test_paper`, each docstring says the rule that the test shows to hold here, the names say the section.
"""

import pytest
from raftlog.messages import acknowledgement, append_entries, vote_request, vote_response
from raftlog.raft.group import Group, disk_id

from barnabas_raftlog.errors import ChangeInProgressError
from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.messages import (
    AppendResponse,
    Entry,
    PeerLive,
    PeerSilent,
    TimeoutNow,
    TransferLeadership,
    VoteResponse,
)


def elected(*voters: int, learners: tuple[int, ...] = (), known_disks: bool = False) -> Group:
    group = Group(voters, learners, known_disks=known_disks)
    group.elect()
    return group


def role(group: Group, node: int) -> Role:
    return group.cores[node].role


def voters(group: Group, node: int) -> frozenset[int]:
    return group.cores[node].voters


def committed(group: Group, node: int) -> int:
    return group.cores[node].commit_index


def test_3_10_target_is_told_once_its_log_is_complete() -> None:
    """The leader brings the target's log up to date, and then tells it to start an election at once."""
    group = elected(1, 2, 3)
    group.propose(1, "a")
    group.step(1, TransferLeadership(2))
    assert not any(isinstance(message, TimeoutNow) for message in group.inbox)
    group.deliver(1, 2)
    group.deliver(2, 1)
    assert any(isinstance(message, TimeoutNow) for message in group.inbox)


def test_3_10_transfer_that_takes_too_long_is_given_up() -> None:
    """If the transfer does not complete within about an election timeout, the leader resumes."""
    group = elected(1, 2, 3)
    group.step(1, TransferLeadership(2))
    targets = list[int | None]()
    for _ in range(20):
        targets.append(group.cores[1].transfer_target)
        group.lose(target=2)
        group.settle()
        group.to_deadline(1)
    assert (targets[0], targets[-1]) == (2, None)
    assert role(group, 1) is Role.LEADER


def test_4_1_configuration_holds_as_soon_as_it_is_in_the_log() -> None:
    """The new configuration takes effect on each server as soon as it is added to that server's log."""
    group = elected(1, 2, 3)
    group.join(4)
    group.change(1, group.configuration({1, 2, 3, 4}))
    assert voters(group, 1) == {1, 2, 3, 4}
    assert group.cores[2].configuration == group.configuration({1, 2, 3})
    group.deliver(1, 2)
    group.step(2, PeerLive(1))
    assert voters(group, 2) == {1, 2, 3, 4}
    assert committed(group, 1) == 1, "and all that before it is committed"


def test_4_1_leader_counts_by_the_new_configuration() -> None:
    """The change is committed once it is on a majority of the new configuration."""
    group = elected(1, 2, 3)
    group.join(4)
    group.change(1, group.configuration({1, 2, 3, 4}))
    group.deliver(1, 2)
    group.deliver(2, 1)
    assert committed(group, 1) == 1, "two of three, but two of four"
    group.deliver(1, 3)
    group.deliver(3, 1)
    assert committed(group, 1) == 2


def test_4_1_one_change_at_a_time() -> None:
    """No further change starts before the previous one is committed."""
    group = elected(1, 2, 3)
    group.change(1, group.configuration({1, 2}))
    with pytest.raises(ChangeInProgressError):
        group.cores[1].check_change(group.configuration({1}))
    group.settle()
    group.cores[1].check_change(group.configuration({1}))


def test_4_1_only_one_server_at_a_time() -> None:
    """Only one server is added or removed at once, so that any two majorities overlap."""
    group = elected(1, 2, 3)
    for node in (4, 5):
        group.join(node)
    for voters in ({1, 2, 3, 4, 5}, {1}, {1, 2, 4}):
        with pytest.raises(ValueError, match="one voter at a time"):
            group.cores[1].check_change(group.configuration(voters))


def test_4_1_removed_entry_falls_back_to_the_previous_configuration() -> None:
    """A server whose configuration entry is removed from its log goes back to the one before."""
    group = elected(1, 2, 3)
    group.change(1, group.configuration({1, 2}))
    group.lose()
    assert voters(group, 1) == {1, 2}
    group.step(
        1,
        append_entries(
            term=2, source=2, target=1, prev_index=1, prev_term=1, commit_index=1, entries=[Entry(2, 2, b"other")]
        ),
    )
    group.step(1, PeerLive(2))
    assert voters(group, 1) == {1, 2, 3}


def test_4_1_entries_of_a_leader_outside_the_configuration_are_taken() -> None:
    """A server accepts AppendEntries from a leader that is not part of its latest configuration."""
    group = elected(1, 2, 3)
    group.join(4)
    group.step(4, append_entries(term=1, source=1, target=4, round=1, entries=[Entry(1, 1, b"first")]))
    assert group.values(4) == ["first"]
    (answer,) = [message for message in group.inbox if isinstance(message, AppendResponse)]
    assert not answer.rejected


def test_4_1_votes_for_a_candidate_outside_the_configuration_are_given() -> None:
    """A server grants its vote to a candidate that is not part of its latest configuration, if its log is current."""
    group = elected(1, 2, 3)
    group.step(2, PeerSilent(1))
    group.step(2, vote_request(term=2, source=4, target=2, last_index=5, last_term=1, pre=True))
    group.step(2, vote_request(term=2, source=4, target=2, last_index=5, last_term=1))
    votes = [message for message in group.inbox if isinstance(message, VoteResponse)]
    assert [vote.granted for vote in votes] == [True, True]


def test_bug_of_2015_a_leader_commits_an_entry_of_its_term_first() -> None:
    """A leader begins no change before it has committed an entry of its own term (raft-dev, 2015)."""
    group = elected(1, 2, 3)
    group.slow |= {1, 2, 3}
    group.step(2, PeerSilent(1))
    group.step(3, PeerSilent(1))
    group.to_deadline(2)
    while group.cores[2].role is not Role.LEADER:
        for node in (2, 3):
            group.sync(node)
        group.lose(target=1)
        group.deliver()
    with pytest.raises(ChangeInProgressError, match="no entry of term"):
        group.cores[2].check_change(group.configuration({2, 3}))
    for node in (2, 3, 2):
        group.sync(node)
        group.lose(target=1)
        group.deliver()
    group.cores[2].check_change(group.configuration({2, 3}))


def test_4_2_1_new_servers_are_sent_the_log_before_they_count() -> None:
    """A new server joins as a non-voting member: entries are replicated to it, majorities are counted without it."""
    group = elected(1, 2, 3)
    group.join(4)
    group.change(1, group.configuration({1, 2, 3}, {4}))
    group.step(1, PeerLive(4))
    group.settle()
    assert group.values(4) == group.values(1)
    group.propose(1, "a")
    group.lose(1, 2)
    group.lose(1, 3)
    group.settle()
    assert group.values(4)[-1] == "a"
    assert committed(group, 1) == 2, "the learner's copy is no voter's"


def test_4_2_1_caught_up_means_within_an_election_timeout() -> None:
    """A new server is ready when its last round took less than an election timeout."""
    group = elected(1, 2, 3)
    group.join(4)
    group.change(1, group.configuration({1, 2, 3}, {4}))
    group.lose(1, 4)
    group.settle()
    core = group.cores[1]
    assert not core.progress[4].has_caught_up(group.now_ms, 1_000)
    group.step(1, PeerLive(4))
    group.settle()
    assert core.progress[4].has_caught_up(group.now_ms, 1_000)


def test_4_2_2_leader_that_is_removed_does_not_count_itself() -> None:
    """It manages a cluster that does not include itself: it replicates entries and does not count itself."""
    group = elected(1, 2, 3)
    group.change(1, group.configuration({2, 3}))
    group.deliver(1, 2)
    group.deliver(2, 1)
    assert role(group, 1) is Role.LEADER
    assert committed(group, 1) == 1


def test_4_2_2_leader_that_is_removed_steps_down_when_that_is_committed() -> None:
    """It steps down once the new configuration is committed, and not before."""
    group = elected(1, 2, 3)
    group.change(1, group.configuration({2, 3}))
    group.deliver()
    group.deliver(2, 1)
    assert role(group, 1) is Role.LEADER
    group.deliver(3, 1)
    assert role(group, 1) is Role.FOLLOWER
    assert committed(group, 1) == 2


def test_4_2_2_left_out_server_may_still_be_elected_before_the_commit() -> None:
    """A server that its own latest configuration leaves out may have to become leader (figure 4.6), uncounted."""
    group = elected(1, 2)
    group.change(1, group.configuration({2}))
    group.lose()
    group.restart_as_after_a_crash(1)
    assert group.cores[1].may_stand
    group.to_deadline(1)
    assert role(group, 1) is Role.CANDIDATE
    group.step(1, vote_response(term=2, source=2, target=1, pre=True))
    assert group.cores[1].votes == set(), "its own vote does not count"
    group.step(1, vote_response(term=2, source=2, target=1))
    assert role(group, 1) is Role.LEADER


def test_4_2_3_servers_that_hear_their_leader_refuse_pre_votes() -> None:
    """Removed servers must not disrupt: a server that hears from a leader does not help to elect another."""
    group = elected(1, 2, 3)
    group.change(1, group.configuration({1, 2}))
    group.lose(1, 3)
    group.settle()
    group.lose()
    term = group.cores[1].term
    for voter in (1, 2):
        group.step(voter, vote_request(term=term + 1, source=3, target=voter, last_index=9, last_term=term, pre=True))
    votes = [message for message in group.inbox if isinstance(message, VoteResponse)]
    assert [vote.granted for vote in votes] == [False, False]
    assert (group.cores[1].term, group.cores[1].role) == (term, Role.LEADER)


def test_identity_a_vote_counts_only_from_the_disk_that_was_added() -> None:
    """A voter is a node and its directory (as in KIP-853): another disk does not vote in the lost one's name."""
    group = Group((1, 2, 3), known_disks=True)
    group.to_deadline(1)
    group.step(1, vote_response(term=1, source=2, target=1, pre=True, directory_id=disk_id(9)))
    assert group.cores[1].pre_voting
    group.step(1, vote_response(term=1, source=2, target=1, pre=True, directory_id=group.members[2].directory_id))
    assert not group.cores[1].pre_voting


def test_identity_an_acknowledgement_counts_only_from_the_disk_that_was_added() -> None:
    """The same for acknowledgements of a follower."""
    group = elected(1, 2, 3, known_disks=True)
    group.propose(1, "a")
    core = group.cores[1]
    group.step(1, acknowledgement(term=1, source=2, target=1, match_index=2, round=core.round, directory_id=disk_id(9)))
    assert core.commit_index == 1
    group.step(
        1,
        acknowledgement(
            term=1, source=3, target=1, match_index=2, round=core.round, directory_id=group.members[3].directory_id
        ),
    )
    assert core.commit_index == 2
