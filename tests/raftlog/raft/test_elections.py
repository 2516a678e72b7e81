"""A member's memory around an election, and its waits: each was once broken unnoticed.

`scripts/mutants` breaks the core wherever it can. No seed of the simulator noticed these mistakes, because groups
recover from them or because they take a rare message.
"""

from raftlog.messages import vote_request, vote_response

from barnabas_raftlog.raft.core import RaftCore, Role
from barnabas_raftlog.raft.messages import (
    TERM_MAX,
    LeadershipEnded,
    PeerLive,
    PeerSilent,
    Ready,
    Removed,
    Stalled,
    StartRound,
    TimeoutNow,
    TransferLeadership,
    VoteRequest,
    VoteResponse,
)

from .group import Group


def elected(*voters: int, learners: tuple[int, ...] = (), preferred: int = 1) -> Group:
    group = Group(voters or (1, 2, 3), learners, preferred=preferred)
    group.elect()
    return group


def asked(source: int, target: int, term: int, *, pre: bool = False, is_learner: bool = False) -> VoteRequest:
    """A candidate whose log is longer than any."""
    return vote_request(
        term=term, source=source, target=target, last_index=99, last_term=99, pre=pre, is_learner=is_learner
    )


def answer(ready: Ready) -> VoteResponse:
    (response,) = (m for m in (*ready.messages, *ready.messages_after_persist) if isinstance(m, VoteResponse))
    return response


def standing(voter_count: int) -> Group:
    """Node 1 has asked for votes in term 1, with the pre-votes of just a majority; the others refused it theirs."""
    group = Group(range(1, voter_count + 1))
    group.connect()
    group.to_deadline(1)
    group.lose()
    for peer in range(voter_count, 1, -1):
        granted = peer <= voter_count // 2 + 1
        group.step(1, vote_response(term=int(granted), source=peer, target=1, granted=granted, pre=True))
    group.lose()
    core = group.cores[1]
    assert (core.role, core.term, core.pre_voting) == (Role.CANDIDATE, 1, False)
    return group


def refuse(group: Group, source: int) -> None:
    group.step(1, vote_response(term=group.cores[1].term, source=source, target=1, granted=False))


def test_new_term_of_ones_own_forgets_what_was_known_equal_to_the_last_leaders_log() -> None:
    group = elected()
    group.propose(1, "a")
    group.deliver(1, 2)
    core = group.cores[2]
    assert core.verified_index == 2
    group.step(2, PeerSilent(1))
    group.lose()
    group.to_deadline(2)
    group.lose()
    group.step(2, vote_response(term=2, source=3, target=2, pre=True))
    assert (core.term, core.role) == (2, Role.CANDIDATE)
    assert core.verified_index == core.commit_index == 1


def test_refused_pre_vote_is_no_refused_vote() -> None:
    group = standing(5)
    deadline_ms = group.cores[1].deadline_ms
    refuse(group, 2)
    assert group.cores[1].deadline_ms == deadline_ms


def test_lost_election_is_repeated_soon_and_no_other() -> None:
    group = standing(3)
    core = group.cores[1]
    deadline_ms = core.deadline_ms
    refuse(group, 2)
    assert core.deadline_ms == deadline_ms
    refuse(group, 3)
    assert core.deadline_ms is not None
    assert core.deadline_ms <= core.now_ms + core.timing.retry_ms


def test_silent_voters_cannot_be_waited_for() -> None:
    group = standing(3)
    core = group.cores[1]
    group.step(1, PeerSilent(3))
    refuse(group, 2)
    assert core.deadline_ms is not None
    assert core.deadline_ms <= core.now_ms + core.timing.retry_ms


def test_whatever_comes_from_a_node_shows_that_it_lives() -> None:
    group = Group([1, 2, 3])
    core = group.cores[1]
    assert core.silent == {2, 3}
    group.step(1, asked(2, 1, 1))
    assert core.silent == {3}
    group.step(1, vote_response(term=1, source=3, target=1, granted=False, pre=True))
    assert core.silent == set()
    group = elected()
    group.step(2, PeerSilent(1))
    group.propose(1, "a")
    group.deliver(1, 2)
    assert 1 not in group.cores[2].silent


