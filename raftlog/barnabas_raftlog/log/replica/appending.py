"""Appends entries: each gets its place in the log, and goes into caches and queues.

In *fsync* mode the journal's completion makes an entry durable, and its segment file is written behind that, or with it
(`write_behind.store`). In *page-cache* mode the segment file alone makes it durable as far as that mode promises. There
the write is made at once, on the loop, when nothing of this log is queued: a page-cache write of a batch takes less
time than a hop to a thread. In *fsync* mode a small one is made there, too, as long as the disk is prompt; nobody waits
for it, so a larger one goes to the thread.

Nothing about an entry is copied: the frame that the connection received goes, as a view, into the cache, the journal's
`pwritev`, the segment's `pwritev` and the messages to followers.
"""

import struct
from collections.abc import Sequence

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.errors import StorageBusyError
from barnabas_raftlog.log.journal.format import RecordKind
from barnabas_raftlog.log.machine.disk_errors import will_pass
from barnabas_raftlog.log.segments.operations import write_back_range
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import ControlKind, control_frame, stamp

from .members import note_control
from .state import LogState
from .write_behind import fail, queue_write

__all__ = ["append", "append_batch", "append_control", "became_certain", "roll"]

_unpack_fields = struct.Struct(">q15xi8xq").unpack_from  # base_offset, last_offset_delta, max_timestamp
ENTRY = int(RecordKind.ENTRY)


def append_batch(log: LogState, term: int, frame: bytearray | memoryview) -> Entry:
    """Append a client's batch as leader: stamp base offset and epoch into it, and give it the next index.

    The frame belongs to the log from here on. When this raises, nothing was changed.

    Raises:
        DiskFullError, StorageBusyError: not now.
        StorageFailedError: this replica, or the whole node, cannot write any more.
    """
    _check(log)
    stamp(frame, log.log_end_offset, term)
    entry = Entry(log.last_index + 1, term, frame)
    _place(log, (entry,))
    return entry


def append_control(log: LogState, term: int, kind: ControlKind, body: bytes = b"") -> Entry:
    """Append a control frame as leader: it takes an index and no offset."""
    _check(log)
    entry = Entry(log.last_index + 1, term, control_frame(log.log_end_offset, term, kind, body))
    _place(log, (entry,))
    return entry


def append(log: LogState, entries: Sequence[Entry]) -> None:
    """Append a leader's entries verbatim, as follower. Their checksums were checked when they arrived.

    Not refused when the queues are full: leaders hold back what is for a busy node (`SharedStorage.is_busy`).

    Raises:
        CorruptBatchError: the first one's offset or term does not continue this log; nothing was changed. The decoder
            of the others has seen that they continue each other.
        DiskFullError, StorageFailedError: as `append_batch`.
    """
    if log.failed is not None:
        raise log.failed.with_traceback(None)
    if log.shared.refusal is not None:
        _refuse(log, log.shared.refusal)
    if entries:
        first = entries[0]
        assert first.index == log.last_index + 1, (first.index, log.last_index)
        base_offset = _unpack_fields(first.frame)[0]
        if base_offset != log.log_end_offset or first.term < log.last_term:
            raise CorruptBatchError(
                f"entry {first.index} at offset {base_offset} and of term {first.term}, behind a log that ends at "
                f"offset {log.log_end_offset} in term {log.last_term}"
            )
        _place(log, entries)


def became_certain(log: LogState) -> None:
    """Count the log as whole again: it has caught up with all that it may have lost."""
    log.is_uncertain = False
    log.is_blank = False
    # Before anything that is acknowledged from here on: two doubts, where there is only one, may elect nobody.
    log.shared.commits.put(RecordKind.CERTAIN, log.group, 0, 0)
    log.mark_dirty()


def roll(log: LogState) -> bool:
    """Close the newest segment, and return whether that was so: one without records stays."""
    if log.failed is not None or log.is_deleted or log.active.base_offset == log.log_end_offset:
        return False
    _begin_segment(log, log.last_index + 1)
    return True


