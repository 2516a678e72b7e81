"""Finds a leader for a group: pre-vote, vote, and when to stand. Pure.

Raft paper 5.2 and 5.4.1; thesis 3.10 (transfer), 4.2.3 and 9.6 (pre-vote). A member that misses its leader first asks
whether it *could* win: nobody's term or vote changes for that, so a member that was merely cut off disturbs nobody when
it returns. A member that trusts a live leader says no; that is leader stickiness. Only with a majority of such
promises, or when all have said as much already (`consent`), does it enter a new term and ask for real votes.

*Votes.* A real vote is given once a term, to a log at least as current as one's own, and leaves this node only when it
is on disk. A candidate's own vote counts at once, because the requests that make it matter wait for the disk too. A
lone voter needs nobody else's vote; `replication.may_send` says what waits instead.

*Timers.* A follower stands if it has not heard from its leader for an election timeout; almost at once, and in its turn
(`RaftState.stand_in_turn`), if the leader's node is reported silent; within 400 ms if there is no leader at all. The
preferred replica is always early, so that leaderships return to where they were planned; a witness waits longest; a
learner only asks. All waits are longer by a round trip or two if nodes are far apart. Failed attempts wait longer each
time (`campaign`), failed elections make everybody wait longer (`RaftState.ballot_ms`).

*The voters* are those of the newest configuration in the candidate's log. A node that is asked answers, member or not
(thesis 4.1): a learner may have been promoted by an entry that it has not got yet, and without its vote nobody could
ever send it. A vote counts only with the directory id that the candidate knows of that voter.
"""

