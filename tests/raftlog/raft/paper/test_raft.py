"""The paper, sentence by sentence: each test quotes one and shows that it holds here.

Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm (Extended Version)". The names say the
section. docs/raft.md says where this implementation differs on purpose, and no test here claims otherwise.
"""

from raftlog.messages import acknowledgement, append_entries, install_snapshot, refusal, vote_request, vote_response
from raftlog.raft.group import Group

from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.messages import (
    AppendEntries,
    AppendResponse,
    Entry,
    PeerLive,
    PeerSilent,
    StartRound,
    Tick,
    VoteResponse,
)


def elected(*voters: int) -> Group:
    group = Group(voters or (1, 2, 3))
    group.elect()
    return group


def successor(group: Group, node: int) -> None:
    """Let `node` take over from node 1, which hears nothing of it."""
    others = [n for n in group.cores if n not in {1, node}]
    for n in (node, *others):
        group.step(n, PeerSilent(1))
    group.to_deadline(node)
    while True:
        group.lose(target=1)
        if not group.inbox:
            return
        group.deliver()


def test_5_1_stale_leader_steps_down() -> None:
    """If a candidate or leader discovers that its term is out of date, it immediately reverts to follower state."""
    group = elected()
    group.step(1, refusal(term=9, source=2, target=1))
    assert (group.cores[1].role, group.cores[1].term) == (Role.FOLLOWER, 9)


def test_5_1_stale_request_is_rejected() -> None:
    """If a server receives a request with a stale term number, it rejects the request."""
    group = elected()
    group.step(2, refusal(term=9, source=3, target=2))
    group.step(
        2,
        append_entries(
            term=1,
            source=1,
            target=2,
            prev_index=1,
            prev_term=1,
            commit_index=1,
            round=5,
            entries=[Entry(2, 1, b"old")],
        ),
    )
    (answer,) = group.inbox
    assert isinstance(answer, AppendResponse)
    assert (answer.rejected, answer.term) == (True, 9)
    assert group.values(2) == ["no-op"]


def test_5_2_servers_start_as_followers() -> None:
    """When servers start up, they begin as followers."""
    group = Group((1, 2, 3))
    assert {core.role for core in group.cores.values()} == {Role.FOLLOWER}


def test_5_2_heartbeats_keep_followers_following() -> None:
    """A server remains in follower state as long as it receives valid RPCs from a leader or candidate."""
    group = elected()
    for round_number in range(2, 40):
        group.now_ms += 900
        group.step(
            2, append_entries(term=1, source=1, target=2, prev_index=1, prev_term=1, commit_index=1, round=round_number)
        )
        group.step(2, Tick())
        assert group.cores[2].role is Role.FOLLOWER


def test_5_2_election_begins_with_own_vote_in_next_term() -> None:
    """To begin an election, a follower increments its current term and transitions to candidate state."""
    group = Group((1, 2, 3))
    group.to_deadline(1)
    group.step(1, vote_response(term=1, source=2, target=1, pre=True))
    core = group.cores[1]
    assert (core.role, core.term, core.voted_for) == (Role.CANDIDATE, 1, 1)


def test_5_2_majority_of_the_full_cluster_wins() -> None:
    """A candidate wins an election if it receives votes from a majority of the servers in the full cluster."""
    group = Group((1, 2, 3, 4))
    group.to_deadline(1)
    for peer in (2, 3):
        group.step(1, vote_response(term=1, source=peer, target=1, pre=True))
    group.step(1, vote_response(term=1, source=2, target=1))
    assert not group.cores[1].progress  # Two of four are no majority.
    group.step(1, vote_response(term=1, source=3, target=1))
    assert group.cores[1].role is Role.LEADER


def test_5_2_candidate_recognises_the_leader_of_its_term() -> None:
    """If the leader's term is at least as large as the candidate's, the candidate returns to follower state."""
    group = Group((1, 2, 3))
    group.to_deadline(1)
    group.step(1, vote_response(term=1, source=2, target=1, pre=True))
    group.step(1, append_entries(term=1, source=3, target=1))
    assert (group.cores[1].role, group.cores[1].leader_id) == (Role.FOLLOWER, 3)


