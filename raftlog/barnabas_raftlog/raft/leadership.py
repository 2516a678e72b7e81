"""Makes sure that a leader leads; lets it fall silent, and hand over. Pure.

*CheckQuorum* (thesis 6.2): an active leader that no majority has answered for an election timeout steps down, so that
clients of a cut-off leader learn it within that time; within twice that time if its own node is behind in reading.

*Quiescence* (not in the paper): once every live member has everything and everything is committed, the leader says so
once (`quiesce`) and nobody sends or waits for anything any more. From then on trust rests on node liveness:
`PeerSilent`, `PeerLive` and `PeerDigest` wake the groups that they concern. A leader at rest that keeps a majority need
do nothing about the loss of a member, nor about its return with the same log (`reconnect`). A member that was not told,
or did not hear, keeps its timer, asks for pre-votes after an election timeout, and so wakes the leader (`on_missed`).
The same message carries the commit index, so it is sent as soon as everything is in place; but not while proposals
follow each other within 20 ms (`REST_MS`): the next one's append carries the index, too, and a steady stream need not
pay for it.

*Liveness of a member* is what the driver reports, corrected by experience: any answer proves life, and an active leader
goes on without a member that has not answered for an election timeout. Nobody will report that member live again, and
it may itself still trust the leader in silence; so it is asked again from time to time, without waking anybody else.

*Confirmation*: a new leader has confirmed its leadership when an entry of its own term is committed. After a stall it
must also be answered by a majority in a round begun afterwards.
"""

from . import election
from .messages import AppendResponse, PeerLive, PeerSilent, TimeoutNow, TransferLeadership
from .progress import Progress, ProgressState
from .quorum import majority
from .replication import advance_commit, broadcast, confirm, heartbeat, may_send, on_answer, replicate
from .state import REST_MS, RaftState, Role
from .uncertainty import note_answer
from .witness import cannot_feed_anyone, releasable_index, successor_of

__all__ = [
    "mark_lost",
    "on_append_response",
    "on_deadline",
    "on_entries_loaded",
    "on_missed",
    "on_peer_live",
    "on_peer_silent",
    "on_persisted",
    "on_proposed",
    "on_stalled",
    "on_start_round",
    "on_transfer",
    "tell_witnesses",
]

INTERVALS_UNANSWERED = 3  # between heartbeats to one that does not answer; an election timeout is ten


def on_proposed(raft: RaftState) -> None:
    """Send what the driver has appended to the log."""
    assert raft.ends is not None
    raft.ends.note(raft.log.last_index, raft.now_ms)
    if raft.now_ms < raft.rest_ms:
        raft.rest_ms = max(raft.rest_ms, raft.now_ms + REST_MS)
    if not raft.peers:
        advance_commit(raft)  # With a log that is durable at once there may be no `Persisted`.
        return
    if raft.quiescent:
        _wake(raft)
    broadcast(raft)


def on_persisted(raft: RaftState) -> None:
    """The leader's own disk counts like anybody else's."""
    advance_commit(raft)
    if raft.is_lone_voter and may_send(raft):
        broadcast(raft)
    if raft.quiescent:
        if raft.witnesses:
            tell_witnesses(raft)  # The others may have been quicker than this disk.
    elif raft.commit_index == raft.log.last_index:
        _fall_silent_when_done(raft)


def on_append_response(raft: RaftState, response: AppendResponse) -> None:
    """Note a sign of life, then what it says."""
    progress = raft.progress.get(response.source)
    if progress is None:
        return
    if progress.directory_id != response.directory_id and not raft.is_of(response.source, response.directory_id):
        mark_lost(raft, progress)
        return
    progress.last_answer_ms = raft.now_ms
    if response.round <= raft.round:  # else it answers what was never asked
        progress.round = max(progress.round, response.round)
    if not progress.live:
        _mark_live(raft, progress)
    elif raft.quiescent and (response.rejected or response.uncertain or response.match_index < raft.log.last_index):
        _wake(raft)
    if response.uncertain != progress.uncertain:
        if not note_answer(raft, progress, response):
            return
        if not progress.uncertain:
            advance_commit(raft)
    on_answer(raft, progress, response)
    if raft.is_witness and response.rejected and cannot_feed_anyone(raft):
        raft.lacks_beginning = True
        election.become_follower(raft, raft.term, "a witness has forgotten what every full voter has lost")
        return
    if not raft.confirmed:
        confirm(raft)
    if raft.commit_index == raft.log.last_index:
        _fall_silent_when_done(raft)


def on_entries_loaded(raft: RaftState) -> None:
    """Go on where the log had to be read from disk."""
    for progress in raft.progress.values():
        if progress.loading:
            progress.loading = False
            replicate(raft, progress)


