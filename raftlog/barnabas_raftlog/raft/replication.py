"""Copies a leader's log to its followers, and learns what is committed. Pure.

Raft paper 5.3; thesis 10.2 (pipelining). The driver appends proposals to the leader's own log and then steps
`Proposed`; the entries to send are simply those between `next_index` and the end of the log. Every answer moves a
follower on, frees its window and may commit. A peer whose disk is far behind (`busy_peers`) is sent no entries, as if
its window were full; heartbeats go on, and the answer to the first one after that sends it what it lacks. A refusal
names the highest place where the logs could agree; the leader meets it from its side, so that a conflict costs one
round trip for each term in it, not for each entry.

Refusals and acknowledgements may be old. An acknowledgement is true for ever within a term (a durable entry stays
durable), so a lower one is ignored. A refusal is true only of the append it answers: it carries that append's
`prev_index` (in `match_index`) and `round`. Each refusal that counts begins a new round, and those of older rounds
are ignored.
"""

from collections.abc import Sequence

from .follower import last_index_up_to_term
from .messages import AppendEntries, AppendResponse, Entry, InstallSnapshot, TimeoutNow
from .progress import Progress, ProgressState
from .quorum import committable_index
from .state import RaftState
from .witness import releasable_index

__all__ = [
    "advance_commit",
    "broadcast",
    "confirm",
    "heartbeat",
    "may_send",
    "on_answer",
    "replicate",
]


def may_send(raft: RaftState) -> bool:
    """False for a lone voter until an entry of its term is on its own disk.

    Its vote for itself needs nobody's answer, so nothing else makes that vote durable before it is used. If its entries
    were sent to learners first, a crash could bring it back to lead the same term again with other entries.
    """
    return not raft.is_lone_voter or raft.log.durable_index >= raft.term_start_index


def broadcast(raft: RaftState) -> None:
    """Send every follower whatever it lacks and may be sent."""
    if may_send(raft):
        for progress in raft.progress.values():
            replicate(raft, progress)


def replicate(raft: RaftState, progress: Progress) -> None:
    """Send one follower what it lacks: all that fits its window, or one probe."""
    last_index = raft.log.last_index
    if progress.next_index <= last_index and progress.peer in raft.busy_peers:
        return
    if progress.state is ProgressState.REPLICATE:
        bytes_max = raft.timing.bytes_in_flight_max
        while progress.next_index <= last_index and not progress.loading and progress.has_room(bytes_max):
            if not _send_entries(raft, progress):
                return
    elif progress.state is ProgressState.PROBE and not progress.probe_sent and progress.live:
        if progress.next_index > last_index:
            heartbeat(raft, progress)
        elif not progress.loading:
            _send_entries(raft, progress)


def _send_entries(raft: RaftState, progress: Progress) -> bool:
    """Send one append with entries; return False if it must wait for the disk or for a snapshot."""
    start_index = progress.next_index
    prev_term = _prev_term(raft, start_index)
    is_idle = progress.state is ProgressState.PROBE
    if prev_term is None or start_index < raft.log.first_index or (is_idle and _needs_none(raft, progress)):
        _send_snapshot(raft, progress)
        return False
    entries, size_bytes = _entries_from(raft, start_index)
    if entries is None and _needs_none(raft, progress):
        _send_snapshot(raft, progress)
        return False
    if entries is None:
        progress.loading = True
        return False
    assert entries
    assert entries[0].index == start_index
    prev_index = start_index - 1
    _append(raft, progress, prev_index, prev_term, entries)
    if progress.state is ProgressState.REPLICATE:
        progress.sent(prev_index + len(entries), size_bytes)
    else:
        progress.probe_sent = True
    return True


def _needs_none(raft: RaftState, progress: Progress) -> bool:
    """Tell whether this is a witness whose next entry all full voters have: its log may begin behind it."""
    return progress.is_witness and progress.next_index <= releasable_index(raft)


def _entries_from(raft: RaftState, start_index: int) -> tuple[Sequence[Entry] | None, int]:
    """Read the log once for all followers that are equally far; `step` drops the batch at its end."""
    batch = raft.out_batch
    last_index = raft.log.last_index
    if batch is not None and batch[0] == start_index and batch[1] == last_index:
        return batch[2], batch[3]
    entries = raft.log.entries(start_index, raft.timing.bytes_per_append)
    size_bytes = 0
    for entry in entries or ():
        size_bytes += len(entry.frame)
    raft.out_batch = (start_index, last_index, entries, size_bytes)
    return entries, size_bytes


def _prev_term(raft: RaftState, start_index: int) -> int | None:
    return raft.term if start_index > raft.term_start_index else raft.log.term_at(start_index - 1)


def heartbeat(raft: RaftState, progress: Progress, *, quiesce: bool = False) -> None:
    """Send an append without entries that follows the last entry sent: it also finds holes."""
    prev_index = progress.next_index - 1
    prev_term = _prev_term(raft, prev_index + 1)
    if prev_term is None or progress.state is ProgressState.SNAPSHOT:
        # The entries it lacks are gone. The place before all logs matches always, and the answer says how far it is.
        prev_index = 0
        prev_term = 0
        if raft.now_ms - progress.snapshot_sent_ms >= raft.timing.election_timeout_ms:
            _send_snapshot(raft, progress)
    _append(raft, progress, prev_index, prev_term, (), quiesce=quiesce)
    progress.probe_sent = True


