"""Candidates, and the votes that count: after a restart, a change, or a loss of power.

Each was once broken unnoticed (`scripts/mutants`): groups recover from it, or it takes a rare message.
"""

import pytest
from raftlog.messages import append_entries, vote_request, vote_response
from sim.disk import CHANGE

from barnabas_raftlog.raft.core import RaftCore, Role
from barnabas_raftlog.raft.messages import (
    Entry,
    HardState,
    PeerLive,
    PeerSilent,
    Removed,
    Tick,
    TimeoutNow,
)
from barnabas_raftlog.raft.uncertainty import give_up

from .group import Group
from .test_elections import answer, asked, deadline_after, elected


def started(term: int, *, preferred: int = 1, outside: bool = False) -> RaftCore:
    """Node 1 of three, back with a log that ends in this term."""
    group = Group([2, 3, 4] if outside else [1, 2, 3], preferred=preferred)
    if outside:
        group.join(1)
    group.disks[1].hard_state = HardState(term, None)
    group.cores[1] = group.boot(1)
    return group.cores[1]


def test_preferred_replica_stands_first_but_leaves_todays_leader_some_round_trips_after_a_restart() -> None:
    for _ in range(5):
        assert deadline_after(started(0)) <= 21
        assert 100 <= deadline_after(started(3)) <= 150
        assert 150 <= deadline_after(started(3, preferred=2)) <= 400


def test_stranger_waits_for_nothing_when_it_starts() -> None:
    for preferred in (1, 2):
        for term in (0, 3):
            assert started(term, preferred=preferred, outside=True).deadline_ms is None


def test_what_a_snapshot_covers_was_committed() -> None:
    group = elected()
    group.disks[2].log.install(9, 1, group.configuration([1, 2, 3]))
    group.sync(2)
    assert group.boot(2).commit_index == 9


def test_learner_does_not_stand_though_its_configuration_is_not_committed() -> None:
    group = elected()
    group.join(4)
    group.change(1, group.configuration([1, 2, 3], [4]))
    group.deliver(1, 2)
    assert group.cores[2].may_stand
    group = elected(1, 2, 3, learners=(4,))
    group.change(1, group.configuration([1, 2], [4]))
    group.deliver(1, 4)
    group.step(4, PeerSilent(1))
    core = group.cores[4]
    assert core.configuration_index > core.commit_index
    assert not core.may_stand
    assert not core.is_outside


def forgetful(*voters: int) -> Group:
    group = elected(*voters)
    group.set_page_cache()
    return group


def candidate(group: Group, node: int) -> RaftCore:
    """Let a node stand again after a crash, and nobody hear of it."""
    group.lose()
    group.restart_as_after_a_crash(node)
    group.to_deadline(node)
    group.lose()
    core = group.cores[node]
    assert core.pre_voting
    return core


def told(group: Group, source: int, target: int, commit: tuple[int, int]) -> None:
    """A voter grants a pre-vote and says what it knows to be committed: (index, term)."""
    term = group.cores[target].term + 1
    index, commit_term = commit
    response = vote_response(
        term=term, source=source, target=target, pre=True, commit_index=index, commit_term=commit_term
    )
    group.step(target, response)


def test_candidate_learns_what_is_committed_and_counts_the_vote() -> None:
    group = forgetful(1, 2, 3)
    group.propose(1, "a")
    group.deliver(1, 2)
    core = candidate(group, 2)
    told(group, 3, 2, (2, 1))
    assert (core.commit_index, core.verified_index) == (2, 2)
    assert not core.pre_voting


def test_candidate_learns_nothing_from_another_entry() -> None:
    group = forgetful(1, 2, 3)
    group.propose(1, "a")
    group.deliver(1, 2)
    core = candidate(group, 2)
    told(group, 3, 2, (2, 9))
    assert core.commit_index == 0
    assert not core.pre_voting


def test_candidate_that_learns_that_it_left_stands_no_longer() -> None:
    group = forgetful(1, 2)
    group.change(1, group.configuration([2]))
    group.sync(1)
    core = candidate(group, 1)
    told(group, 2, 1, (2, 1))
    assert core.is_outside
    assert core.role is Role.FOLLOWER