def on_deadline(raft: RaftState, *, is_behind: bool = False) -> None:
    """Heartbeat: check the quorum, drop members that do not answer, retry a transfer, fall silent or be heard.

    `is_behind`: answers may be waiting in this node's own queue. They get another timeout, and no more.
    """
    now_ms = raft.now_ms
    timeout_ms = raft.timing.election_timeout_ms * (1 + is_behind)
    if raft.quiescent:
        _remind_missed(raft)
        return
    if now_ms - raft.active_since_ms >= timeout_ms:
        oldest_ms = now_ms - timeout_ms
        answered = [p for p in raft.progress.values() if p.last_answer_ms >= oldest_ms]
        if sum(p.is_voter for p in answered) + raft.is_voter < majority(len(raft.voters)):
            heard = [p.peer for p in answered if p.is_voter]
            cause = f"no majority of {sorted(raft.voters)} answered within {timeout_ms} ms, only {heard}"
            election.become_follower(raft, raft.term, cause)
            return
        for progress in raft.progress.values():
            if progress.live and progress.last_answer_ms < oldest_ms:
                _mark_silent(raft, progress)
                progress.is_missed = True
    _pursue_transfer(raft)
    raft.deadline_ms = now_ms + raft.timing.heartbeat_interval_ms
    if not _fall_silent_when_done(raft):
        _heartbeats(raft, only_if_due=True)


def _heartbeats(raft: RaftState, *, only_if_due: bool) -> None:
    if not may_send(raft):
        return
    raft.round += 1
    interval_ms = raft.timing.heartbeat_interval_ms
    due_ms = raft.now_ms - interval_ms
    overdue_ms = raft.now_ms - interval_ms * INTERVALS_UNANSWERED
    for progress in raft.progress.values():
        # Appends do for heartbeats while they are sent and answered. A member that has not got round to answering the
        # last one is only kept longer from it by another; but a slow disk answers only heartbeats.
        heard_ms = max(progress.last_answer_ms, raft.active_since_ms)
        is_answered = progress.last_answer_ms >= progress.last_sent_ms
        is_due = progress.last_sent_ms <= (due_ms if is_answered else overdue_ms) or heard_ms <= overdue_ms
        if is_due or not only_if_due:
            heartbeat(raft, progress)


def _wake(raft: RaftState) -> None:
    """End quiescence: from now on answers are expected, and their absence means something."""
    assert raft.role is Role.LEADER
    if not raft.quiescent:
        return
    raft.quiescent = False
    raft.active_since_ms = raft.now_ms
    raft.deadline_ms = raft.now_ms + raft.timing.heartbeat_interval_ms


def _fall_silent_when_done(raft: RaftState) -> bool:
    """Fall silent if nothing is left to do, or see to it that this is asked again soon."""
    last_index = raft.log.last_index
    has_work = raft.commit_index != last_index or raft.out_repeat_members or raft.transfer_target is not None
    if raft.quiescent or not raft.confirmed or has_work:
        return raft.quiescent
    if raft.is_witness:
        _hand_on(raft)
        return False
    if raft.asked_round:
        if raft.answered_round < raft.asked_round:
            return False
        raft.asked_round = 0
    # A leader that is no voter any more is about to leave: nobody must go on trusting it in silence.
    if not raft.peers or not raft.is_voter or not _all_have_everything(raft):
        return False
    if raft.now_ms < raft.rest_ms:
        if raft.deadline_ms is None or raft.rest_ms < raft.deadline_ms:
            raft.deadline_ms = raft.rest_ms
        return False
    raft.rest_ms = raft.now_ms + REST_MS
    raft.quiescent = True
    raft.round += 1
    for progress in raft.progress.values():
        if progress.live:
            heartbeat(raft, progress, quiesce=True)
    _remind_missed(raft)
    return True


def _all_have_everything(raft: RaftState) -> bool:
    """Tell whether no live member lacks anything, and the live ones are a majority."""
    live_voter_count = int(raft.is_voter)
    last_index = raft.log.last_index
    for progress in raft.progress.values():
        if progress.live:
            if progress.match_index != last_index or progress.uncertain:
                return False
            live_voter_count += progress.is_voter
    return live_voter_count >= majority(len(raft.voters))


def tell_witnesses(raft: RaftState, returned: Progress | None = None) -> None:
    """Say at rest what witnesses may forget: to one that returned, and to all if a full voter had kept it back.

    A farewell said again wakes nobody, is not answered, and may be lost: then it is said with the next entry.
    """
    before_index = raft.released_index
    is_news = releasable_index(raft) > before_index
    for progress in raft.progress.values():
        if progress.is_witness and progress.live and (is_news or progress is returned):
            heartbeat(raft, progress, quiesce=True)


def _remind_missed(raft: RaftState) -> None:
    """Ask those that stopped answering, though their nodes run; five times slower than one gives up on a leader."""
    raft.deadline_ms = None
    for progress in raft.progress.values():
        if progress.is_missed:
            heartbeat(raft, progress)
            raft.deadline_ms = raft.now_ms + 5 * raft.timing.election_timeout_ms