def _append(
    raft: RaftState,
    progress: Progress,
    prev_index: int,
    prev_term: int,
    entries: Sequence[Entry],
    *,
    quiesce: bool = False,
) -> None:
    """Send an append, which tells a follower the rest of what it has to know as well."""
    raft.out_messages.append(
        AppendEntries(
            term=raft.term,
            source=raft.node_id,
            target=progress.peer,
            prev_index=prev_index,
            prev_term=prev_term,
            commit_index=raft.commit_index,
            round=raft.round,
            quiesce=quiesce,
            entries=entries,
            certain=progress.uncertain if progress.is_told else 0,
            released_index=releasable_index(raft) if progress.is_witness else 0,
        )
    )
    progress.last_sent_ms = raft.now_ms


def _send_snapshot(raft: RaftState, progress: Progress) -> None:
    if raft.is_witness:
        return  # It has none to give; the next leader has.
    assert raft.snapshot_source is not None, f"entry {progress.next_index} is gone and there is no snapshot"
    start = max(releasable_index(raft), raft.log.first_index - 1) if progress.is_witness else None
    snapshot = raft.snapshot_source(start)
    if snapshot is None or not progress.live:
        return  # The next heartbeat asks again.
    index, term, data = snapshot
    assert index >= raft.log.first_index - 1, f"a snapshot of {index} leaves a hole before {raft.log.first_index}"
    progress.become_snapshot(index, raft.now_ms)
    raft.out_messages.append(
        InstallSnapshot(
            term=raft.term,
            source=raft.node_id,
            target=progress.peer,
            snapshot_index=index,
            snapshot_term=term,
            data=data,
            configuration=raft.log.configuration_at(index),
            witness_since=None if start is None else max(raft.configuration_place, (term, index)),
        )
    )
    why = f"needs entries before {raft.log.first_index}" if start is None else f"is a witness, and begins after {index}"
    raft.note("snapshot sent", f"node {progress.peer} {why}")


def on_answer(raft: RaftState, progress: Progress, response: AppendResponse) -> None:
    """Take in a follower's answer and send what it makes possible."""
    if response.rejected:
        _on_refusal(raft, progress, response)
        return
    last_index = raft.log.last_index
    match_index = response.match_index
    assert match_index <= last_index, f"node {response.source} has {match_index} of {last_index} entries"
    moved = progress.acknowledge(match_index)
    if progress.state is ProgressState.PROBE:
        if progress.match_index >= progress.next_index - 1:
            progress.become_replicate()
    elif progress.state is ProgressState.SNAPSHOT and progress.match_index >= progress.snapshot_index:
        progress.become_probe(progress.match_index + 1)
        progress.become_replicate()
    if progress.uncertain and not progress.is_told and progress.match_index >= progress.certain_index:
        progress.is_told = True
        heartbeat(raft, progress)
    if moved:
        if match_index > raft.commit_index:
            advance_commit(raft)
        if progress.peer == raft.transfer_target and match_index == last_index:
            raft.out_messages.append(TimeoutNow(raft.term, raft.node_id, progress.peer))
    if progress.next_index <= last_index:
        replicate(raft, progress)


def _on_refusal(raft: RaftState, progress: Progress, response: AppendResponse) -> None:
    refused_index = response.match_index
    if refused_index <= progress.match_index or response.round < progress.probe_round:
        return  # Old: the follower has it by now, or the leader already asks elsewhere.
    if progress.state is ProgressState.SNAPSHOT:
        return
    high_index = max(min(response.hint_index, refused_index), progress.match_index)
    index = last_index_up_to_term(raft.log, progress.match_index, high_index, response.hint_term)
    # Lower than what was refused, whatever the hint says, so that every refusal gets us on.
    progress.become_probe(min(index, refused_index - 1) + 1)
    # A lost append makes the follower refuse all that were behind it. Only the first refusal counts, or each would
    # have everything sent again.
    raft.round += 1
    progress.probe_round = raft.round
    replicate(raft, progress)


def advance_commit(raft: RaftState) -> None:
    """Commit the entries that a majority of the voters of the newest configuration, committed or not, holds durably."""
    durable_index = raft.log.durable_index
    if durable_index < raft.configuration_index and raft.log.may_forget:
        return  # Nobody counts by a configuration that this disk may forget: see `uncertainty`.
    durable_indexes = [
        0 if progress.uncertain else progress.match_index for progress in raft.progress.values() if progress.is_voter
    ]
    if raft.is_voter:
        durable_indexes.append(durable_index)
    index = committable_index(durable_indexes, raft.commit_index, raft.term_start_index)
    if index > raft.commit_index:
        assert index <= raft.log.last_index
        raft.commit_index = index
        if raft.replaced.voters and index >= raft.configuration_index:
            raft.out_repeat_members = True  # So that the log says, after any loss of power, that this is committed.
        if not raft.confirmed:
            confirm(raft)


def confirm(raft: RaftState) -> None:
    """Note that this node certainly leads, once an entry of its term and the newest needed round say so."""
    if raft.commit_index < raft.term_start_index:
        return
    if raft.answered_round >= raft.confirm_round:
        raft.confirmed = True
        raft.given_up.clear()
        raft.note("leadership confirmed", f"entry {raft.commit_index} is committed")