def test_learner_is_given_no_pre_vote() -> None:
    group = Group([1, 2, 3], [4])
    assert not answer(group.step(1, asked(4, 1, 1, pre=True, is_learner=True))).granted
    assert answer(group.step(1, asked(2, 1, 1, pre=True))).granted


def test_late_question_about_a_term_that_has_begun_is_answered_no() -> None:
    group = Group([1, 2, 3])
    group.step(1, asked(2, 1, 4))
    assert not answer(group.step(1, asked(3, 1, 4, pre=True))).granted


def test_late_request_of_an_older_term_is_given_no_vote() -> None:
    group = Group([1, 2, 3])
    group.step(1, vote_response(term=3, source=2, target=1, granted=False))
    core = group.cores[1]
    assert (core.term, core.voted_for) == (3, None)
    assert not answer(group.step(1, asked(3, 1, 2))).granted
    assert core.voted_for is None


def test_who_knows_the_leader_of_the_term_votes_for_nobody_in_it() -> None:
    group = Group([1, 2, 3, 4, 5])
    group.connect()
    group.to_deadline(1)
    while group.cores[1].role is not Role.LEADER:
        group.lose(1, 5)
        group.deliver()
    group.settle()
    core = group.cores[5]
    assert (core.leader_id, core.voted_for) == (1, None)
    assert not answer(group.step(5, asked(4, 5, core.term))).granted


def test_who_votes_for_another_stands_no_longer() -> None:
    group = Group([1, 2, 3])
    group.to_deadline(1)
    core = group.cores[1]
    assert core.pre_voting
    core.term = 1
    assert answer(group.step(1, asked(2, 1, 1))).granted
    assert core.role is Role.FOLLOWER


def test_request_that_comes_twice_wakes_nobody() -> None:
    group = elected()
    late = asked(1, 2, 1)
    for _ in range(2):
        group.step(2, late)
        assert group.cores[2].quiescent


def test_late_request_does_not_shake_a_silent_leader() -> None:
    group = elected()
    group.now_ms += 60_000
    group.step(1, asked(3, 1, 1))
    core = group.cores[1]
    assert (core.role, core.quiescent, core.deadline_ms) == (Role.LEADER, True, None)


def test_leader_that_stands_has_lost_its_followers_at_once() -> None:
    group = elected()
    group.step(2, asked(1, 2, 2, pre=True))
    assert group.cores[2].leader_id is None
    assert deadline_after(group.cores[2]) <= 400


def test_leader_that_is_missed_judges_by_what_is_answered_from_now_on() -> None:
    group = elected()
    group.now_ms += 60_000
    group.step(1, asked(3, 1, 2, pre=True))
    core = group.cores[1]
    assert core.deadline_ms == group.now_ms + core.timing.heartbeat_interval_ms
    assert core.active_since_ms == group.now_ms


def test_who_knows_no_members_tells_nobody_that_it_was_removed() -> None:
    group = elected()
    group.join(4)
    group.step(4, asked(3, 4, 2, pre=True))
    assert not [message for message in group.inbox if isinstance(message, Removed)]


def test_nobody_is_told_of_a_removal_before_it_is_committed() -> None:
    group = elected()
    group.change(1, group.configuration([1, 2]))
    group.lose()
    group.step(1, asked(3, 1, 2, pre=True))
    assert not [message for message in group.inbox if isinstance(message, Removed)]


def test_old_word_of_a_removal_ends_no_trust() -> None:
    group = elected()
    group.propose(1, "a")
    group.settle()
    group.change(1, group.configuration([1, 2], [3]))
    group.settle()
    core = group.cores[2]
    assert core.leader_id == 1
    group.step(2, Removed(term=1, source=3, target=2, index=1, index_term=1))
    assert core.leader_id == 1


def test_vote_of_a_learner_counts_for_nothing() -> None:
    group = Group([1, 2, 3], [4])
    group.to_deadline(1)
    core = group.cores[1]
    group.step(1, vote_response(term=1, source=4, target=1, pre=True))
    assert core.pre_voting


def test_learner_does_not_stand_when_it_is_asked_to() -> None:
    group = elected(1, 2, 3, learners=(4,))
    group.step(4, TimeoutNow(1, 1, 4))
    assert group.cores[4].role is Role.FOLLOWER