def test_5_2_split_vote_ends_in_another_election() -> None:
    """Each candidate will time out and start a new election by incrementing its term."""
    group = Group((1, 2, 3, 4))
    group.to_deadline(1)
    for peer in (2, 3):
        group.step(1, vote_response(term=1, source=peer, target=1, pre=True))
    for peer, granted in ((2, True), (3, False), (4, False)):
        group.step(1, vote_response(term=1, source=peer, target=1, granted=granted))
    group.to_deadline(1)
    for peer in (2, 3):
        group.step(1, vote_response(term=2, source=peer, target=1, pre=True))
    assert group.cores[1].term == 2


def test_5_2_timeouts_are_random() -> None:
    """Election timeouts are chosen randomly from a fixed interval."""
    group = elected()
    drawn = {group.cores[2].election_timeout_ms() for _ in range(50)}
    assert len(drawn) > 20
    assert min(drawn) >= group.timing.election_timeout_ms


def test_5_3_committed_means_on_a_majority() -> None:
    """A log entry is committed once the leader that created the entry has replicated it on a majority."""
    group = elected(1, 2, 3, 4, 5)
    group.propose(1, "a")
    group.deliver(1, 2)
    group.deliver(2, 1)
    assert group.cores[1].commit_index == 1
    group.deliver(1, 3)
    group.deliver(3, 1)
    assert group.cores[1].commit_index == 2


def test_5_3_preceding_entries_are_committed_with_it() -> None:
    """This also commits all preceding entries in the leader's log, including those created by previous leaders."""
    group = elected()
    group.propose(1, "a")
    group.deliver(1, 2)  # Node 2 has it; nobody knows that it is on a majority.
    group.lose()
    successor(group, 2)
    assert group.values(3) == ["no-op", "a", "no-op"]
    assert group.cores[2].commit_index == 3


def test_5_3_followers_learn_the_commit_index() -> None:
    """Once a follower learns that a log entry is committed, it applies the entry (in log order)."""
    group = elected()
    group.propose(1, "a")
    group.settle()
    group.now_ms += 20
    if group.cores[1].deadline_ms is not None:
        group.to_deadline(1)
        group.settle()
    assert {core.commit_index for core in group.cores.values()} == {2}


def test_5_3_follower_refuses_what_does_not_follow() -> None:
    """If the follower does not find an entry with the same index and term, then it refuses the new entries."""
    group = elected()
    group.step(
        2,
        append_entries(
            term=1,
            source=1,
            target=2,
            prev_index=5,
            prev_term=1,
            commit_index=1,
            round=5,
            entries=[Entry(6, 1, b"far")],
        ),
    )
    (answer,) = group.inbox
    assert isinstance(answer, AppendResponse)
    assert answer.rejected
    assert group.values(2) == ["no-op"]


def test_5_3_conflicting_entries_are_overwritten() -> None:
    """Conflicting entries in follower logs will be overwritten with entries from the leader's log."""
    group = elected()
    group.propose(1, "never", "heard")
    group.lose()
    successor(group, 2)
    group.propose(2, "b")
    group.lose(target=1)
    group.settle()
    group.step(
        2, refusal(term=2, source=1, target=2, refused_index=3, round=group.cores[2].round, hint_index=3, hint_term=1)
    )
    group.settle()
    assert group.values(1) == group.values(2) == ["no-op", "no-op", "b"]


def test_5_3_leader_never_overwrites_its_own_log() -> None:
    """A leader never overwrites or deletes entries in its own log."""
    group = elected()
    group.propose(1, "a")
    before = group.values(1)
    group.step(1, refusal(term=1, source=2, target=1, refused_index=2, round=9))
    assert group.values(1) == before


def test_5_3_refusal_may_skip_a_whole_term() -> None:
    """One AppendEntries RPC will be required for each term with conflicting entries, rather than one per entry."""
    group = elected()
    group.propose(1, *(f"lost {number}" for number in range(50)))
    group.lose()
    successor(group, 2)
    asked = 0
    group.step(2, PeerLive(1))
    while group.inbox:
        asked += sum(isinstance(m, AppendEntries) and m.target == 1 for m in group.inbox)
        group.deliver()
    assert group.values(1) == group.values(2)
    assert asked <= 4


