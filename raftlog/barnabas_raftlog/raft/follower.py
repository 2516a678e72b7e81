"""Takes in what a leader sends, and says what may be acknowledged. Pure.

Raft paper 5.3 and 7. Three indexes, each lower than it could be for a reason. The *log* may hold entries of a deposed
leader that this term's leader never had. `verified_index` is how far it is known equal to the log of this term's
leader: an append whose previous entry matches verifies up to its own last entry, and nothing else does. The
*acknowledged* index is verified and durable. A heartbeat may move `commit_index` only within the verified part, else a
follower would call an old leader's leftovers committed.

Appends may arrive twice, late, and in any order. Entries that are here already are skipped; only an entry of another
term at the same index truncates, and never at or below the commit index, nor within what this term's leader has sent
before: that would be a broken promise, and is refused before it gets here (`refusals`).

An append that brings something new is answered when the disk has it (`Persisted`). Everything else is answered at
once, so that a leader can tell a slow disk from a dead node.
"""

from collections.abc import Sequence

from . import election
from .messages import AppendEntries, AppendResponse, Entry, InstallSnapshot, LogReader
from .state import RaftState
from .uncertainty import become_certain

__all__ = ["last_index_up_to_term", "on_append_entries", "on_install_snapshot", "on_persisted"]


def on_append_entries(raft: RaftState, append: AppendEntries) -> None:
    """Take in entries, or a heartbeat, of this term's leader."""
    if raft.leader_id != append.source:
        election.follow(raft, append.source)
    raft.heard_ms = raft.now_ms
    if append.certain:
        become_certain(raft, append.certain)
    is_newest_round = append.round >= raft.leader_round
    if is_newest_round:
        raft.leader_round = append.round
    log = raft.log
    prev_index = append.prev_index
    last_index = log.last_index
    commit_index = raft.commit_index
    # The common case first: the append continues exactly where the log ends.
    if (prev_index != last_index or append.prev_term != log.last_term) and (
        prev_index > commit_index and log.term_at(prev_index) != append.prev_term
    ):
        _expect_more(raft)
        _reject(raft, append)
        return
    entries = append.entries
    end_index = prev_index + len(entries)
    if entries:
        assert entries[0].index == prev_index + 1
        if prev_index != last_index:
            entries = _new_entries(raft, entries)
        raft.out_append = entries
    raft.verified_index = max(raft.verified_index, end_index)
    # Not beyond what is verified: the entries behind it in our log may be another leader's.
    committed_index = min(append.commit_index, raft.verified_index)
    if committed_index > commit_index:
        raft.commit_index = committed_index
        commit_index = committed_index
    if append.released_index:
        # Not beyond what is committed here: a leader later, this node says the same to others, of its own log.
        raft.released_index = max(raft.released_index, min(append.released_index, commit_index))
    if append.quiesce and is_newest_round and not entries and not raft.uncertain:
        if end_index == last_index == commit_index == log.durable_index:
            raft.quiescent = True
            raft.deadline_ms = None
            return
    elif entries:
        _expect_more(raft)
        return
    _expect_more(raft)
    _report(raft)


def _expect_more(raft: RaftState) -> None:
    """A leader that is at work must be heard again; an armed deadline needs no change for that."""
    if raft.quiescent:
        raft.expect_leader()


def _new_entries(raft: RaftState, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the part of `entries` that is not here yet, and cut what contradicts it (5.3)."""
    log = raft.log
    commit_index = raft.commit_index
    last_index = log.last_index
    newest = entries[-1]
    if newest.index <= last_index and (newest.index <= commit_index or log.term_at(newest.index) == newest.term):
        return ()  # Log matching: equal at its end, equal throughout.
    for position, entry in enumerate(entries):
        index = entry.index
        if index > last_index:
            return entries[position:]
        if index > commit_index and log.term_at(index) != entry.term:
            assert index > raft.verified_index, f"entry {index} of the leader of term {raft.term} has changed"
            raft.out_truncate_from = index
            raft.note("log truncated", f"from {index} of {last_index}: node {raft.leader_id} has another term there")
            return entries[position:]
    return ()


def _reject(raft: RaftState, append: AppendEntries) -> None:
    """Refuse, and name the highest place where the logs could still agree."""
    log = raft.log
    hint_index = last_index_up_to_term(log, raft.commit_index, min(append.prev_index, log.last_index), append.prev_term)
    hint_term = log.term_at(hint_index)
    assert hint_term is not None
    raft.out_messages.append(
        AppendResponse(
            term=raft.term,
            source=raft.node_id,
            target=append.source,
            match_index=append.prev_index,
            round=append.round,
            rejected=True,
            hint_index=hint_index,
            hint_term=hint_term,
            directory_id=raft.directory_id,
            uncertain=raft.uncertain,
        )
    )


def _report(raft: RaftState) -> None:
    """Tell the leader what is durable here and equal to its log."""
    assert raft.leader_id is not None
    if raft.lacks_beginning:
        return  # Its log does not count for anybody, and is about to begin anew.
    match_index = min(raft.log.durable_index, raft.verified_index)
    raft.reported_index = match_index
    raft.out_messages.append(
        AppendResponse(
            term=raft.term,
            source=raft.node_id,
            target=raft.leader_id,
            match_index=match_index,
            round=raft.leader_round,
            rejected=False,
            hint_index=0,
            hint_term=0,
            directory_id=raft.directory_id,
            uncertain=raft.uncertain,
        )
    )


def on_persisted(raft: RaftState) -> None:
    """Acknowledge what the disk has added, if anybody leads."""
    if raft.leader_id is not None and min(raft.log.durable_index, raft.verified_index) > raft.reported_index:
        _report(raft)


def on_install_snapshot(raft: RaftState, snapshot: InstallSnapshot) -> None:
    """Replace the log by the state up to `snapshot_index`, unless the log has that already (7)."""
    if raft.leader_id != snapshot.source:
        election.follow(raft, snapshot.source)
    raft.heard_ms = raft.now_ms
    _expect_more(raft)
    index = snapshot.snapshot_index
    if index > raft.commit_index:
        if raft.log.term_at(index) == snapshot.snapshot_term:
            raft.note("snapshot not needed", f"the log holds entry {index}")
        else:
            raft.out_install = snapshot
            raft.note("snapshot installed", f"node {snapshot.source} no longer has what follows {raft.commit_index}")
        raft.commit_index = index
        raft.verified_index = max(raft.verified_index, index)
        if raft.out_install is not None:
            return
    _report(raft)


def last_index_up_to_term(log: LogReader, low_index: int, high_index: int, term: int) -> int:
    """Return the highest index from `low_index` to `high_index` whose entry has at most `term`.

    Terms never fall along a log, so this halves. `low_index` is taken to qualify without being looked at; an
    index that the log no longer knows is taken for too old, which the caller will notice.
    """
    while low_index < high_index:
        middle = (low_index + high_index + 1) // 2
        found = log.term_at(middle)
        if found is None or found <= term:
            low_index = middle
        else:
            high_index = middle - 1
    return low_index