def _check(log: LogState) -> None:
    shared = log.shared
    if log.failed is not None:
        raise log.failed.with_traceback(None)
    if shared.refusal is not None:
        _refuse(log, shared.refusal)
    waiting = shared.waiting_bytes
    if waiting > shared.config.queued_bytes_max:
        _refuse(log, StorageBusyError(f"{waiting} bytes wait for the disk"))


def _refuse(log: LogState, error: StorageFailedError) -> None:
    log.shared.stats.refused_appends += 1
    # One error for all, for as long as there is no room: it must not keep the frames of everybody who was refused.
    raise error.with_traceback(None)


def _place(log: LogState, entries: Sequence[Entry]) -> None:
    """Put entries that continue the log into every place where they must be."""
    shared = log.shared
    inline = not log.operations and not log.under_way and write_inline(log, entries)
    put = shared.commits.put
    journaled = log.is_journaled
    tail = log.tail
    index = size_all = ticket = 0
    for entry in entries:
        frame, index, term = entry.frame, entry.index, entry.term
        size = len(frame)
        base_offset, delta, max_timestamp = _unpack_fields(frame)
        assert base_offset == log.log_end_offset, (base_offset, log.log_end_offset)
        segment = log.active
        if segment.size_bytes + size > log.segment_bytes and base_offset > segment.base_offset:
            segment = _begin_segment(log, index)
        if term != log.last_term:
            log.leader_epochs.assign(term, index, base_offset)
            log.last_term = term
        if not inline:
            queue_write(log, segment, frame, size, index)
        segment.add(index, base_offset, size, max_timestamp)
        if delta < 0:
            note_control(log, index, term, frame)
        log.log_end_offset = base_offset + delta + 1
        size_all += size
        tail.add(entry, size, base_offset, is_control=delta < 0)
        if journaled:
            ticket = put(ENTRY, log.group, index, term, frame, log)
    log.last_index = index
    log.size_bytes += size_all
    if journaled:
        log.durable.queue(ticket, index)
    else:
        shared.bytes_since_checkpoint += size_all  # of the others the journal counts the bytes
    if inline and log.operations:  # a change of members among them
        log.written.queue(log.write_serial, index)
        shared.writes.add(log)
    elif inline:
        log.written.reached = index
        tail.written(index)
    elif not journaled:  # else they wait for their batch of the journal: it may take them along
        shared.writes.add(log)
    log.mark_dirty()
    stats = shared.stats
    stats.appended_entries += len(entries)
    stats.appended_bytes += size_all


def write_inline(log: LogState, entries: Sequence[Entry]) -> bool:
    """Write to the page cache now, before anything else changes; False if that must be queued instead.

    Raises:
        StorageFailedError: this replica cannot be written to any more; only in page-cache mode.
    """
    segment = log.active
    shared = log.shared
    buffers = [entry.frame for entry in entries]
    size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
    position = segment.size_bytes
    # A file that does not exist yet is made by the write worker.
    if not position or position + size > log.segment_bytes:
        return False
    if log.is_journaled and not shared.commits.may_write_here(size):
        return False
    try:
        fd = shared.opened.acquire(segment.log)
    except OSError:
        return False  # The queue tries the same, and deals with what comes of it.
    try:
        shared.files.write(fd, buffers, position)
    except OSError as error:
        if log.is_journaled or will_pass(error):
            return False  # As above. It writes to the same place.
        fail(log, f"cannot write {segment.log.path}: {error}")
        assert log.failed is not None
        raise log.failed from error
    finally:
        shared.opened.release(segment.log, fd)
    begin, stop = write_back_range(segment, position, position + size)
    if begin < stop:
        shared.start_write_back(segment, begin, stop - begin)
    return True


def _begin_segment(log: LogState, index: int) -> Segment:
    """Begin a new segment with the entry at `index`. Only after a data frame, so that names stay distinct."""
    segment = Segment(log.directory, log.log_end_offset, index)
    log.shared.used_index(log.active)
    log.segments.append(segment)
    log.active = segment
    if log.on_rolled is not None:
        log.on_rolled(log.group)
    return segment