def test_5_4_1_voter_denies_a_less_complete_log() -> None:
    """The voter denies its vote if its own log is more up-to-date than that of the candidate."""
    group = elected()
    group.propose(1, "a")
    group.settle()
    group.inbox.clear()
    group.step(2, vote_request(term=7, source=3, target=2, last_index=1, last_term=1))
    (vote,) = group.inbox
    assert isinstance(vote, VoteResponse)
    assert not vote.granted


def test_5_4_2_entries_of_older_terms_are_not_committed_by_counting() -> None:
    """Only log entries from the leader's current term are committed by counting replicas (figure 8)."""
    group = elected()
    group.propose(1, "a")
    group.deliver(1, 2)
    group.lose()
    for n in (2, 3):
        group.step(n, PeerSilent(1))
    group.to_deadline(2)
    while group.cores[2].role is not Role.LEADER:
        group.lose(target=1)
        group.deliver()
    core = group.cores[2]
    group.step(2, acknowledgement(term=core.term, source=3, target=2, match_index=2))
    assert core.log.term_at(2) == 1
    assert core.commit_index < 2, "entry 2 is on a majority, but of term 1"
    group.step(2, acknowledgement(term=core.term, source=3, target=2, match_index=3))
    assert core.commit_index == 3


def test_5_5_repeated_append_is_harmless() -> None:
    """Raft RPCs are idempotent: a follower ignores entries that are already in its log."""
    group = elected()
    group.propose(1, "a", "b")
    append = next(m for m in group.inbox if m.target == 2)
    group.settle()
    for _ in range(3):
        ready = group.step(2, append)
        assert not ready.append
        assert ready.truncate_from is None
    assert group.values(2) == ["no-op", "a", "b"]


def test_7_snapshot_replaces_an_obsolete_log() -> None:
    """The follower discards its entire log; it is all superseded by the snapshot."""
    group = elected()
    ready = group.step(
        2, install_snapshot(term=1, source=1, target=2, snapshot_index=9, snapshot_term=1, data=b"state")
    )
    assert ready.install is not None
    assert group.cores[2].commit_index == 9
    assert (group.disks[2].log.first_index, group.disks[2].log.last_index) == (10, 9)


def test_7_snapshot_of_a_prefix_keeps_what_follows() -> None:
    """If the snapshot describes a prefix of its log, entries following the snapshot are still valid."""
    group = elected()
    group.propose(1, "a", "b")
    group.deliver(1, 2)
    ready = group.step(
        2, install_snapshot(term=1, source=1, target=2, snapshot_index=2, snapshot_term=1, data=b"state")
    )
    assert ready.install is None
    assert group.values(2) == ["no-op", "a", "b"]


def test_8_leader_starts_its_term_with_an_empty_entry() -> None:
    """Each leader commits a blank no-op entry into the log at the start of its term."""
    group = elected()
    assert group.values(1) == ["no-op"]
    assert group.cores[1].confirmed


def test_8_leader_checks_before_it_answers_a_read() -> None:
    """A leader exchanges heartbeat messages with a majority of the cluster before responding to read-only requests."""
    group = elected()
    group.step(1, StartRound())
    core = group.cores[1]
    asked_round = core.round
    assert core.answered_round < asked_round
    group.deliver()
    group.deliver(2, 1)
    assert core.answered_round >= asked_round


def test_figure_2_commit_index_is_the_lower_of_the_leaders_and_the_last_new_entry() -> None:
    """Set commitIndex = min(leaderCommit, index of last new entry)."""
    group = elected()
    group.propose(1, "a", "b")
    group.lose()
    group.step(
        2,
        append_entries(
            term=1, source=1, target=2, prev_index=1, prev_term=1, commit_index=3, round=5, entries=[Entry(2, 1, b"a")]
        ),
    )
    assert group.cores[2].commit_index == 2


