"""One Raft group as one node sees it: `RaftCore.step(event, now_ms)` is the whole interface. Pure.

The driver owns the log and the links. It steps one event, carries out the `Ready` in its documented order with no
`await` in between, and reports what the disk has finished as one more event. The core reads the log through
`LogReader` and never changes it; an entry is an index, a term and a size.

Two rules stand here because no handler may forget them. The promises that must survive a crash (term, vote) are
compared before and after every step; if they changed, they are saved, and everything said in that step waits for the
save (thesis 3.8). And a newer term in any message makes this node a follower of that term (paper 5.1), except for
questions about a term that nobody has entered yet: a pre-vote, and its granted answer.

`docs/raft.md` says where this differs from the paper, and what that costs. Reading order: `messages`, `state`,
`quorum`, `consent`, `election`, `follower`, `progress`, `replication`, `leadership`, `reconnect`, `membership_change`.

The log says who the members are, at the beginning of every step: a configuration holds from where it stands in the log,
committed or not, and truncation takes it back (thesis 4.1). `membership_change` has the rules.

Not here: joint consensus (one voter changes at a time), leases on a clock (a round through the network confirms
leadership), and Byzantine members: a message that contradicts what is certain is refused (`refusals`), all else is
believed.
"""

from collections.abc import Callable
from typing import Any

from . import election, follower, leadership, membership_change, reconnect, refusals, uncertainty
from .membership import Configuration
from .messages import (
    AppendEntries,
    AppendResponse,
    Campaign,
    EntriesLoaded,
    Event,
    GiveUp,
    HardState,
    InstallSnapshot,
    LeadershipEnded,
    PeerDigest,
    PeerLive,
    PeerSilent,
    Persisted,
    Proposed,
    Ready,
    Removed,
    Stalled,
    StartRound,
    Tick,
    TimeoutNow,
    TransferLeadership,
    VoteRequest,
    VoteResponse,
)
from .state import RaftState, Role, SnapshotSource, Timing

__all__ = ["NOTHING", "RaftCore", "Role", "SnapshotSource", "Timing"]

NOTHING = Ready()
"""The answer of a step that asks for nothing. Shared: nobody changes a `Ready`."""


class RaftCore(RaftState):
    """One member of one group. See `RaftState` for what may be read, and the module for the rules."""

    __slots__ = ()

    def step(self, event: Event, now_ms: int) -> Ready:
        """Advance by one event and return what the driver must now do.

        Args:
            event: A message addressed to this node, or a local event.
            now_ms: Monotonic milliseconds; never goes back between calls.

        Raises:
            ImpossibleMessageError: a message that cannot be (`refusals`); it has changed nothing.
        """
        assert now_ms >= self.now_ms
        self.now_ms = now_ms
        if self.log.configuration is not self.configuration:
            membership_change.adopt(self)
        term = self.term
        voted_for = self.voted_for
        commit_index = self.commit_index
        _HANDLERS[type(event)](self, event)
        self.out_batch = None
        if self.commit_index != commit_index:
            assert self.commit_index > commit_index
            if commit_index < self.configuration_index <= self.commit_index:
                membership_change.on_committed(self)
        if self.is_outside:
            self.deadline_ms = None
        if self.term != term or self.voted_for != voted_for:
            assert self.term > term or voted_for is None
            return self._take_ready(HardState(self.term, self.voted_for))
        if (
            self.out_messages
            or self.out_append
            or self.out_after_persist
            or self.out_facts
            or self.out_append_no_op
            or self.out_install is not None
            or self.out_repeat_members
        ):
            return self._take_ready(None)
        return NOTHING

    def check_change(self, new: Configuration) -> None:
        """See whether this leader may propose `new` now; to be asked right before the entry is appended.

        Raises:
            ChangeInProgressError, ValueError: as `membership_change.check` says.
        """
        membership_change.check(self, new)

    def _take_ready(self, hard_state: HardState | None) -> Ready:
        messages = self.out_messages
        after_persist = self.out_after_persist
        self.out_messages = []
        if hard_state is not None:
            after_persist = messages + after_persist
            messages = []
        if after_persist:
            self.out_after_persist = []
        ready = Ready(
            hard_state=hard_state,
            truncate_from=self.out_truncate_from,
            append=self.out_append,
            append_no_op=self.out_append_no_op,
            install=self.out_install,
            messages=messages,
            messages_after_persist=after_persist,
            facts=self.out_facts,
            repeat_members=self.out_repeat_members,
        )
        if self.out_facts:
            self.out_facts = []
        self.out_append = ()
        self.out_truncate_from = None
        self.out_install = None
        self.out_append_no_op = False
        self.out_repeat_members = False
        return ready


def _catch_up(raft: RaftState, term: int, source: int) -> None:
    """Enter a newer term that a message shows (5.1)."""
    if term > raft.term:
        election.become_follower(raft, term, f"node {source} is in term {term}")


def _on_append_entries(raft: RaftState, message: AppendEntries) -> None:
    refusals.check_append(raft, message)
    if message.term != raft.term:
        if message.term < raft.term:
            _refuse_old_leader(raft, message)
            return
        _catch_up(raft, message.term, message.source)
    follower.on_append_entries(raft, message)


