"""Refuses messages that contradict what this node knows for certain. Pure.

A core believes its peers; Byzantine members are none of its business. But no message of a peer may end this node, so an
impossible one is refused before anything has changed (`ImpossibleMessageError`); the driver then closes the link of its
sender. It cannot be, by anybody's fault, that in one term

- another node leads where this one does;
- a follower acknowledges, or refuses, entries beyond its leader's log: that log only grows in its term;
- a leader changes an entry up to `verified_index`, which it had when it verified it;

nor that a snapshot ends with an entry of a later term than the message's own. All of it is a comparison of ints in the
common case.

*Ignored instead*, because the sender need not be to blame, and closing its link time and again would help nobody: an
answer to a round that its leader has not begun (the answer counts, the round does not), and a permission to forget
entries that are not committed here (`follower`). *Believed*, within what the log beside it proves: commit indexes
beyond the verified part, hints, refusals and snapshots of committed entries, places of removals.

Entries whose offsets do not continue the log are for the log to refuse (`ReplicaLog.append`): only it knows them.
"""

from barnabas_raftlog.errors import ImpossibleMessageError

from .messages import AppendEntries, AppendResponse, InstallSnapshot
from .state import RaftState, Role

__all__ = ["check_answer", "check_append", "check_snapshot"]


def check_append(raft: RaftState, append: AppendEntries) -> None:
    """Refuse an append of this term, or a later one, that its leader cannot have sent."""
    if append.term != raft.term:
        return  # Nothing is verified yet of a new leader's log, nor does this node lead in its term.
    _check_leads(raft, append.source)
    if append.prev_index >= raft.verified_index:
        return
    for entry in append.entries[: raft.verified_index - append.prev_index]:
        if entry.index > raft.commit_index:
            _check_same(raft, append.source, entry.index, entry.term)


def check_snapshot(raft: RaftState, snapshot: InstallSnapshot) -> None:
    """Refuse a snapshot of this term, or a later one, that its leader cannot have sent."""
    index = snapshot.snapshot_index
    term = snapshot.snapshot_term
    source = snapshot.source
    if term > snapshot.term:
        raise ImpossibleMessageError(source, f"a snapshot that ends in term {term}, sent in term {snapshot.term}")
    if snapshot.term == raft.term:
        _check_leads(raft, source)
        if raft.commit_index < index <= raft.verified_index:
            _check_same(raft, source, index, term)


def check_answer(raft: RaftState, response: AppendResponse) -> None:
    """Refuse a follower's answer to this leader, in its term, about entries beyond its log."""
    index = response.match_index
    last_index = raft.log.last_index
    if index > last_index:
        what = "refuses what follows" if response.rejected else "acknowledges"
        raise ImpossibleMessageError(
            response.source, f"{what} entry {index} of a leader whose log ends at {last_index}"
        )


def _check_leads(raft: RaftState, source: int) -> None:
    if raft.role is Role.LEADER:
        raise ImpossibleMessageError(source, f"leads in term {raft.term}, in which node {raft.node_id} leads")


def _check_same(raft: RaftState, source: int, index: int, term: int) -> None:
    known = raft.log.term_at(index)
    if known != term:
        text = f"entry {index}, which was of term {known} in the log of the leader of term {raft.term}, is of {term}"
        raise ImpossibleMessageError(source, text)