def test_figure_2_existing_entries_are_not_appended_again() -> None:
    """Append any new entries not already in the log."""
    group = elected()
    group.propose(1, "a")
    group.settle()
    ready = group.step(
        2,
        append_entries(
            term=1,
            source=1,
            target=2,
            prev_index=1,
            prev_term=1,
            commit_index=2,
            round=9,
            entries=[Entry(2, 1, b"a"), Entry(3, 1, b"b")],
        ),
    )
    assert [entry.index for entry in ready.append] == [3]


def test_figure_2_a_late_append_truncates_nothing_that_agrees() -> None:
    """If an existing entry conflicts with a new one, delete it and all that follow it; only then."""
    group = elected()
    group.propose(1, "a", "b")
    group.settle()
    ready = group.step(
        2,
        append_entries(
            term=1, source=1, target=2, prev_index=1, prev_term=1, commit_index=1, round=9, entries=[Entry(2, 1, b"a")]
        ),
    )
    assert ready.truncate_from is None
    assert group.values(2) == ["no-op", "a", "b"]


def test_figure_2_state_is_saved_before_an_answer_rests_on_it() -> None:
    """Persistent state is updated on stable storage before responding to RPCs."""
    group = Group((1, 2, 3))
    ready = group.cores[2].step(vote_request(term=1, source=1, target=2), 0)
    assert ready.hard_state is not None
    assert (ready.hard_state.term, ready.hard_state.voted_for) == (1, 1)
    assert not ready.messages
    assert [type(message) for message in ready.messages_after_persist] == [VoteResponse]


def test_figure_2_heartbeats_go_to_everybody_upon_election() -> None:
    """Upon election: send initial AppendEntries to each server; here they carry the no-op."""
    group = Group((1, 2, 3))
    group.connect()
    group.to_deadline(1)
    while group.cores[1].role is not Role.LEADER:
        group.deliver()
    assert {message.target for message in group.inbox if isinstance(message, AppendEntries)} == {2, 3}


def test_5_2_a_server_votes_once_in_a_term_first_come_first_served() -> None:
    """Each server votes for at most one candidate in a given term, on a first-come-first-served basis."""
    group = Group((1, 2, 3))
    group.step(3, vote_request(term=1, source=1, target=3))
    group.step(3, vote_request(term=1, source=2, target=3))
    group.step(3, vote_request(term=1, source=1, target=3))
    votes = [message for message in group.inbox if isinstance(message, VoteResponse)]
    assert [(vote.target, vote.granted) for vote in votes] == [(1, True), (2, False), (1, True)]


def test_5_4_1_the_later_last_term_wins_over_the_longer_log() -> None:
    """If the logs have last entries with different terms, the log with the later term is more up-to-date."""
    group = elected()
    group.propose(1, "a", "b", "c")
    group.settle()
    group.lose()
    for node in (2, 3):
        group.step(node, PeerSilent(1))
    group.step(2, vote_request(term=5, source=3, target=2, last_index=2, last_term=4))
    (vote,) = [message for message in group.inbox if isinstance(message, VoteResponse)]
    assert vote.granted


def test_5_6_a_crashed_server_comes_back_with_what_was_durable() -> None:
    """Servers restart with their term, vote and log."""
    group = elected()
    group.propose(1, "a")
    group.settle()
    group.restart_as_after_a_crash(2)
    core = group.cores[2]
    assert (core.term, core.log.last_index, core.role) == (1, 2, Role.FOLLOWER)
    assert group.values(2) == ["no-op", "a"]


def test_7_snapshot_carries_the_configuration() -> None:
    """The snapshot includes the latest configuration in the log as of the last included index."""
    group = elected(1, 2)
    group.join(3)
    group.change(1, group.configuration({1, 2}, {3}))
    group.settle()
    group.disks[1].log.drop_prefix(group.cores[1].commit_index)
    group.step(1, PeerLive(3))
    group.settle()
    assert group.cores[3].log.configuration == group.configuration({1, 2}, {3})
    assert group.disks[3].log.first_index > 1
