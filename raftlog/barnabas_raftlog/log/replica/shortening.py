"""Takes entries away at either end of a log.

Both ways change the log in memory at once, and the files in order: the journal has it first, then the files show it
(see `write_queue.Gate`). A crash in between leaves files that hold more than the log, which recovery knows.

*The end* goes when a leader contradicts it. The journal has that before anything that is appended afterwards can become
durable, in both modes.

*The beginning* goes in two steps. `drop_before` moves `log_start_offset` to any offset of the committed log; from then
on nothing below it is served. Segments go when they can, each as a whole: every entry of it is below the start,
committed, durable here, and covered by a state of the owner that is on the disk, because entries that are gone cannot
be replayed. The owner remembers the start (`save_state`), and hears of it from the log itself: a `PREFIX_TRUNCATION`
frame says it, and after a crash is met again when the log is replayed. Nothing is lost with a segment that holds such a
frame: the frame comes after all entries that it takes away, so the segment behind it begins at the start or later.
"""

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.journal.format import RecordKind, encode_place
from barnabas_raftlog.log.segments.operations import Remove, Truncate
from barnabas_raftlog.log.segments.segment import NO_TIMESTAMP, Segment
from barnabas_raftlog.raft.messages import Place
from barnabas_raftlog.records.header import BatchHeader, parse_header

from .appending import roll
from .reading import find, on_unreadable, segment_of_index
from .state import LogState
from .write_behind import add_gate, snapshot

__all__ = ["drop_before", "drop_prefix", "drop_unneeded", "truncate_from"]


# The end.


def truncate_from(log: LogState, index: int) -> None:
    """Forget the entries at and after `index`.

    That is durable before anything that is appended from now on. When this raises, nothing was changed.
    """
    if log.failed is not None:
        raise log.failed.with_traceback(None)
    assert log.first_index <= index <= log.last_index, (log.first_index, index, log.last_index)
    segment, position, base_offset = _place_of(log, index)
    newest = _newest_before(log, segment, position, index)
    before = snapshot(log)
    gone = log.segments[log.segments.index(segment) + 1 :]
    del log.segments[len(log.segments) - len(gone) :]
    for known in gone:
        log.shared.forget_index(known)
    log.size_bytes -= segment.size_bytes - position + sum(known.size_bytes for known in gone)
    log.active = segment
    segment.truncate_to(position, base_offset)
    log.shared.forget_index(segment)
    segment.renew_max(*newest)
    log.last_index = index - 1
    log.log_end_offset = base_offset
    log.leader_epochs.truncate_from(index)
    log.members.truncate_from(index)
    log.configuration = log.members.newest
    log.last_term = log.leader_epochs.last_term
    log.tail.truncate_from(index)
    log.durable.truncate_from(index)
    log.written.truncate_from(index)
    log.shared.loaded.drop_group(log.group)
    log.truncations += 1
    number = log.truncations
    add_gate(log, before, RecordKind.TRUNCATE, index, number)
    handles = [handle for known in gone for handle in known.handles]
    if handles:
        log.operations.append(Remove(handles, "" if log.is_journaled else log.directory))
    log.operations.append(Truncate(segment.log, position, sync=not log.is_journaled))
    log.directory_changed = True
    if not log.is_journaled:
        add_gate(log, snapshot(log), RecordKind.TRUNCATED, 0, number)
    log.shared.writes.add(log)
    log.mark_dirty()


def _place_of(log: LogState, index: int) -> tuple[Segment, int, int]:
    """Return segment, position within it and base offset of an entry."""
    if index < log.tail.first_index:
        _, base_offset, position = find(log, index)
        return segment_of_index(log, index), position, base_offset
    after = log.tail.bytes_from(index)
    for segment in reversed(log.segments):
        if segment.first_index <= index:
            return segment, segment.size_bytes - after, log.tail.base_offset_at(index)
        after -= segment.size_bytes
    raise AssertionError(f"no segment has entry {index}")


