"""Compares where two members stand when their nodes find each other again. Pure.

Waking every group that two nodes share, to find that nothing has changed in nearly all of them, is how thousands of
quiet groups become a storm. So each node says of each shared group in a few bytes where it stands (`PeerDigest`), and
only those that differ are woken:

- *A leader at rest* whose log ends exactly as the other one's, durable there, counts that as an acknowledgement;
  acknowledgements of an earlier life of that member are forgotten. Anything else wakes the leader, as `PeerLive` does.
- *A claim to lead* by a leader at rest stands for the last heartbeat before silence: an append of nothing, behind the
  leader's last entry, all of it committed. It is taken in as exactly that. A member that cannot match it refuses it,
  and the refusal wakes the leader. A leader that is at work speaks for itself.
- *No claim to lead* from the node that this member trusts in silence ends that trust. Else two followers could wait
  for ever for a node that is live and no longer leads.
- If neither knows a leader, a voter more is a reason to try; and its digest may spare it a question (`consent`).

A digest is no promise: nobody votes or commits because of one, and nothing is taken from it that the log beside it
does not prove (equal index and term at the end: equal logs, paper 5.3). Its term deposes a leader all the same.
"""

from . import election, follower, leadership
from .consent import note_consent
from .messages import AppendEntries, LeadershipEnded, PeerDigest, PeerLive
from .progress import ProgressState
from .state import RaftState, Role

__all__ = ["on_peer_digest"]


def on_peer_digest(raft: RaftState, digest: PeerDigest) -> None:
    """Compare, and wake only what differs."""
    claims_to_lead = digest.leader_id == digest.peer and digest.term >= raft.term
    # Also from a leader that is no member as far as this log goes: the newest members may be in entries that it lacks.
    if digest.peer not in raft.directories and digest.peer != raft.leader_id and not claims_to_lead:
        return
    if raft.role is Role.LEADER:
        if digest.term > raft.term:
            election.become_follower(raft, digest.term, f"node {digest.peer} is in term {digest.term}")
        else:
            _as_leader(raft, digest)
        return
    note_consent(raft, digest)
    if claims_to_lead and digest.at_rest:
        _take_for_a_heartbeat(raft, digest)
    elif raft.leader_id == digest.peer and not claims_to_lead:
        election.on_leadership_ended(raft, LeadershipEnded(raft.term, digest.peer, raft.node_id))
    elif raft.leader_id is None and digest.leader_id is None:
        election.on_peer_live(raft, PeerLive(digest.peer))
    else:
        raft.silent.discard(digest.peer)


def _as_leader(raft: RaftState, digest: PeerDigest) -> None:
    log = raft.log
    progress = raft.progress.get(digest.peer)
    if progress is None:
        return
    if not raft.is_of(digest.peer, digest.directory_id):
        leadership.mark_lost(raft, progress)
        return
    is_equal = (digest.last_index, digest.last_term) == (log.last_index, log.last_term)
    if progress.is_missed or not (raft.quiescent and digest.at_rest and is_equal):
        leadership.on_peer_live(raft, PeerLive(digest.peer))
        return
    raft.silent.discard(digest.peer)
    progress.live = True
    progress.last_answer_ms = raft.now_ms
    progress.forget_match(raft.now_ms)
    if progress.state is not ProgressState.PROBE:
        progress.become_probe(log.last_index + 1)
    progress.acknowledge(log.last_index)
    progress.become_replicate()
    if raft.witnesses:
        leadership.tell_witnesses(raft, progress)


def _take_for_a_heartbeat(raft: RaftState, digest: PeerDigest) -> None:
    if digest.term > raft.term:
        election.become_follower(raft, digest.term, f"node {digest.peer} is in term {digest.term}")
    heartbeat = AppendEntries(
        term=digest.term,
        source=digest.peer,
        target=raft.node_id,
        prev_index=digest.last_index,
        prev_term=digest.last_term,
        commit_index=digest.last_index,
        round=digest.round,
        quiesce=True,
        entries=(),
    )
    follower.on_append_entries(raft, heartbeat)