def test_success_of_anybody_ends_the_back_off() -> None:
    group = Group([1, 2, 3])
    for _ in range(5):
        group.to_deadline(1)
        group.to_deadline(2)
        group.lose()
    assert group.cores[1].attempts >= 5
    group.elect()
    assert group.cores[1].leader_id == group.cores[2].leader_id == 1
    assert group.cores[1].attempts == group.cores[2].attempts == 0


def led_again() -> Group:
    """Node 1 has lost a leadership in which it waited for the answer to a round, and has just won another."""
    group = elected()
    for _ in range(3):
        group.step(1, StartRound())
        group.lose()
    group.step(1, Stalled())
    group.lose()
    group.step(1, vote_response(term=5, source=2, target=1, granted=False))
    assert group.cores[1].role is Role.FOLLOWER
    group.lose()
    group.elect()
    return group


def test_leadership_inherits_no_doubts_and_no_questions_from_an_earlier_one() -> None:
    core = led_again().cores[1]
    assert core.role is Role.LEADER
    assert core.confirmed
    assert core.quiescent


def deadline_after(core: RaftCore) -> int:
    assert core.deadline_ms is not None
    return core.deadline_ms - core.now_ms


def test_deposed_leader_leaves_the_next_one_time_and_one_that_gave_up_does_not() -> None:
    deposed = elected()
    deposed.step(1, vote_response(term=5, source=2, target=1, granted=False))
    assert deadline_after(deposed.cores[1]) >= 150
    alone = elected()
    alone.propose(1, "a")
    alone.lose()
    for _ in range(30):
        if alone.cores[1].role is Role.LEADER:
            alone.to_deadline(1)
            alone.lose()
    assert alone.cores[1].role is Role.FOLLOWER
    assert deadline_after(alone.cores[1]) <= 21


def test_leader_that_gave_up_and_is_not_preferred_does_not_hurry_either() -> None:
    group = elected(preferred=2)
    leader = group.cores[next(n for n, core in group.cores.items() if core.role is Role.LEADER)]
    group.propose(leader.node_id, "a")
    group.lose()
    while leader.role is Role.LEADER:
        group.to_deadline(leader.node_id)
        group.lose()
    assert leader.node_id != 2
    assert deadline_after(leader) >= 150


def test_handing_over_ends_with_the_leadership() -> None:
    group = elected()
    group.step(1, TransferLeadership(2))
    group.lose()
    group.step(1, vote_response(term=5, source=2, target=1, granted=False))
    group.lose()
    group.elect()
    assert group.cores[1].role is Role.LEADER
    assert group.cores[1].transfer_target is None


def test_leader_whose_node_came_back_must_speak() -> None:
    group = elected()
    core = group.cores[2]
    assert core.deadline_ms is None
    group.step(2, PeerLive(1))
    assert core.deadline_ms is not None


def test_return_of_another_node_ends_no_trust() -> None:
    group = elected()
    group.step(2, PeerLive(3))
    assert group.cores[2].quiescent


def test_without_a_leader_a_voter_more_is_a_reason_to_try_and_a_learner_is_none() -> None:
    group = elected(1, 2, 3, learners=(4,), preferred=3)
    core = group.cores[2]
    group.step(2, LeadershipEnded(1, 1, 2))
    core.deadline_ms = group.now_ms + 1_000
    group.step(2, PeerLive(4))
    assert deadline_after(core) == 1_000
    group.step(2, PeerLive(3))
    assert deadline_after(core) < 1_000


def test_nobody_stands_in_a_term_that_no_entry_can_have() -> None:
    group = elected()
    group.step(2, vote_request(term=TERM_MAX - 1, source=3, target=2, last_index=9, last_term=9))
    group.lose()
    group.to_deadline(2)
    group.step(2, vote_response(term=TERM_MAX, source=3, target=2, pre=True))
    core = group.cores[2]
    assert (core.term, core.role) == (TERM_MAX, Role.CANDIDATE)
    group.lose()
    group.to_deadline(2)
    group.to_deadline(2)
    assert not group.inbox
    assert core.term == TERM_MAX


def test_that_there_is_no_term_left_is_said_once() -> None:
    group = elected()
    group.step(2, vote_request(term=TERM_MAX, source=3, target=2, last_index=9, last_term=9))
    for _ in range(3):
        group.to_deadline(2)
        assert deadline_after(group.cores[2]) >= group.timing.election_timeout_ms
    assert sum("no term left" in line for line in group.lines) == 1
