"""Refusals, races and limits, which the stories do not show."""

from random import Random

import pytest
from raftlog.messages import acknowledgement, append_entries, install_snapshot, refusal, vote_request, vote_response
from sim.disk import Disk

from barnabas_raftlog.raft.core import NOTHING, RaftCore, Role, Timing
from barnabas_raftlog.raft.membership import Member, configuration_of
from barnabas_raftlog.raft.messages import (
    AppendEntries,
    Campaign,
    EntriesLoaded,
    Entry,
    HardState,
    LeadershipEnded,
    PeerLive,
    PeerSilent,
    Persisted,
    Proposed,
    Stalled,
    Tick,
    TimeoutNow,
    TransferLeadership,
    VoteResponse,
)

from .group import Group


def elected(*voters: int, timing: Timing | None = None) -> Group:
    group = Group(voters or (1, 2, 3), timing=timing)
    group.elect()
    return group


def kinds(group: Group) -> list[str]:
    return [type(message).__name__ for message in group.inbox]


def test_step_that_changes_nothing_says_nothing() -> None:
    group = elected()
    assert group.cores[1].step(Tick(), group.now_ms) is NOTHING
    assert group.cores[2].step(Persisted(1), group.now_ms) is NOTHING


def test_time_never_goes_back() -> None:
    group = elected()
    with pytest.raises(AssertionError):
        group.cores[1].step(Tick(), group.now_ms - 1_000)


def test_proposal_of_a_node_that_no_longer_leads_is_ignored() -> None:
    """The driver may have appended just before a newer term arrived; the next leader truncates it."""
    group = elected()
    assert group.cores[2].step(Proposed(), group.now_ms) is NOTHING


def test_events_about_strangers_are_ignored() -> None:
    group = elected()
    for event in (PeerLive(9), PeerSilent(9)):
        assert group.cores[1].step(event, group.now_ms) is NOTHING
    stray = acknowledgement(term=1, source=9, target=1, match_index=1, round=1)
    assert group.cores[1].step(stray, group.now_ms) is NOTHING


def test_vote_is_given_once_a_term() -> None:
    group = Group((1, 2, 3))
    group.step(3, vote_request(term=1, source=1, target=3))
    group.step(3, vote_request(term=1, source=2, target=3))
    group.step(3, vote_request(term=1, source=1, target=3))
    votes = [message.granted for message in group.inbox if isinstance(message, VoteResponse)]
    assert votes == [True, False, True]


def test_repeated_vote_waits_for_the_disk_like_the_first() -> None:
    group = Group((1, 2, 3))
    group.slow.add(3)
    for _ in range(2):
        group.step(3, vote_request(term=1, source=1, target=3))
    assert not group.inbox
    group.sync(3)
    assert kinds(group) == ["VoteResponse", "VoteResponse"]


def test_log_decides_by_term_before_length() -> None:
    group = elected()
    group.propose(1, "a", "b")
    group.settle()
    shorter_but_newer = vote_request(term=5, source=2, target=3, last_index=1, last_term=4)
    longer_but_older = vote_request(term=6, source=2, target=3, last_index=99)
    group.step(3, shorter_but_newer)
    group.step(3, longer_but_older)
    votes = [message.granted for message in group.inbox if isinstance(message, VoteResponse)]
    assert votes == [True, False]


def test_pre_vote_changes_no_promise() -> None:
    group = Group((1, 2, 3))
    ready = group.step(3, vote_request(term=7, source=1, target=3, pre=True))
    assert ready.hard_state is None
    assert group.cores[3].term == 0


def test_refused_pre_vote_teaches_the_term() -> None:
    """Else a member with the best log and an old term could never win."""
    group = Group((1, 2, 3))
    group.step(1, Campaign())
    group.step(1, vote_response(term=8, source=2, target=1, granted=False, pre=True))
    assert group.cores[1].term == 8


def test_pre_vote_of_the_leader_one_trusts_is_not_refused_for_trusting_it() -> None:
    group = elected()
    assert group.cores[3].quiescent
    group.step(3, vote_request(term=2, source=1, target=3, last_index=1, last_term=1, pre=True))
    (response,) = group.inbox
    assert isinstance(response, VoteResponse)
    assert response.granted


def test_late_pre_vote_of_todays_leader_does_not_end_trust() -> None:
    group = elected()
    group.step(3, vote_request(term=1, source=1, target=3, pre=True))
    assert group.cores[3].leader_id == 1


def test_leader_that_ended_is_told_apart_from_one_that_came_back() -> None:
    group = elected()
    group.step(2, LeadershipEnded(0, 1, 2))
    assert group.cores[2].leader_id == 1
    group.step(2, LeadershipEnded(1, 3, 2))
    assert group.cores[2].leader_id == 1
    group.step(2, LeadershipEnded(1, 1, 2))
    assert group.cores[2].leader_id is None


def test_former_leader_says_so_again_on_reconnection() -> None:
    group = elected()
    group.step(1, refusal(term=2, source=2, target=1))
    group.inbox.clear()
    group.step(1, PeerLive(3))
    assert group.inbox == [LeadershipEnded(1, 1, 3)]


def test_heartbeat_commits_only_what_is_verified() -> None:
    """Entries of a deposed leader may lie where the new leader has committed others."""
    disk = Disk(configuration_of(frozenset({1, 2, 3})))
    disk.log.append([Entry(1, 1, b"same"), Entry(2, 1, b"left over")])
    disk.sync()
    core = RaftCore(
        member=Member(2),
        hard_state=HardState(1, None),
        log=disk.log,
        commit_index=0,
        timing=Timing(),
        rng=Random(0),
        preferred=False,
        now_ms=0,
    )
    core.step(append_entries(term=3, source=1, target=2, prev_index=1, prev_term=1, commit_index=5), 0)
    assert core.commit_index == 1