def _on_install_snapshot(raft: RaftState, message: InstallSnapshot) -> None:
    if message.term < raft.term:
        _refuse_old_leader(raft, message)
        return
    refusals.check_snapshot(raft, message)
    _catch_up(raft, message.term, message.source)
    follower.on_install_snapshot(raft, message)


def _refuse_old_leader(raft: RaftState, message: AppendEntries | InstallSnapshot) -> None:
    """Tell a deposed leader our term; the rest of the answer means nothing to it."""
    raft.out_messages.append(
        AppendResponse(
            term=raft.term,
            source=raft.node_id,
            target=message.source,
            match_index=0,
            round=0,
            rejected=True,
            hint_index=0,
            hint_term=0,
            directory_id=raft.directory_id,
        )
    )


def _on_append_response(raft: RaftState, message: AppendResponse) -> None:
    if message.term == raft.term:
        if raft.role is Role.LEADER:
            refusals.check_answer(raft, message)
            leadership.on_append_response(raft, message)
    else:
        _catch_up(raft, message.term, message.source)


def _on_vote_request(raft: RaftState, message: VoteRequest) -> None:
    if not message.pre:
        _catch_up(raft, message.term, message.source)
    election.on_vote_request(raft, message)
    if message.pre and raft.role is Role.LEADER and message.source in raft.progress:
        leadership.on_missed(raft)


def _on_vote_response(raft: RaftState, message: VoteResponse) -> None:
    if not (message.pre and message.granted):
        _catch_up(raft, message.term, message.source)
    election.on_vote_response(raft, message)


def _on_timeout_now(raft: RaftState, message: TimeoutNow) -> None:
    if message.term == raft.term:
        election.on_timeout_now(raft, message)


def _on_removed(raft: RaftState, message: Removed) -> None:
    _catch_up(raft, message.term, message.source)
    election.on_removed(raft, message)


def _on_tick(raft: RaftState, tick: Tick) -> None:
    if raft.deadline_ms is None or raft.now_ms < raft.deadline_ms:
        return
    if raft.role is Role.LEADER:
        leadership.on_deadline(raft, is_behind=tick.is_behind)
    else:
        election.on_deadline(raft)


def _on_proposed(raft: RaftState, _: Proposed) -> None:
    if raft.role is Role.LEADER:
        leadership.on_proposed(raft)


def _on_persisted(raft: RaftState, _: Persisted) -> None:
    if raft.role is Role.LEADER:
        leadership.on_persisted(raft)
    else:
        follower.on_persisted(raft)


def _on_entries_loaded(raft: RaftState, _: EntriesLoaded) -> None:
    leadership.on_entries_loaded(raft)


def _on_peer_live(raft: RaftState, event: PeerLive) -> None:
    if event.peer not in raft.directories and event.peer != raft.leader_id:
        return
    if raft.role is Role.LEADER:
        leadership.on_peer_live(raft, event)
    else:
        election.on_peer_live(raft, event)


def _on_peer_silent(raft: RaftState, event: PeerSilent) -> None:
    if event.peer not in raft.directories and event.peer != raft.leader_id:
        return
    if raft.role is Role.LEADER:
        leadership.on_peer_silent(raft, event)
    else:
        election.on_peer_silent(raft, event)


def _on_stalled(raft: RaftState, _: Stalled) -> None:
    """Judge nobody by the time that this node did not run (design: no election storm follows a stall)."""
    if raft.role is Role.LEADER:
        leadership.on_stalled(raft)
    else:
        election.on_stalled(raft)


def _on_start_round(raft: RaftState, _: StartRound) -> None:
    if raft.role is Role.LEADER:
        leadership.on_start_round(raft)


def _on_campaign(raft: RaftState, _: Campaign) -> None:
    if raft.role is not Role.LEADER and raft.may_stand and not raft.is_witness:
        election.campaign(raft, "asked to", pre=True)


def _on_give_up(raft: RaftState, event: GiveUp) -> None:
    uncertainty.give_up(raft, event.peer)
    _on_campaign(raft, Campaign())


def _on_transfer_leadership(raft: RaftState, event: TransferLeadership) -> None:
    if raft.role is Role.LEADER:
        leadership.on_transfer(raft, event)


# Chosen by type in one lookup: half the cost of a `match` statement over seventeen types.
_HANDLERS: dict[type[Any], Callable[[RaftState, Any], None]] = {
    AppendEntries: _on_append_entries,
    AppendResponse: _on_append_response,
    Persisted: _on_persisted,
    Proposed: _on_proposed,
    Tick: _on_tick,
    VoteRequest: _on_vote_request,
    VoteResponse: _on_vote_response,
    InstallSnapshot: _on_install_snapshot,
    TimeoutNow: _on_timeout_now,
    LeadershipEnded: election.on_leadership_ended,
    Removed: _on_removed,
    EntriesLoaded: _on_entries_loaded,
    PeerDigest: reconnect.on_peer_digest,
    PeerLive: _on_peer_live,
    PeerSilent: _on_peer_silent,
    Stalled: _on_stalled,
    StartRound: _on_start_round,
    Campaign: _on_campaign,
    GiveUp: _on_give_up,
    TransferLeadership: _on_transfer_leadership,
}