def _newest_before(log: LogState, segment: Segment, position: int, index: int) -> tuple[int, int]:
    """Return (timestamp, base offset) of the newest frame between the last index row and entry `index`.

    Raises:
        StorageFailedError: that cannot be read.
    """
    newest = (NO_TIMESTAMP, -1)

    def count(found: int, header: BatchHeader) -> bool:
        nonlocal newest
        if header.max_timestamp > newest[0]:
            newest = (header.max_timestamp, header.base_offset)
        return found >= stop - 1

    stop = min(log.tail.first_index, index)
    cold = log.shared.cold
    try:
        cold.load_index(segment, blocking=True)
        row = segment.index.before_index(index - 1)
        number = row[0] if row else segment.first_index
        if number < stop:
            cold.seek(segment, row, position, count, blocking=True)
            number = stop
    except (OSError, CorruptBatchError) as error:
        on_unreadable(log, (segment,), error)
        raise StorageFailedError(f"cannot read {log.name}: {error}") from error
    for known in range(number, index):
        count(0, parse_header(log.tail.entry_at(known).frame))
    return newest


# The beginning.


def drop_before(log: LogState, offset: int, committed_index: int) -> None:
    """Let the log start at `offset`, and delete the segments below it as soon as nothing needs them any more.

    Entries above `committed_index` stay. If `has_segments_before(offset)`, the owner saves its state first.
    """
    assert offset <= log.log_end_offset, (offset, log.log_end_offset)
    log.log_start_offset = max(log.log_start_offset, offset)
    log.committed_index = max(log.committed_index, committed_index)
    if log.log_start_offset == log.log_end_offset:
        # Nothing in the newest segment is needed either, but its file only goes when another one is the newest.
        roll(log)
    drop_unneeded(log)
    # The caller hears of commits behind the driver's flush, and the next one may be hours away.
    log.shared.commits.flush()
    log.shared.writes.flush()


def drop_unneeded(log: LogState) -> None:
    """Delete the segments below the start that nothing needs any more."""
    index = min(log.committed_index, log.durable_index, log.saved_index)
    segments = log.segments
    count = 0
    while (
        count + 1 < len(segments)
        and segments[count + 1].base_offset <= log.log_start_offset
        and segments[count + 1].first_index <= index + 1
        and segments[count] not in log.pins
    ):
        count += 1
    if log.failed is None:
        _drop(log, count)


def drop_prefix(log: LogState, index: int, *, partial_since: Place | None = None) -> None:
    """Forget the sealed segments all of whose entries are at or before `index`, and durable here.

    `partial_since`: this is a witness's log, by the configuration at that place; nothing stands for what it loses.
    """
    index = min(index, log.durable_index)
    segments = log.segments
    count = 0
    while (
        count + 1 < len(segments) and segments[count + 1].first_index <= index + 1 and segments[count] not in log.pins
    ):
        count += 1
    if log.failed is None and count:
        if partial_since is not None:
            log.partial_since = max(log.partial_since or (0, 0), partial_since)
        _drop(log, count)
    log.log_start_offset = max(log.log_start_offset, log.base_offset)


def _drop(log: LogState, count: int) -> None:
    """Forget the first `count` segments."""
    if not count:
        return
    before = snapshot(log)
    gone = log.segments[:count]
    del log.segments[:count]
    first = log.segments[0]
    log.start_index = index = first.first_index - 1
    term = log.leader_epochs.term_at(index)
    log.leader_epochs.drop_prefix(index)
    log.members.drop_prefix(index)
    log.tail.drop_before(first.first_index)
    log.size_bytes -= sum(segment.size_bytes for segment in gone)
    for segment in gone:
        log.shared.forget_index(segment)
    payload = first.base_offset.to_bytes(8, "big") + encode_place(log.partial_since)
    # Before the journal has it, a missing file is damage.
    add_gate(log, before, RecordKind.PREFIX, index, term, payload)
    log.operations.append(Remove([handle for segment in gone for handle in segment.handles]))
    log.directory_changed = True
    log.shared.writes.add(log)
    log.mark_dirty()
