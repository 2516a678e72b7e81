"""The log of one replica: entries by index for Raft, frames by offset for clients. The two ends that are hot are here.

Appending gives an entry its index, its offset and its term, puts it into the tail cache, and queues it: in *fsync*
mode for the journal, whose completion makes it durable, and for the segment file behind it, or with it (`store`); in
*page-cache* mode for the segment file only, which makes it durable as far as that mode promises. There the write is
made at once, on the loop, when nothing of this log is queued: a page-cache write of a batch takes less time than a hop
to a thread. In *fsync* mode a small one is made there, too, as long as the disk is prompt; nobody waits for it, so a
larger one goes to the thread.

Nothing about an entry is copied: the frame that the connection received goes, as a view, into the cache, the journal's
`pwritev`, the segment's `pwritev` and the messages to followers.

The rest (reading, truncation at both ends, snapshots) is in `replica_log`. What is not here: when data has had its
time, and compaction.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Literal

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.checkpoint import ReplicaRow
from barnabas_raftlog.log.errors import StorageBusyError
from barnabas_raftlog.log.journal.format import RecordKind
from barnabas_raftlog.log.machine.disk_errors import will_pass
from barnabas_raftlog.log.machine.open_files import FileHandle
from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs
from barnabas_raftlog.log.segments.operations import MakeDirectory, Operation, Store, Sync, Write, write_back_range
from barnabas_raftlog.log.segments.segment import Segment, index_files_from
from barnabas_raftlog.log.segments.tail_cache import LogTail
from barnabas_raftlog.log.shared import SharedStorage
from barnabas_raftlog.raft.membership import Configuration, ConfigurationHistory
from barnabas_raftlog.raft.messages import Buffer, Entry, GroupId
from barnabas_raftlog.records.header import HEADER_BYTES, ControlKind, control_frame, stamp

from .pending import PendingIndexes

__all__ = ["AppendLog", "Mode"]

Mode = Literal["fsync", "page-cache"]
_unpack_fields = struct.Struct(">q15xi8xq").unpack_from  # base_offset, last_offset_delta, max_timestamp
ENTRY = int(RecordKind.ENTRY)


class AppendLog:
    """One replica's log, owned by the loop.

    Invariants: durable_index <= last_index, and it is below first_index - 1 only while a snapshot is on its way to the
    disk; segments follow each other without a gap, the last one
    is written to; the tail cache ends with `last_index`, and holds everything that is not in a segment file yet;
    `base_offset` <= `log_start_offset` <= `log_end_offset`, where the base is that of the first entry held, and the
    start what `drop_before` made of it: it may lie inside a segment, or inside a batch.
    """

    # More than 30 attributes in a dictionary take 1.3 KiB more than these. Those that few logs have are in `__dict__`.
    __slots__ = ("__dict__", "_active", "_directory_changed", "_durable", "_epochs", "_host", "_is_dirty", "_journaled",
                 "_loading", "_members", "_replaced", "_segment_bytes", "_segments", "_serial", "_tail", "_truncations",
                 "_write", "_written", "configuration", "directory", "failed", "group", "is_blank", "is_deleted",
                 "is_uncertain", "last_index", "last_term", "log_end_offset", "log_start_offset", "mode", "name",
                 "on_failed", "on_loaded", "on_rolled", "operations", "partial_since", "size_bytes", "start_index",
                 "under_way")  # fmt: skip

    durable_when_failed: tuple[int, list[tuple[int, int, int]]] | None = None  # as in the checkpoint's row
    _is_named = False  # whether a loss of power leaves the replica's directory where it is

    def __init__(
        self, host: SharedStorage, group: GroupId, directory: str, row: ReplicaRow, mode: Mode, segment_bytes: int
    ) -> None:
        self._host = host
        self.group = group
        self.name = row.name
        self.directory = directory
        self.mode: Mode = mode
        self._journaled = mode == "fsync"
        self._segment_bytes = segment_bytes
        self._epochs = LeaderEpochs.from_rows([(e, i, o) for e, i, o in row.epochs])
        self._segments = [Segment.from_row(directory, segment) for segment in row.segments]
        if not self._segments:
            self._segments = [Segment(directory, row.end_offset, row.last_index + 1)]
        self._active = self._segments[-1]
        self._members = ConfigurationHistory.from_rows(row.members)
        self.configuration = self._members.newest  # an attribute: the core looks at it in every step
        self.start_index = row.start_index
        self.last_index = row.last_index
        self.last_term = self._epochs.last_term
        self.log_end_offset = row.end_offset
        self.log_start_offset = self._segments[0].base_offset
        self._truncations = row.truncations
        self._durable = PendingIndexes(row.last_index)
        self._written = PendingIndexes(row.last_index)
        self._tail = LogTail(host.cache, row.last_index + 1)
        self.operations: list[Operation] = []  # mostly empty, and thousands of empty deques take megabytes
        self.under_way = 0
        self._serial = 0
        self._write: Write | None = None  # the last operation in `operations`, if frames may be added to it
        self._is_dirty = False
        self.is_deleted = False
        # The machine lost power, and what it lost of this log in page-cache mode may have been acknowledged.
        self.is_uncertain = row.uncertain
        self.is_blank = row.blank  # That, and begun empty: it may have forgotten who its members were, too.
        self.partial_since = row.partial_since
        self._loading = frozenset[int]()  # mostly empty, and an empty set that can be added to takes 216 bytes
        self._directory_changed = False
        # (base offset, generation that replaced it, files) of what compaction has replaced and no checkpoint names yet
        self._replaced: list[tuple[int, int, tuple[FileHandle, ...]]] = []
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)
        self.failed: StorageFailedError | None = StorageFailedError(row.failed) if row.failed else None
        self.on_failed: Callable[[GroupId, StorageFailedError], None] | None = None
        self.on_loaded: Callable[[GroupId], None] | None = None
        self.on_rolled: Callable[[GroupId], None] | None = None

    def may_be_read(self) -> None:
        """What could not be read a while ago may be readable now: whoever waits for entries asks again."""
        if self.on_loaded is not None and not self.is_deleted:
            self.on_loaded(self.group)

    @property
    def first_index(self) -> int:
        return self.start_index + 1

    @property
    def durable_index(self) -> int:
        return self._durable.reached if self._journaled else self._written.reached

    @property
    def may_forget(self) -> bool:
        return not self._journaled

    @property
    def base_offset(self) -> int:
        """The end offset of what was before `first_index`; at most `log_start_offset`."""
        return self._segments[0].base_offset

    def term_at(self, index: int) -> int | None:
        if index == 0 and self.start_index == 0:
            return 0
        if index < self.start_index or index > self.last_index:
            return None
        return self._epochs.term_at(index)

    @property
    def configuration_index(self) -> int:
        return self._members.newest_index

    def configuration_at(self, index: int) -> Configuration:
        return self._members.at(index)

    def begin_with(self, configuration: Configuration) -> None:
        """Remember who belonged to the group before it changed its members, if the log does not know that."""
        if not self.configuration.voters:
            self._restart_members(0, 0, configuration)
            self._mark_dirty()

    def _restart_members(self, index: int, term: int, configuration: Configuration) -> None:
        if configuration.voters:
            self._put_members(index, term, configuration.encode())
            self._members.restart(index, configuration)
            self.configuration = configuration

    def _put_members(self, index: int, term: int, body: bytes) -> None:
        """Write down in the journal who belongs to the group, which outlives the entry that says so."""
        self._host.commits.put(RecordKind.MEMBERS, self.group, index, term, body)

    def _note_control(self, index: int, term: int, frame: Buffer) -> None:
        """See whether a control frame changes the members.

        Raises:
            StorageFailedError: it does, but in a way that this version does not understand.
        """
        if frame[HEADER_BYTES] != ControlKind.MEMBERSHIP:
            return
        body = bytes(frame[HEADER_BYTES + 1 :])
        try:
            configuration = Configuration.decode(body)
        except ValueError as error:
            self._fail(f"{self.name}: entry {index} changes the members to something that cannot be read: {error}")
            assert self.failed is not None
            raise self.failed from error
        self._put_members(index, term, body)
        self._members.assign(index, configuration)
        self.configuration = configuration
        if not self._journaled:
            self._sync_here()

    def _sync_here(self) -> None:
        """Count what was just placed as durable only when all of the log up to there survives a loss of power."""
        sync = self._snapshot()
        sync.directories = [self.directory, self.directory.rpartition("/")[0]]
        write, operations = self._write, self.operations
        if write is None or not operations or operations[-1] is not write:
            # It was written at once: then this stands for it. It takes no more frames, others may be written already.
            self._serial += 1
            write, self._write = Write(self._active, self._active.size_bytes, self._serial), None
            operations.append(write)
        write.sync = sync

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end_offset) of the newest epoch not above `leader_epoch` (KIP-101, KIP-320); None: older."""
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def epoch_at_offset(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, which is in the log or at its end."""
        return self._epochs.term_at_offset(offset)

    def epochs(self) -> list[tuple[int, int, int]]:
        """Return (epoch, first_index, start_offset) of every term that wrote something, oldest first."""
        return self._epochs.rows()

    def append_batch(self, term: int, frame: bytearray | memoryview) -> Entry:
        """Append a client's batch as leader: stamp base offset and epoch into it, and give it the next index.

        The frame belongs to the log from here on. When this raises, nothing was changed.

        Raises:
            DiskFullError, StorageBusyError: not now.
            StorageFailedError: this replica, or the whole node, cannot write any more.
        """
        self._check()
        stamp(frame, self.log_end_offset, term)
        index = self.last_index + 1
        entry = Entry(index, term, frame)
        self._place((entry,))
        return entry

    def append_control(self, term: int, kind: ControlKind, body: bytes = b"") -> Entry:
        """Append a control frame as leader: it takes an index and no offset."""
        self._check()
        entry = Entry(self.last_index + 1, term, control_frame(self.log_end_offset, term, kind, body))
        self._place((entry,))
        return entry

    def append(self, entries: Sequence[Entry]) -> None:
        """Append a leader's entries verbatim, as follower. Their checksums were checked when they arrived.

        Not refused when the queues are full: leaders hold back what is for a busy node (`SharedStorage.is_busy`).

        Raises:
            CorruptBatchError: the first one's offset or term does not continue this log; nothing was changed. That
                those of the others continue each other, whoever decodes them has seen.
            DiskFullError, StorageFailedError: as `append_batch`.
        """
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        if self._host.refusal is not None:
            self._refuse(self._host.refusal)
        if entries:
            first = entries[0]
            assert first.index == self.last_index + 1, (first.index, self.last_index)
            base_offset = _unpack_fields(first.frame)[0]
            if base_offset != self.log_end_offset or first.term < self.last_term:
                raise CorruptBatchError(
                    f"entry {first.index} at offset {base_offset} and of term {first.term}, behind a log that ends at "
                    f"offset {self.log_end_offset} in term {self.last_term}"
                )
            self._place(entries)

    def _check(self) -> None:
        host = self._host
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        if host.refusal is not None:
            self._refuse(host.refusal)
        waiting = host.waiting_bytes
        if waiting > host.config.queued_bytes_max:
            self._refuse(StorageBusyError(f"{waiting} bytes wait for the disk"))

    def _refuse(self, error: StorageFailedError) -> None:
        self._host.stats.refused_appends += 1
        # One error for all, for as long as there is no room: it must not keep the frames of everybody who was refused.
        raise error.with_traceback(None)

    def _place(self, entries: Sequence[Entry]) -> None:
        """Put entries that continue the log into every place where they must be."""
        host = self._host
        inline = not self.operations and not self.under_way and self._write_inline(entries)
        put, journaled, tail, index, size_all, ticket = host.commits.put, self._journaled, self._tail, 0, 0, 0
        for entry in entries:
            frame, index, term = entry.frame, entry.index, entry.term
            size = len(frame)
            base_offset, delta, max_timestamp = _unpack_fields(frame)
            assert base_offset == self.log_end_offset, (base_offset, self.log_end_offset)
            segment = self._active
            if segment.size_bytes + size > self._segment_bytes and base_offset > segment.base_offset:
                segment = self._roll(index)
            if term != self.last_term:
                self._epochs.assign(term, index, base_offset)
                self.last_term = term
            if not inline:
                self._queue_write(segment, frame, size, index)
            segment.add(index, base_offset, size, max_timestamp)
            if delta < 0:
                self._note_control(index, term, frame)
            self.log_end_offset = base_offset + delta + 1
            size_all += size
            tail.add(entry, size, base_offset, is_control=delta < 0)
            if journaled:
                ticket = put(ENTRY, self.group, index, term, frame, self)
        self.last_index = index
        self.size_bytes += size_all
        if journaled:
            self._durable.queue(ticket, index)
        else:
            host.bytes_since_checkpoint += size_all  # of the others the journal counts the bytes
        if inline and self.operations:  # a change of members among them
            self._written.queue(self._serial, index)
            host.writes.add(self)
        elif inline:
            self._written.reached = index
            tail.written(index)
        elif not journaled:  # else they wait for their batch of the journal: it may take them along
            host.writes.add(self)
        self._mark_dirty()
        stats = host.stats
        stats.appended_entries += len(entries)
        stats.appended_bytes += size_all

    def _mark_dirty(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._host.dirty[self] = None

    def _queue_write(self, segment: Segment, frame: Buffer, size: int, index: int) -> None:
        operations, write = self.operations, self._write
        # Once the worker has it, or something else follows it, nothing can be added to it any more.
        is_last = write is not None and bool(operations) and operations[-1] is write
        if write is None or not is_last or write.segment is not segment or write.is_held != self._journaled:
            self._serial += 1
            write = self._write = Write(segment, segment.size_bytes, self._serial, is_held=self._journaled)
            if not segment.size_bytes:
                self._directory_changed = True  # the file is made now
            operations.append(write)
        write.buffers.append(frame)
        write.size_bytes += size
        write.last_index = index
        self._host.writes.waiting_bytes += size
        self._written.queue(write.serial, index)

    def _write_inline(self, entries: Sequence[Entry]) -> bool:
        """Write to the page cache now, before anything else changes; False if that must be queued instead.

        Raises:
            StorageFailedError: this replica cannot be written to any more; only in page-cache mode.
        """
        segment, host = self._active, self._host
        buffers = [entry.frame for entry in entries]
        size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        position = segment.size_bytes
        # A file that does not exist yet is made by the write worker.
        if not position or position + size > self._segment_bytes:
            return False
        if self._journaled and not host.commits.may_write_here(size):
            return False
        try:
            fd = host.opened.acquire(segment.log)
        except OSError:
            return False  # The queue tries the same, and deals with what comes of it.
        try:
            host.files.write(fd, buffers, position)
        except OSError as error:
            if self._journaled or will_pass(error):
                return False  # As above. It writes to the same place.
            self._fail(f"cannot write {segment.log.path}: {error}")
            assert self.failed is not None
            raise self.failed from error
        finally:
            host.opened.release(segment.log, fd)
        begin, stop = write_back_range(segment, position, position + size)
        if begin < stop:
            host.start_write_back(segment, begin, stop - begin)
        return True

    def _roll(self, index: int) -> Segment:
        """Begin a new segment with the entry at `index`. Only after a data frame, so that names stay distinct."""
        segment = Segment(self.directory, self.log_end_offset, index)
        self._host.used_index(self._active)
        self._segments.append(segment)
        self._active = segment
        if self.on_rolled is not None:
            self.on_rolled(self.group)
        return segment

    def _row(self) -> ReplicaRow:
        return ReplicaRow(
            bytes(self.group),
            self.name,
            not self._journaled,
            str(self.failed) if self.failed is not None else "",
            self.start_index,
            self.last_index,
            self.log_end_offset,
            self._truncations,
            self._epochs.rows(),
            [segment.row() for segment in self._segments],
            self._members.rows(),
            self.is_uncertain,
            self.partial_since,
            self.is_blank,
        )

    def became_certain(self) -> None:
        """It has caught up with all that it may have lost."""
        self.is_uncertain = self.is_blank = False
        # Before anything that is acknowledged from here on: two doubts, where there is only one, may elect nobody.
        self._host.commits.put(RecordKind.CERTAIN, self.group, 0, 0)
        self._mark_dirty()

    def sync_operation(self) -> Sync:
        """Return what makes the log as it is now, once its queue is carried out, survive a loss of power."""
        writes = [write for segment in self._segments[:-1] for write in segment.index_writes()]
        writes += self._active.index_writes(index_files_from(self._segment_bytes))
        operation = self._snapshot()
        operation.index_writes = writes
        for segment in self._segments:
            segment.is_dirty = False
        self._directory_changed = False
        return operation

    def _snapshot(self) -> Sync:
        """Return the same without index rows, and count nothing as done: it may never be carried out."""
        handles = [segment.log for segment in self._segments if segment.is_dirty]
        # The name of the directory itself is synced with the checkpoint, once for all.
        directories = [self.directory] if self._directory_changed else []
        return Sync(self._row(), handles, [], directories)

    def store(self, size_bytes: int) -> Store | None:
        """Return what puts the log as it is now on the disk; None if something else is to be done to it first.

        With an old file of a compacted segment that counts until the next checkpoint, too: nobody knows of that here.
        """
        if self.failed is not None or self.is_deleted or self.under_way or self._replaced or not self._journaled:
            return None
        writes = [operation for operation in self.operations if type(operation) is Write]
        if len(writes) < len(self.operations):
            return None
        self.operations, self._write = [], None
        dirty = [segment for segment in self._segments if segment.is_dirty]
        for segment in dirty:
            segment.is_dirty = False
        directories = [self.directory] if self._directory_changed else []
        if not self._is_named:
            directories.append(self.directory.rpartition("/")[0])
        self._directory_changed, self._is_named = False, True
        return Store(writes, [segment.log for segment in dirty], directories, size_bytes)

    def queue_checkpoint(self) -> None:
        """Let the write worker sync what this log has. Its row reaches `Storage` when that is done."""
        self._is_dirty = False
        if not self._host.writes.add_sync(self, self.sync_operation):
            # The row will be that of before a truncation: the next checkpoint begins behind it in the journal.
            self._mark_dirty()

    def on_journaled(self, durable_ticket: int) -> None:
        if self._durable.complete(durable_ticket):
            self._host.moved[self.group] = None

    def on_operation(self, operation: Operation) -> None:
        """The write worker has carried out `operation`."""
        if isinstance(operation, Write):
            self._wrote(operation)
        elif isinstance(operation, Store):
            for write in operation.writes:
                self._wrote(write)
            self._host.bytes_since_checkpoint += operation.size_bytes
        elif isinstance(operation, Sync):
            self._host.on_synced(self, operation.row)

    def _wrote(self, write: Write) -> None:
        if write is self._write:
            self._write = None  # else each log would keep the frames that were last written
        if self._written.complete(write.serial):
            self._tail.written(self._written.reached)
            if not self._journaled:
                self._host.moved[self.group] = None

    def on_operation_failed(self, operation: Operation, error: OSError) -> None:
        """Its files cannot be trusted any more: this replica is out, the others go on."""
        self._fail(f"{self.name}: {error}")
        if isinstance(operation, Sync):
            self._host.on_synced(self, operation.row)

    def _fail(self, cause: str) -> None:
        """Final until the next start, which looks again whether all that was durable is here (`recovery.replica`)."""
        if self.failed is not None or self.is_deleted:
            return
        self.failed = StorageFailedError(cause)
        index = self.durable_index
        self.durable_when_failed = (index, [row for row in self._epochs.rows() if row[1] <= index])
        self._mark_dirty()
        self._give_up_operations()
        self._tail.written(self.last_index)  # nobody will read it: the memory may go
        if self.on_failed is not None:
            self.on_failed(self.group, self.failed)

    def _give_up_operations(self) -> None:
        operations, self.operations, self._write = self.operations, [], None
        for operation in operations:
            self._host.writes.waiting_bytes -= operation.queued_bytes
            if isinstance(operation, Sync):
                self._host.on_synced(self, operation.row)

    def created(self) -> None:
        """The log is new, or its mode is: its directory is wanted, and the next checkpoint must have it."""
        self.operations.append(MakeDirectory(self.directory))
        self._host.writes.add(self)
        self._mark_dirty()

    def deleted(self) -> None:
        """Let go of everything; operations that are under way find their files gone."""
        self.is_deleted = True
        self._give_up_operations()
        host = self._host
        self._tail.forget_all()
        host.loaded.drop_group(self.group)
        for segment in self._segments:
            host.forget_index(segment)
            for handle in segment.handles:
                host.opened.forget(handle)