def test_commit_never_waits_for_the_slowest() -> None:
    group = elected(1, 2, 3, 4, 5)
    group.propose(1, "a")
    for node in (2, 3):
        group.deliver(1, node)
        group.deliver(node, 1)
    assert group.cores[1].commit_index == 2


def test_leader_with_a_slow_disk_commits_by_the_others() -> None:
    group = elected()
    group.slow.add(1)
    group.propose(1, "a")
    group.deliver()
    group.deliver(2, 1)
    assert group.cores[1].commit_index == 1
    group.deliver(3, 1)
    assert group.cores[1].commit_index == 2


def test_window_holds_a_leader_back_until_it_is_answered() -> None:
    group = elected(timing=Timing(bytes_per_append=1, bytes_in_flight_max=2))
    group.propose(1, "a", "b", "c", "d")
    assert sum(isinstance(m, AppendEntries) and m.target == 2 for m in group.inbox) == 2
    group.settle()
    assert group.values(2) == group.values(1)


def test_entries_on_disk_are_sent_when_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    group = elected()
    with monkeypatch.context() as patch:
        patch.setattr(group.disks[1].log, "entries", lambda _start, _bytes_max: None)
        group.propose(1, "a")
        assert not group.inbox
    group.step(1, EntriesLoaded())
    group.settle()
    assert group.values(3) == ["no-op", "a"]


def test_returned_member_is_trusted_with_nothing_it_said_before() -> None:
    group = elected()
    group.step(1, PeerSilent(3))
    group.step(1, PeerLive(3))
    assert group.cores[1].progress[3].match_index == 0
    group.settle()
    assert group.cores[1].progress[3].match_index == 1


def test_silent_majority_keeps_a_leader_awake() -> None:
    group = elected()
    for peer in (2, 3):
        group.step(1, PeerSilent(peer))
    for _ in range(12):
        if group.cores[1].role is Role.LEADER:
            group.to_deadline(1)
            group.lose()
    assert group.cores[1].role is Role.FOLLOWER


@pytest.mark.parametrize(("for_ms", "role"), [(1_000, Role.FOLLOWER), (0, Role.LEADER)])
def test_a_leader_at_rest_counts_the_silence_of_before_it_was_noticed(for_ms: int, role: Role) -> None:
    group = elected()
    assert group.cores[1].quiescent
    group.now_ms += 60_000
    for peer in (2, 3):
        group.step(1, PeerSilent(peer, for_ms))
    group.to_deadline(1)
    assert group.cores[1].role is role


def test_group_falls_silent_without_a_dead_member() -> None:
    group = elected()
    group.step(1, PeerSilent(3))
    group.propose(1, "a")
    group.lose(target=3)
    group.settle()
    group.now_ms += 20
    if group.cores[1].deadline_ms is not None:
        group.to_deadline(1)
    assert group.cores[1].deadline_ms is None


def test_stalled_leader_is_not_confirmed_by_old_answers() -> None:
    group = elected()
    group.step(1, Stalled())
    group.inbox.clear()
    group.step(1, acknowledgement(term=1, source=2, target=1, match_index=1, round=1))
    assert not group.cores[1].confirmed
    group.step(1, acknowledgement(term=1, source=2, target=1, match_index=1, round=group.cores[1].confirm_round))
    assert group.cores[1].confirmed


def test_stalled_follower_gives_its_leader_another_timeout() -> None:
    group = elected()
    group.propose(1, "a")
    group.deliver(1, 2)
    group.now_ms += 5_000
    group.step(2, Stalled())
    group.step(2, Tick())
    assert group.cores[2].role is Role.FOLLOWER
    assert group.cores[2].leader_id == 1


def test_transfer_to_a_learner_or_a_stranger_is_refused() -> None:
    group = Group((1, 2), (3,))
    group.elect()
    for target in (3, 9, 1):
        ready = group.step(1, TransferLeadership(target))
        assert [fact.kind for fact in ready.facts] == ["transfer refused"]


def test_order_to_stand_counts_only_from_the_leader() -> None:
    group = elected()
    group.step(2, TimeoutNow(1, 3, 2))
    group.step(2, TimeoutNow(0, 1, 2))
    assert group.cores[2].role is Role.FOLLOWER


def test_entry_on_disk_proves_its_term() -> None:
    """Log and hard state may reach the disk in either order; a term must not be entered twice."""
    disk = Disk(configuration_of(frozenset({1})))
    disk.log.append([Entry(1, 6, b"")])
    disk.sync()
    core = RaftCore(
        member=Member(1),
        hard_state=HardState(5, 1),
        log=disk.log,
        commit_index=0,
        timing=Timing(),
        rng=Random(0),
        preferred=True,
        now_ms=0,
    )
    assert (core.term, core.voted_for) == (6, None)


def test_snapshot_of_what_is_here_is_not_installed() -> None:
    group = elected()
    group.propose(1, "a")
    group.deliver(1, 2)
    ready = group.step(2, install_snapshot(term=1, source=1, target=2, snapshot_index=2, snapshot_term=1))
    assert ready.install is None
    assert group.cores[2].commit_index == 2
    ready = group.step(2, install_snapshot(term=1, source=1, target=2, snapshot_index=1, snapshot_term=1))
    assert ready.install is None


def test_a_late_vote_request_does_not_make_a_leader_without_peers_wait_for_something() -> None:
    group = Group([1])
    group.to_deadline(1)
    core = group.cores[1]
    assert core.role is Role.LEADER
    assert core.deadline_ms is None
    group.step(1, vote_request(term=core.term, source=3, target=1, last_index=9, last_term=core.term))
    assert core.deadline_ms is None