def test_voter_says_what_it_knows_to_be_committed_where_logs_may_forget() -> None:
    group = forgetful(1, 2, 3)
    response = answer(group.step(2, asked(3, 2, 2, pre=True)))
    assert (response.commit_index, response.commit_term) == (1, 1)


def test_voters_before_a_change_that_is_not_committed_count_too_where_logs_may_forget() -> None:
    group = forgetful(1, 2, 3)
    group.change(1, group.configuration([2, 3]))
    group.sync(1)
    core = candidate(group, 1)
    assert core.votes == {1}
    group = forgetful(1, 2, 3)
    group.change(1, group.configuration([1, 2]))
    group.sync(1)
    core = candidate(group, 1)
    told(group, 3, 1, (0, 0))
    assert core.votes == {1, 3}


def test_witness_stands_only_where_no_full_voter_could() -> None:
    group = Group([1, 2, 3], witnesses=[3])
    group.elect()
    group.step(3, TimeoutNow(1, 1, 3))
    assert group.cores[3].role is Role.FOLLOWER
    group.step(2, PeerSilent(1))
    assert not answer(
        group.step(2, vote_request(term=2, source=3, target=2, last_index=1, last_term=1, pre=True))
    ).granted
    assert answer(group.step(2, vote_request(term=2, source=3, target=2, last_index=2, last_term=1, pre=True))).granted


def test_witness_has_no_turn_but_the_last_also_where_no_full_voter_is_left() -> None:
    group = Group([1, 2, 3], witnesses=[3])
    group.lot = 0
    group.cores = {node: group.boot(node) for node in group.cores}
    group.elect()
    for peer in (2, 1):
        group.step(3, PeerSilent(peer))
    assert group.cores[3].leader_id is None
    assert deadline_after(group.cores[3]) >= 51


def test_leader_that_leaves_repeats_no_members() -> None:
    group = forgetful(1, 2, 3)
    group.change(1, group.configuration([2, 3]))
    for _ in range(3):
        batch, group.inbox = group.inbox, []
        for message in batch:
            ready = group.step(message.target, message)
            assert not (message.target == 1 and ready.repeat_members)
    assert group.cores[1].role is Role.FOLLOWER


def test_preferred_witness_does_not_hurry_after_a_restart() -> None:
    group = Group([1, 2, 3], witnesses=[1])
    group.disks[1].hard_state = HardState(3, None)
    assert deadline_after(group.boot(1)) >= 400


def test_nobody_asks_those_before_a_change_that_is_committed() -> None:
    group = forgetful(1, 2, 3)
    group.change(1, group.configuration([1, 2]))
    group.sync(1)
    core = candidate(group, 1)
    assert core.rivals.voter_ids == {1, 2, 3}
    told(group, 3, 1, (2, 1))
    assert (core.commit_index, core.configuration_index) == (2, 2)
    assert not core.rivals.voters


def test_who_is_told_that_its_own_last_entry_removed_it_stands_no_more() -> None:
    group = elected()
    group.change(1, group.configuration([2, 3]))
    core = candidate(group, 1)
    group.step(1, Removed(term=1, source=2, target=1, index=2, index_term=1))
    assert core.is_outside


def test_witness_that_is_leaving_is_still_one() -> None:
    group = Group([1, 2, 3], witnesses=[3])
    group.elect()
    change = Entry(2, 1, CHANGE + group.configuration([1, 2]).encode())
    group.step(
        3,
        append_entries(
            term=1, source=1, target=3, prev_index=1, prev_term=1, commit_index=1, round=9, entries=[change]
        ),
    )
    group.step(3, PeerLive(1))
    core = group.cores[3]
    assert not core.is_voter
    assert core.may_stand
    assert core.is_witness


