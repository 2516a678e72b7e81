"""Queues the operations on the files of a log.

The write queue carries them out, in their order, and tells `completions`. A log that has *failed* has no
files that can be trusted: its queue is given up, and it stays as it is until the next start.
"""

from functools import partial

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.checkpoint import ReplicaRow
from barnabas_raftlog.log.journal.format import RecordKind
from barnabas_raftlog.log.segments.operations import Gate, MakeDirectory, Store, Sync, Write
from barnabas_raftlog.log.segments.segment import Segment, index_files_from
from barnabas_raftlog.raft.messages import Buffer

from .state import LogState

__all__ = [
    "add_gate",
    "created",
    "deleted",
    "fail",
    "queue_checkpoint",
    "queue_write",
    "row",
    "snapshot",
    "store",
    "sync_here",
    "sync_operation",
    "wrote",
]


# Into the queue.


def queue_write(log: LogState, segment: Segment, frame: Buffer, size: int, index: int) -> None:
    """Have a frame written to the end of `segment`, with those before it if they still wait."""
    operations = log.operations
    write = log.open_write
    # Once the worker has it, or something else follows it, nothing can be added to it any more.
    is_last = write is not None and bool(operations) and operations[-1] is write
    if write is None or not is_last or write.segment is not segment or write.is_held != log.is_journaled:
        log.write_serial += 1
        write = log.open_write = Write(segment, segment.size_bytes, log.write_serial, is_held=log.is_journaled)
        if not segment.size_bytes:
            log.directory_changed = True  # the file is made now
        operations.append(write)
    write.buffers.append(frame)
    write.size_bytes += size
    write.last_index = index
    log.shared.writes.waiting_bytes += size
    log.written.queue(write.serial, index)


def sync_here(log: LogState) -> None:
    """Count what was just placed as durable only when all of the log up to there survives a loss of power."""
    sync = snapshot(log)
    sync.directories = [log.directory, log.directory.rpartition("/")[0]]
    operations = log.operations
    write = log.open_write
    if write is None or not operations or operations[-1] is not write:
        # It was written at once: then this stands for it. It takes no more frames, others may be written already.
        log.write_serial += 1
        write = Write(log.active, log.active.size_bytes, log.write_serial)
        log.open_write = None
        operations.append(write)
    write.sync = sync


def add_gate(log: LogState, before: Sync, kind: RecordKind, index: int, term: int, payload: bytes = b"") -> Gate:
    """Let what follows in the queue wait for a record in the journal."""
    put = partial(log.shared.commits.put, kind, log.group, index, term, payload, log)
    gate = Gate(before, put, at_once=log.is_journaled)
    log.operations.append(gate)
    return gate


def created(log: LogState) -> None:
    """Make the directory of a log that is new, or whose mode is: the next checkpoint must have it."""
    log.operations.append(MakeDirectory(log.directory))
    log.shared.writes.add(log)
    log.mark_dirty()


# With a batch of the journal.


def store(log: LogState, size_bytes: int) -> Store | None:
    """Return the operation that puts the log as it is now on the disk; None if another is to be done to it first.

    So it is if an old file of a compacted segment counts until the next checkpoint: nobody knows of that here.
    """
    if log.failed is not None or log.is_deleted or log.under_way or log.replaced or not log.is_journaled:
        return None
    writes = [operation for operation in log.operations if type(operation) is Write]
    if len(writes) < len(log.operations):
        return None
    log.operations = []
    log.open_write = None
    dirty = [segment for segment in log.segments if segment.is_dirty]
    for segment in dirty:
        segment.is_dirty = False
    directories = [log.directory] if log.directory_changed else []
    if not log.is_named:
        directories.append(log.directory.rpartition("/")[0])
    log.directory_changed = False
    log.is_named = True
    return Store(writes, [segment.log for segment in dirty], directories, size_bytes)


# For a checkpoint.


def queue_checkpoint(log: LogState) -> None:
    """Let the write worker sync what this log has. Its row reaches the checkpoint when that is done."""
    log.is_dirty = False
    if not log.shared.writes.add_sync(log, partial(sync_operation, log)):
        # The row will be that of before a truncation: the next checkpoint begins behind it in the journal.
        log.mark_dirty()


def sync_operation(log: LogState) -> Sync:
    """Return the sync after which the log as it is now, its queue carried out, survives a loss of power."""
    writes = [write for segment in log.segments[:-1] for write in segment.index_writes()]
    writes += log.active.index_writes(index_files_from(log.segment_bytes))
    operation = snapshot(log)
    operation.index_writes = writes
    for segment in log.segments:
        segment.is_dirty = False
    log.directory_changed = False
    return operation


def snapshot(log: LogState) -> Sync:
    """Return the same without index rows, and count nothing as done: it may never be carried out."""
    handles = [segment.log for segment in log.segments if segment.is_dirty]
    # The name of the directory itself is synced with the checkpoint, once for all.
    directories = [log.directory] if log.directory_changed else []
    return Sync(row(log), handles, [], directories)


def row(log: LogState) -> ReplicaRow:
    """Return the checkpoint's row of the log as it is now."""
    return ReplicaRow(
        group=bytes(log.group),
        name=log.name,
        page_cache=not log.is_journaled,
        failed=str(log.failed) if log.failed is not None else "",
        start_index=log.start_index,
        last_index=log.last_index,
        end_offset=log.log_end_offset,
        truncations=log.truncations,
        epochs=log.leader_epochs.rows(),
        segments=[segment.row() for segment in log.segments],
        members=log.members.rows(),
        uncertain=log.is_uncertain,
        partial_since=log.partial_since,
        blank=log.is_blank,
    )


# Out of the queue.


def wrote(log: LogState, write: Write) -> None:
    """Count a write as carried out."""
    if write is log.open_write:
        log.open_write = None  # else each log would keep the frames that were last written
    if log.written.complete(write.serial):
        log.tail.written(log.written.reached)
        if not log.is_journaled:
            log.shared.moved[log.group] = None


def fail(log: LogState, cause: str) -> None:
    """Give the replica up until the next start, which looks again what is here (`recovery.replica`)."""
    if log.failed is not None or log.is_deleted:
        return
    log.failed = StorageFailedError(cause)
    index = log.durable_index
    log.durable_when_failed = (index, [epoch for epoch in log.leader_epochs.rows() if epoch[1] <= index])
    log.mark_dirty()
    _give_up_operations(log)
    log.tail.written(log.last_index)  # nobody will read it: the memory may go
    if log.on_failed is not None:
        log.on_failed(log.group, log.failed)


def deleted(log: LogState) -> None:
    """Let go of everything; operations that are under way find their files gone."""
    log.is_deleted = True
    _give_up_operations(log)
    shared = log.shared
    log.tail.forget_all()
    shared.loaded.drop_group(log.group)
    for segment in log.segments:
        shared.forget_index(segment)
        for handle in segment.handles:
            shared.opened.forget(handle)


def _give_up_operations(log: LogState) -> None:
    operations = log.operations
    log.operations = []
    log.open_write = None
    for operation in operations:
        log.shared.writes.waiting_bytes -= operation.queued_bytes
        if isinstance(operation, Sync):
            log.shared.on_synced(log, operation.row)
