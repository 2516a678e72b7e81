"""Changes the members of a group while it works: one voter at a time. Pure.

Ongaro's thesis, chapter 4. A change is an entry like any other. It holds on each member from the moment that it is in
that member's log, so the leader counts by it before it is committed (4.1); a member that truncates it goes back to the
one before. That is one question to the log at the beginning of each step; the core keeps nothing that could contradict
it.

A leader proposes no change while another one is not committed, and none before it has committed an entry of its own
term. The second rule is missing in the thesis: two leaders of neighbouring terms that each began a change from the
same configuration could otherwise commit by majorities that do not meet (Ongaro, raft-dev, "bug in single-server
membership changes", 2015).

*A leader that is not among the new voters* leads on, counting only the others, until the change is committed; then it
tells them so, asks the most advanced one to take over, and ends its leadership (4.2.2). *A removed member* is told when
that is committed (`Removed`), and again if it asks for a vote later. It disturbs nobody until then: it only asks for
pre-votes, which members with a leader refuse (4.2.3). Strangers do not wake a quiet group.

*Learners* are sent everything from the moment they are added (4.2.1). Promoting one is a change like any other;
`Progress.has_caught_up` says what the thesis would wait for.

Not here: deciding which changes to make, and in which order.
"""

from barnabas_raftlog.errors import ChangeInProgressError

from . import election
from .membership import Configuration, check_change
from .messages import TimeoutNow
from .progress import NEVER_MS, Progress
from .quorum import majority
from .replication import heartbeat
from .state import RaftState, Role
from .witness import lacks_released, successor_of

__all__ = ["adopt", "check", "on_committed"]


def check(raft: RaftState, new: Configuration) -> None:
    """Refuse to change members now, or to `new` at all.

    Raises:
        ChangeInProgressError: another change, or the first entry of this leadership, is not committed yet; or a
            member to be is not far enough (`witness`), or half of the voters to be may have forgotten something.
        ValueError: `new` differs by more than one voter, or says nothing new.
    """
    assert raft.role is Role.LEADER
    present = raft.log.configuration
    check_change(present, new)
    if new == present:
        raise ValueError("nothing would change")
    index = raft.log.configuration_index
    if raft.commit_index < index and raft.log.configuration_at(index - 1) != present:
        raise ChangeInProgressError(f"the change at entry {index} is not committed yet")
    if raft.commit_index < raft.term_start_index:
        raise ChangeInProgressError(f"no entry of term {raft.term} is committed yet")
    unsure = {peer for peer, progress in raft.progress.items() if progress.uncertain} & new.voter_ids
    if unsure and len(new.voters) - len(unsure) < majority(len(new.voters)):
        # If this leader failed now, these could elect nobody (`uncertainty`), and only a leader makes them certain.
        raise ChangeInProgressError(f"nodes {sorted(unsure)} may have forgotten something, and have not caught up yet")
    if present.witnesses:
        for node_id in sorted(new.full_voter_ids - present.full_voter_ids):
            if lacks_released(raft, node_id):
                raise ChangeInProgressError(f"node {node_id} lacks entries that a witness may have forgotten")


def adopt(raft: RaftState) -> None:
    """Take the newest configuration in the log for the one that holds."""
    known = raft.configuration
    before = raft.directories
    raft.read_members()
    raft.refresh_membership()
    # A new member is silent until it is reported live.
    raft.silent = {peer for peer in raft.peers if peer in raft.silent or peer not in before}
    if raft.configuration != known:
        voters = sorted(raft.voters)
        learners = sorted(raft.learners)
        raft.note("configuration", f"voters {voters}, learners {learners}, since entry {raft.configuration_index}")
    if raft.role is Role.LEADER:
        _lead(raft)
    elif raft.deadline_ms is None and not raft.quiescent and not raft.is_outside:
        raft.stand_without_leader()


def _lead(raft: RaftState) -> None:
    """Follow the new members instead of the old ones; the progress of those that stay is kept."""
    followed, raft.progress = raft.progress, {}
    for peer in raft.peers:
        progress = followed.get(peer)
        if progress is None or progress.directory_id != raft.directories[peer]:
            assert raft.ends is not None
            progress = Progress(
                peer=peer,
                directory_id=raft.directories[peer],
                ends=raft.ends,
                next_index=raft.log.last_index + 1,
                now_ms=raft.now_ms,
                is_voter=False,
                live=False,
            )
            progress.assumed_ms = NEVER_MS  # Unlike those that a new leader finds, it never was.
            raft.silent.add(peer)
        progress.is_voter = peer in raft.voters
        progress.is_witness = peer in raft.witnesses
        raft.progress[peer] = progress
    if raft.transfer_target is not None and raft.transfer_target not in raft.voters:
        raft.transfer_target = None
    if raft.deadline_ms is None and raft.peers and not raft.quiescent:
        raft.deadline_ms = raft.now_ms + raft.timing.heartbeat_interval_ms
    elif not raft.peers:
        raft.deadline_ms = None


def on_committed(raft: RaftState) -> None:
    """Tell members that are out; end a leadership that ends with this; wait for nothing if this node is out."""
    raft.refresh_membership()
    if raft.role is not Role.LEADER:
        if raft.is_outside:
            raft.note("removed", f"entry {raft.configuration_index} is committed")
        return
    before = raft.log.configuration_at(raft.configuration_index - 1)
    for node_id in sorted(before.node_ids - raft.configuration.node_ids - {raft.node_id}):
        raft.out_messages.append(election.removed(raft, node_id))
    if not raft.is_voter:
        _hand_over(raft)


def _hand_over(raft: RaftState) -> None:
    """Let the others know what is committed, and the most advanced of them take over without waiting for a timeout."""
    for progress in raft.progress.values():
        heartbeat(raft, progress)
    successor = successor_of(raft)
    if successor is not None:
        raft.out_messages.append(TimeoutNow(raft.term, raft.node_id, successor.peer))
    election.become_follower(raft, raft.term, f"no voter since entry {raft.configuration_index}")