def _mark_live(raft: RaftState, progress: Progress) -> None:
    progress.live = True
    progress.is_missed = False
    raft.silent.discard(progress.peer)
    _wake(raft)


def _mark_silent(raft: RaftState, progress: Progress) -> None:
    """Send it nothing but heartbeats until it answers."""
    progress.live = False
    progress.is_missed = False
    raft.silent.add(progress.peer)
    if progress.state is ProgressState.REPLICATE:
        progress.become_probe(progress.match_index + 1)


def mark_lost(raft: RaftState, progress: Progress) -> None:
    """Drop a member whose promises went with its disk; the node that has its id now is somebody else (KIP-853)."""
    if not progress.is_lost:
        progress.is_lost = True
        raft.note("member lost", f"node {progress.peer} answers with another disk than the one it was added with")
    if progress.live or progress.is_missed:
        _wake(raft)
        _mark_silent(raft, progress)


def on_peer_silent(raft: RaftState, event: PeerSilent) -> None:
    """Go on without it; awake, unless a majority is there all the same, which has everything already.

    A leader at rest is judged by when a majority was last heard, not by when the silence was noticed: else the requests
    of clients to a leader that is cut off, and all behind them on their connections, would wait for another election
    timeout.
    """
    progress = raft.progress.get(event.peer)
    if progress is None:
        return
    others = [other for other in raft.progress.values() if other is not progress]
    live_voter_count = sum(other.is_voter and other.live for other in others) + raft.is_voter
    has_majority = live_voter_count >= majority(len(raft.voters))
    if raft.quiescent and (progress.is_missed or not has_majority):
        _wake(raft)
        if not has_majority:
            raft.active_since_ms -= event.for_ms
    _mark_silent(raft, progress)


def on_peer_live(raft: RaftState, event: PeerLive) -> None:
    """Ask a returned member where it is; acknowledgements of its predecessor on that link count for nothing."""
    progress = raft.progress.get(event.peer)
    if progress is None:
        return
    _wake(raft)
    _mark_live(raft, progress)
    progress.forget_match(raft.now_ms)
    progress.become_probe(raft.log.last_index + 1)
    if may_send(raft):
        heartbeat(raft, progress)


def on_start_round(raft: RaftState) -> None:
    """Ask everybody at once whether this node still leads; `answered_round` will tell."""
    if raft.peers:
        _wake(raft)
        _heartbeats(raft, only_if_due=False)
        raft.asked_round = raft.round  # Awake until a majority has answered: its absence must be noticed.


def on_missed(raft: RaftState) -> None:
    """Be heard by all members: one of them has asked for pre-votes, which wakes those that trusted in silence.

    Its question may reach them after this leader's next word. If that were the one that ends in silence, they would
    miss the leader in turn, and wake others, for ever. So this leader is heard for an election timeout.
    """
    on_start_round(raft)
    raft.rest_ms = max(raft.rest_ms, raft.now_ms + raft.timing.election_timeout_ms)


def on_stalled(raft: RaftState) -> None:
    """Begin to judge anew, and be sure of nothing before a majority has answered a round begun now."""
    raft.active_since_ms = raft.now_ms
    raft.confirmed = False
    raft.confirm_round = raft.round + 1
    if raft.is_lone_voter:
        raft.round += 1
        confirm(raft)
    on_start_round(raft)


def on_transfer(raft: RaftState, event: TransferLeadership) -> None:
    """Begin to hand over; until it succeeds or an election timeout passes, the driver should not propose."""
    progress = raft.progress.get(event.peer)
    if progress is None or not progress.is_voter or progress.is_witness or not raft.confirmed:
        raft.note("transfer refused", f"node {event.peer} is not another full voter, or leadership is not confirmed")
        return
    raft.note("transfer", f"to node {event.peer}")
    _wake(raft)
    raft.transfer_target = event.peer
    raft.transfer_deadline_ms = raft.now_ms + raft.timing.election_timeout_ms
    _pursue_transfer(raft)


def _hand_on(raft: RaftState) -> None:
    """Let a full voter lead as soon as one has everything: this node is a witness, and serves nobody."""
    successor = successor_of(raft)
    if successor is not None and successor.match_index == raft.log.last_index:
        on_transfer(raft, TransferLeadership(successor.peer))


def _pursue_transfer(raft: RaftState) -> None:
    """Tell the target to stand if it has everything; give up when the time is over."""
    target = raft.transfer_target
    if target is None:
        return
    if raft.now_ms >= raft.transfer_deadline_ms:
        raft.transfer_target = None
        raft.note("transfer failed", f"node {target} did not take over within an election timeout")
    elif raft.progress[target].match_index == raft.log.last_index:
        raft.out_messages.append(TimeoutNow(raft.term, raft.node_id, target))