from .consent import has_consent, term_to_stand_in
from .log_ends import LogEnds
from .membership import Member
from .messages import (
    TERM_MAX,
    LeadershipEnded,
    PeerLive,
    PeerSilent,
    Removed,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from .progress import Progress
from .quorum import majority
from .state import RaftState, Role
from .uncertainty import has_won, note_elected
from .witness import should_yield_to_us

__all__ = [
    "become_follower",
    "campaign",
    "follow",
    "on_deadline",
    "on_leadership_ended",
    "on_peer_live",
    "on_peer_silent",
    "on_removed",
    "on_stalled",
    "on_timeout_now",
    "on_vote_request",
    "on_vote_response",
    "removed",
]

PARDONS_MAX = 3  # stalls after which a leader is given more time, one after the other, without having been heard


def on_deadline(raft: RaftState) -> None:
    """Act on the passed deadline of a follower or candidate."""
    timeout_ms = raft.timing.election_timeout_ms
    if raft.leader_id is not None and raft.now_ms - raft.heard_ms < timeout_ms:
        # Appends only note the time; the deadline follows here, which spares them a random number each.
        raft.deadline_ms = raft.heard_ms + raft.election_timeout_ms()
        return
    cause = "no leader known"
    if raft.role is Role.CANDIDATE:
        cause = "no majority " + ("of pre-votes" if raft.pre_voting else "of votes")
    elif raft.leader_id is not None:
        cause = f"leader {raft.leader_id} not heard for {raft.now_ms - raft.heard_ms} ms"
    campaign(raft, cause, pre=not (raft.consents and has_consent(raft)))


def campaign(raft: RaftState, cause: str, *, pre: bool, transfer: bool = False) -> None:
    """Ask every voter for a pre-vote, or enter a new term and ask for a vote.

    A learner asks for a pre-vote too, which nobody grants: it is how a leader learns that it is missed. Nobody stands
    for a term that no entry can have. Each failed attempt doubles the wait, up to about an election timeout, so that
    slow disks and links do not keep candidates cutting each other off.
    """
    assert raft.role is not Role.LEADER
    stands = raft.may_stand
    assert stands or pre
    if raft.term >= TERM_MAX:
        if not raft.attempts:
            raft.note("no term left", f"{cause}, and terms end at {TERM_MAX}")
        raft.attempts += 1
        raft.deadline_ms = raft.now_ms + raft.election_timeout_ms()
        return
    if (pre or transfer or raft.consents) and not raft.attempts:
        raft.note("campaign" if stands else "leader missed", cause)
    raft.role = Role.CANDIDATE if stands else Role.FOLLOWER
    raft.leader_id = None
    raft.quiescent = False
    raft.pre_voting = pre
    # A candidate that its own newest configuration leaves out does not count itself in that one.
    votes_itself = raft.is_voter or raft.rivals.has_voter(raft.member)
    raft.votes = {raft.node_id} if votes_itself else set[int]()
    raft.refusals = set[int]()
    raft.doubtful = {raft.node_id} if raft.uncertain else set[int]()
    raft.blank = {raft.node_id} if raft.is_blank else set[int]()
    if pre:
        longest_ms = raft.timing.election_timeout_ms // 2 + raft.round_trip.ms
        retry_ms = min(raft.retry_ms << min(raft.attempts, 16), longest_ms)
        raft.attempts += 1
        raft.deadline_ms = raft.now_ms + raft.rng.randrange(retry_ms, 3 * retry_ms)
    else:
        raft.term = term_to_stand_in(raft)
        raft.voted_for = raft.node_id
        raft.consents = ()
        _forget_verified(raft)
        raft.ballots += 1
        raft.deadline_ms = raft.now_ms + raft.rng.randrange(raft.ballot_ms // 2, raft.ballot_ms)
    if raft.is_lone_voter and not raft.is_blank:
        _on_majority(raft)
        return
    _request_votes(raft, pre=pre, transfer=transfer)


def _request_votes(raft: RaftState, *, pre: bool, transfer: bool) -> None:
    """Ask every voter in the name of the campaign that has just begun."""
    outbox = raft.out_messages if pre else raft.out_after_persist
    for peer in sorted((raft.voters | raft.rivals.voter_ids) - {raft.node_id}):
        outbox.append(
            VoteRequest(
                term=raft.term + pre,
                source=raft.node_id,
                target=peer,
                last_index=raft.log.last_index,
                last_term=raft.log.last_term,
                pre=pre,
                transfer=transfer,
                is_learner=not raft.may_stand,
            )
        )


def on_vote_request(raft: RaftState, request: VoteRequest) -> None:
    """Judge a candidate: once a term, and only a log at least as current as ours (5.4.1)."""
    is_member = request.source in raft.directories
    raft.silent.discard(request.source)
    if not is_member:
        _tell_removed(raft, request.source)
    if request.pre and request.source == raft.leader_id and request.term > raft.term:
        # A node that stands does not lead. If it were refused because we trust it, a group could wait for ever.
        _lose_leader(raft, f"node {request.source} stands for election")
        raft.stand_without_leader()
    log = raft.log
    log_is_current = (request.last_term, request.last_index) >= (log.last_term, log.last_index)
    if request.pre:
        granted = log_is_current and not request.is_learner and request.term > raft.term and not raft.trusts_leader()
        granted = granted and not should_yield_to_us(raft, request)
        # A granted pre-vote echoes the term asked about, a refused one says ours.
        term = request.term if granted else raft.term
        raft.out_messages.append(_answer(raft, request, term, granted=granted))
        if raft.quiescent and is_member and raft.role is Role.FOLLOWER:
            # Somebody misses the leader we trust in silence: hear from it, or agree.
            raft.expect_leader()
        return
    assert request.term <= raft.term, "step() has already caught up to newer terms"
    granted = (
        log_is_current
        and request.term == raft.term
        and (raft.voted_for == request.source or (raft.voted_for is None and raft.leader_id is None))
    )
    if granted and raft.leader_id is None:
        raft.voted_for = request.source
        raft.role = Role.FOLLOWER
        raft.ballots += 1
        raft.deadline_ms = raft.now_ms + raft.ballot_ms - raft.timing.election_timeout_ms + raft.election_timeout_ms()
    # Waits for the disk even if it repeats an earlier answer: that one's save may still be under way.
    raft.out_after_persist.append(_answer(raft, request, raft.term, granted=granted))


def _answer(raft: RaftState, request: VoteRequest, term: int, *, granted: bool) -> VoteResponse:
    index = min(raft.commit_index, request.last_index) if raft.log.may_forget else 0
    return VoteResponse(
        term=term,
        source=raft.node_id,
        target=request.source,
        granted=granted,
        pre=request.pre,
        directory_id=raft.directory_id,
        uncertain=raft.uncertain > 0,
        commit_index=index,
        commit_term=raft.log.term_at(index) or 0,
        blank=raft.is_blank,
    )


def _tell_removed(raft: RaftState, source: int) -> None:
    """Answer a stranger that it is no member, if that is committed: else it would ask for ever."""
    committed = raft.log.configuration_at(raft.commit_index)
    if committed.voters and committed.member(source) is None:
        raft.out_messages.append(removed(raft, source))


def removed(raft: RaftState, node_id: int) -> Removed:
    """Return the word that a node is no member by the last entry that is known to be committed here."""
    index = raft.commit_index
    return Removed(
        term=raft.term,
        source=raft.node_id,
        target=node_id,
        index=index,
        index_term=raft.log.term_at(index) or 0,
    )


def on_removed(raft: RaftState, message: Removed) -> None:
    """Wait for nothing any more, unless the log here has a configuration that may be newer."""
    if raft.role is Role.LEADER:
        return
    raft.removed_at = max(raft.removed_at, (message.index_term, message.index))
    was_outside = raft.is_outside
    raft.refresh_membership()
    if raft.is_outside and not was_outside:
        raft.note("removed", f"no member at committed entry {message.index}, says node {message.source}")
        become_follower(raft, raft.term, "removed")


def on_vote_response(raft: RaftState, response: VoteResponse) -> None:
    """Count a vote or a pre-vote for the campaign that is under way; other answers say only what is committed."""
    raft.silent.discard(response.source)
    if raft.role is not Role.CANDIDATE or response.pre != raft.pre_voting:
        return
    voter = Member(response.source, response.directory_id)
    if not raft.configuration.has_voter(voter) and not raft.rivals.has_voter(voter):
        return  # Also if it comes from the right node with another disk: that one never voted before.
    if response.commit_index > raft.commit_index and not _learn_committed(raft, response):
        return
    if response.term >= raft.term:
        # Else it is of an earlier campaign, or from one that has left and hears of no terms any more.
        _count(raft, response)
    needed = majority(len(raft.voters))
    if has_won(raft):
        _on_majority(raft)
    elif not raft.pre_voting and len(raft.voters - raft.refusals - raft.silent) < needed:
        # Lost. To wait for the whole timeout after a split vote would only make the outage longer. But nodes that are
        # so slow that they always stand in the same moment must draw their waits from a longer time.
        retry_ms = raft.retry_ms << min(max(raft.ballots - 2, 0), 5)
        raft.stand_within(retry_ms, 3 * retry_ms, preferred_ms=retry_ms)


def _count(raft: RaftState, response: VoteResponse) -> None:
    if not response.granted:
        raft.refusals.add(response.source)
    elif response.term == raft.term + raft.pre_voting:
        raft.votes.add(response.source)
        if response.uncertain:
            raft.doubtful.add(response.source)
        if response.blank:
            raft.blank.add(response.source)


def _learn_committed(raft: RaftState, response: VoteResponse) -> bool:
    """Take in what a voter knows to be committed; False if this node is no voter by that, and stands no longer.

    Equal index and term: it is committed here, too (5.3). A member that has left the group may have the longest log of
    all: it refuses every vote, stands no more, and is still asked while those that stay do not know that it may leave.
    """
    index = response.commit_index
    if raft.log.term_at(index) == response.commit_term:
        raft.commit_index = index
        raft.verified_index = max(index, raft.verified_index)
        raft.refresh_membership()
        if not raft.may_stand:
            become_follower(raft, raft.term, "no voter")
    return raft.role is Role.CANDIDATE


def _on_majority(raft: RaftState) -> None:
    if raft.pre_voting:
        campaign(raft, "pre-votes", pre=False)
    else:
        _become_leader(raft)


def _become_leader(raft: RaftState) -> None:
    """Lead. The no-op that the driver appends next announces it, so no heartbeat is sent here."""
    assert raft.role is Role.CANDIDATE
    assert not raft.pre_voting
    raft.role = Role.LEADER
    raft.leader_id = raft.node_id
    raft.led_term = raft.term
    raft.attempts = 0
    raft.ballots = 0
    raft.term_start_index = raft.log.last_index + 1
    raft.ends = LogEnds(raft.log.last_index, raft.timing.heartbeat_interval_ms)
    raft.progress = {
        peer: Progress(
            peer=peer,
            directory_id=raft.directories[peer],
            ends=raft.ends,
            next_index=raft.term_start_index,
            now_ms=raft.now_ms,
            is_voter=peer in raft.voters,
            live=peer not in raft.silent,
            is_witness=peer in raft.witnesses,
        )
        for peer in raft.peers
    }
    raft.round = 0
    raft.confirm_round = 0
    raft.asked_round = 0
    raft.active_since_ms = raft.now_ms
    raft.deadline_ms = raft.now_ms + raft.timing.heartbeat_interval_ms if raft.peers else None
    raft.out_append_no_op = True
    raft.note("leader elected", f"votes of {sorted(raft.votes)}")
    note_elected(raft)


def become_follower(raft: RaftState, term: int, cause: str) -> None:
    """Follow nobody yet, in `term`. A leader tells the members first, in the term that it led."""
    assert term >= raft.term
    was_deposed = raft.role is Role.LEADER and term > raft.term
    if raft.role is Role.LEADER:
        raft.out_messages += [LeadershipEnded(raft.term, raft.node_id, peer) for peer in raft.peers]
        raft.note("leadership ended", cause)
        raft.progress = {}
        raft.ends = None
        raft.confirmed = False
        raft.out_repeat_members = False
        raft.transfer_target = None
        raft.deadline_ms = None
        _forget_verified(raft)
    if term > raft.term:
        raft.term = term
        raft.voted_for = None
        raft.consents = ()
        _forget_verified(raft)
    raft.role = Role.FOLLOWER
    raft.leader_id = None
    raft.quiescent = False
    # An active follower keeps its deadline: other people's elections must not put off its own for ever.
    if was_deposed:
        # Somebody leads by now, and will say so: also a preferred replica waits for that.
        raft.deadline_ms = raft.now_ms + raft.rng.randrange(150, 401) + 2 * raft.round_trip.ms
    elif raft.deadline_ms is None:
        raft.stand_without_leader()


def follow(raft: RaftState, leader_id: int) -> None:
    """Take `leader_id` for the leader of the current term: its message is in hand."""
    assert raft.role is not Role.LEADER, f"nodes {raft.node_id} and {leader_id} both lead in term {raft.term}"
    raft.role = Role.FOLLOWER
    raft.leader_id = leader_id
    raft.attempts = 0
    raft.ballots = 0
    raft.given_up.clear()
    raft.consents = ()
    raft.silent.discard(leader_id)
    raft.note("following", f"node {leader_id} leads")
    raft.expect_leader()


def _forget_verified(raft: RaftState) -> None:
    """A new term may have a new leader, whose log is known equal to ours only where entries are committed."""
    raft.verified_index = raft.commit_index
    raft.reported_index = 0
    raft.leader_round = 0


def on_stalled(raft: RaftState) -> None:
    """Give the leader another election timeout to be heard: neither this node nor, maybe, the leader has run.

    A leader has `PARDONS_MAX` of these, and then must have been heard. A node that is always slow notices a stall at
    every tick, and would wait for ever for a leader that is gone. Without a leader there is nobody to wait for: what
    came meanwhile has been read, a pre-vote disturbs nobody, and a wait that begins anew with each stall has no end.
    """
    if raft.leader_id is None or raft.deadline_ms is None or raft.is_lone_voter:
        return
    if raft.heard_ms != raft.pardoned_ms:
        raft.pardons = 0
    if raft.pardons < PARDONS_MAX:
        raft.pardons += 1
        raft.expect_leader()
        raft.pardoned_ms = raft.heard_ms


def on_timeout_now(raft: RaftState, message: TimeoutNow) -> None:
    """The leader wants this node to take over: stand at once, without a pre-vote."""
    if raft.may_stand and not raft.is_witness and message.source == raft.leader_id:
        campaign(raft, f"leader {message.source} hands over", pre=False, transfer=True)


def on_leadership_ended(raft: RaftState, message: LeadershipEnded) -> None:
    """Stop trusting a leader that says it does not lead."""
    if message.source == raft.leader_id and message.term >= raft.term:
        _lose_leader(raft, f"node {message.source} says it no longer leads")
        raft.stand_in_turn(message.source, 71, 151, 21)


def on_peer_silent(raft: RaftState, event: PeerSilent) -> None:
    """Stop trusting a leader whose node is gone; stand almost at once."""
    raft.silent.add(event.peer)
    raft.consents = ()
    if event.peer == raft.leader_id:
        _lose_leader(raft, f"node {event.peer} fell silent")
        raft.stand_in_turn(event.peer, 11, 51, 11)


def on_peer_live(raft: RaftState, event: PeerLive) -> None:
    """Expect a returning leader to say so; without a leader, a voter more is a reason to try."""
    raft.silent.discard(event.peer)
    raft.given_up.discard(event.peer)
    if event.peer == raft.leader_id:
        raft.expect_leader()
    elif raft.leader_id is None and event.peer in raft.voters:
        raft.stand_within(50 + raft.round_trip.ms, 201 + raft.round_trip.ms, preferred_ms=21)
    if raft.led_term:
        # It may have missed that we no longer lead.
        raft.out_messages.append(LeadershipEnded(raft.led_term, raft.node_id, event.peer))


def _lose_leader(raft: RaftState, cause: str) -> None:
    """Trust nobody any more; the caller says within which time to stand, which also ends the silence."""
    raft.leader_id = None
    raft.note("leader lost", cause)