def test_who_was_a_witness_lacks_the_beginning_once_it_is_to_be_something_else() -> None:
    group = elected()
    for members, since, lacks in (
        (group.configuration([1, 2, 3]), (1, 1), True),
        (group.configuration([1, 2], [3]), (1, 1), True),
        (group.configuration([1, 2, 3], witnesses=[3]), (1, 1), False),
        (group.configuration([1, 2, 3]), (1, 2), False),  # about to hear that it is a witness
        (group.configuration([1, 2]), (1, 1), False),
    ):
        group.disks[3].log.install(1, 1, members, since)
        core = group.boot(3)
        assert core.lacks_beginning == lacks
        assert core.may_stand == (core.is_voter and not lacks)


def test_voter_that_was_given_up_counts_again_when_it_or_a_leader_is_there() -> None:
    for event in (
        PeerLive(1),
        append_entries(term=2, source=3, target=2, prev_index=1, prev_term=1, commit_index=1, round=1),
    ):
        group = forgetful(1, 2, 3)
        core = group.cores[2]
        group.step(2, PeerSilent(1))
        give_up(core, 1)
        assert core.given_up == {1}
        group.step(2, event)
        assert not core.given_up


def pass_time(group: Group, sync_ms: int, until_ms: int) -> None:
    """Let all deadlines come, and every sync take `sync_ms`, until all is quiet."""
    group.slow = set(group.cores)
    syncs = dict[int, int]()
    while group.now_ms < until_ms:
        while group.deliver():
            pass
        for node, disk in group.disks.items():
            if disk.queue:
                syncs.setdefault(node, group.now_ms + sync_ms)
        due = [(at_ms, False, node) for node, at_ms in syncs.items()]
        due += [(core.deadline_ms, True, node) for node, core in group.cores.items() if core.deadline_ms is not None]
        if not due:
            return
        at_ms, is_tick, node = min(due)
        group.now_ms = max(group.now_ms, at_ms)
        if is_tick:
            group.step(node, Tick())
        else:
            del syncs[node]
            group.sync(node)


@pytest.mark.parametrize("sync_ms", [2_000, 3_000])
def test_disks_that_are_slower_than_an_election_timeout_delay_a_leader_and_no_more(sync_ms: int) -> None:
    group = Group([1, 2, 3])
    group.connect()
    pass_time(group, sync_ms, until_ms=60_000)
    leaders = [core for core in group.cores.values() if core.role is Role.LEADER and core.confirmed]
    assert len(leaders) == 1
    assert leaders[0].term <= 8  # 11 and 14 when every election gets the same time


def wait_after(group: Group, node: int) -> int:
    """Return how long `node` waits from now on."""
    deadline_ms = group.cores[node].deadline_ms
    assert deadline_ms is not None
    return deadline_ms - group.now_ms


def failed_elections(group: Group, count: int) -> tuple[list[int], list[int]]:
    """Let node 1 fail so often, with the vote of node 3 under way; return how long both wait for each outcome."""
    waits: tuple[list[int], list[int]] = ([], [])
    for _ in range(count):
        while not group.cores[1].pre_voting:
            group.to_deadline(1)
        term = group.cores[1].term + 1
        group.step(1, vote_response(term=term, source=3, target=1, pre=True))
        group.step(3, asked(1, 3, term))
        group.lose()
        waits[0].append(wait_after(group, 1))
        waits[1].append(wait_after(group, 3))
    return waits


def test_everybody_waits_longer_for_an_election_after_two_have_failed() -> None:
    group = Group([1, 2, 3])
    group.connect()
    candidates, voters = failed_elections(group, 5)
    for candidate_ms, voter_ms, factor in zip(candidates, voters, [1, 1, 2, 4, 4], strict=True):
        assert 500 * factor <= candidate_ms < 1_000 * factor
        assert 50 <= voter_ms - 1_000 * factor <= 500


def test_patience_ends_when_somebody_leads() -> None:
    group = Group([1, 2, 3])
    group.connect()
    failed_elections(group, 5)
    group.to_deadline(1)
    group.settle()
    assert group.cores[1].role is Role.LEADER
    assert [core.ballots for core in group.cores.values()] == [0, 0, 0]
