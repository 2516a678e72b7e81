"""The log of one replica loses entries: from its end (truncation), from its beginning, or all of them (a snapshot).

All three change the log in memory at once, and the files in order: the journal has it first, then the files show it
(see `write_queue.Gate`). A crash in between leaves files that hold more than the log, which recovery knows.

*The end* goes when a leader contradicts it. The journal has that before anything that is appended afterwards can become
durable, in both modes.

*The beginning* goes in two steps. `drop_before` moves `log_start_offset` to any offset of the committed log; from then
on nothing below it is served. Segments go when they can, each as a whole: every entry of it is below the start,
committed, durable here, and covered by a state of the owner that is on the disk, because what is gone cannot be
replayed. Where the start lies is for the owner to remember (`save_state`), who hears of it from the log itself: a
`PREFIX_TRUNCATION` frame says it, and after a crash is met again when the log is replayed. Nothing is lost with a
segment that holds such a frame: the frame comes after all that it takes away, so the segment behind it begins at the
start or later.

*Everything* goes when this replica lacks entries that its leader no longer has. The log then begins where the leader's
does, without an entry; what the owner must know beside the entries comes with the snapshot, and goes into the journal
record with it, so that a crash finds both or neither.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.journal.format import PARTIAL_BIT, RecordKind, encode_place
from barnabas_raftlog.log.machine.disk_errors import will_pass
from barnabas_raftlog.log.machine.files import read_file
from barnabas_raftlog.log.machine.open_files import FileHandle
from barnabas_raftlog.log.segments.cold_reads import Hint
from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs
from barnabas_raftlog.log.segments.operations import Gate, Operation, Remove, Save, Sync, SyncDirectory, Truncate, Write
from barnabas_raftlog.log.segments.segment import NO_TIMESTAMP, Segment
from barnabas_raftlog.log.state_file import StateOrMaker, decode_state, encode_state, made
from barnabas_raftlog.raft.membership import NOBODY, Configuration
from barnabas_raftlog.raft.messages import Buffer, Place
from barnabas_raftlog.records.header import BatchHeader, parse_header

from .appending import AppendLog
from .retention import SegmentSpan

__all__ = ["CutLog"]

STATE_FILE = "state"
_INSTALLED = struct.Struct(">QQ")  # end offset, number of the truncation


class CutLog(AppendLog):
    """An `AppendLog` that can become shorter at both ends, and keeps what its owner knows beside it."""

    _committed_index = 0  # what `drop_before` was told
    _saved_index = 0  # the entry that the state on the disk is kept with
    _asked_index = 0  # up to which entry `on_state_needed` was asked to save it
    on_state_needed: Callable[[], None] | None = None
    """Asks the owner to save its state again: its last one is kept with an older entry than what is to be deleted."""
    _pins: Mapping[Segment, int] = MappingProxyType({})  # whose files must stay; replaced, never changed

    def offset_after(self, index: int) -> int:
        """Return the end offset of the part of the log that ends with entry `index`.

        From memory for anything recent; else it reads a few headers from the segment file, on the loop.
        """
        if index == self.last_index:
            return self.log_end_offset
        if index <= self.start_index:
            return self.base_offset
        assert index < self.last_index, (index, self.last_index)
        if index + 1 >= self._tail.first_index:
            return self._tail.base_offset_at(index + 1)
        return self._find(index + 1)[1]

    def _find(self, index: int) -> Hint:
        """Return (index, base_offset, position within its segment) of an entry that is not in the tail. May block.

        Raises:
            StorageFailedError: its segment cannot be read.
        """
        segment, cold = self._segment_of_index(index), self._host.cold
        try:
            cold.load_index(segment, blocking=True)
            hint = segment.index.before_index(index)
            place = cold.seek(segment, hint, segment.size_bytes, lambda found, _: found == index, blocking=True)
            if place is None:
                raise CorruptBatchError(f"{segment.log.path} has no entry {index}")
        except (OSError, CorruptBatchError) as error:
            self._on_unreadable((segment,), error)
            raise StorageFailedError(f"cannot read {self.name}: {error}") from error
        return place

    def _on_unreadable(self, segments: Sequence[Segment], error: BaseException) -> None:
        """Note what a failed read says about these segments, or one of them: sealed ones can be mended.

        What will pass says nothing about them: `on_loaded` is called when it should be tried again.
        """
        if self.is_deleted:
            return
        if will_pass(error):
            self._host.hamper(self, error)
            return
        if list(segments) == [self._active]:
            self._fail(f"cannot read {self.name}: {error}")
            return
        for segment in segments:
            if segment in self._segments and segment is not self._active:
                self._host.suspect(self, segment, str(error))

    def _segment_of_index(self, index: int) -> Segment:
        return next(segment for segment in reversed(self._segments) if segment.first_index <= index)

    def truncate_from(self, index: int) -> None:
        """Forget the entries at and after `index`.

        Durable before anything that is appended from now on is. When this raises, nothing was changed.
        """
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        assert self.first_index <= index <= self.last_index, (self.first_index, index, self.last_index)
        segment, position, base_offset = self._place_of(index)
        newest = self._newest_before(segment, position, index)
        before = self._snapshot()
        gone = self._segments[self._segments.index(segment) + 1 :]
        del self._segments[len(self._segments) - len(gone) :]
        for known in gone:
            self._host.forget_index(known)
        self.size_bytes -= segment.size_bytes - position + sum(known.size_bytes for known in gone)
        self._active = segment
        segment.truncate_to(position, base_offset)
        self._host.forget_index(segment)
        segment.renew_max(*newest)
        self.last_index = index - 1
        self.log_end_offset = base_offset
        self._epochs.truncate_from(index)
        self._members.truncate_from(index)
        self.configuration = self._members.newest
        self.last_term = self._epochs.last_term
        self._tail.truncate_from(index)
        self._durable.truncate_from(index)
        self._written.truncate_from(index)
        self._host.loaded.drop_group(self.group)
        self._truncations += 1
        number = self._truncations
        self._add_gate(before, RecordKind.TRUNCATE, index, number)
        handles = [handle for known in gone for handle in known.handles]
        if handles:
            self.operations.append(Remove(handles, "" if self._journaled else self.directory))
        self.operations.append(Truncate(segment.log, position, sync=not self._journaled))
        self._directory_changed = True
        if not self._journaled:
            self._add_gate(self._snapshot(), RecordKind.TRUNCATED, 0, number)
        self._host.writes.add(self)
        self._mark_dirty()

    def _place_of(self, index: int) -> tuple[Segment, int, int]:
        """Return segment, position within it and base offset of an entry."""
        if index < self._tail.first_index:
            _, base_offset, position = self._find(index)
            return self._segment_of_index(index), position, base_offset
        after = self._tail.bytes_from(index)
        for segment in reversed(self._segments):
            if segment.first_index <= index:
                return segment, segment.size_bytes - after, self._tail.base_offset_at(index)
            after -= segment.size_bytes
        raise AssertionError(f"no segment has entry {index}")

    def _newest_before(self, segment: Segment, position: int, index: int) -> tuple[int, int]:
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

        stop = min(self._tail.first_index, index)
        try:
            self._host.cold.load_index(segment, blocking=True)
            row = segment.index.before_index(index - 1)
            number = row[0] if row else segment.first_index
            if number < stop:
                self._host.cold.seek(segment, row, position, count, blocking=True)
                number = stop
        except (OSError, CorruptBatchError) as error:
            self._on_unreadable((segment,), error)
            raise StorageFailedError(f"cannot read {self.name}: {error}") from error
        for known in range(number, index):
            count(0, parse_header(self._tail.entry_at(known).frame))
        return newest

    def install_snapshot(
        self,
        index: int,
        term: int,
        end_offset: int,
        state: Buffer = b"",
        configuration: Configuration = NOBODY,
        *,
        partial_since: Place | None = None,
    ) -> None:
        """Forget everything: the log now starts after entry `index` of `term`, with offset `end_offset`.

        With `index` 0 nothing stands for what was acknowledged before: the log is uncertain from now on.

        `durable_index` reaches `index` when the journal has this, and in page-cache mode when the files show it.
        `load_state` returns `state` from then on, unless it is empty. `configuration` holds there; `NOBODY`: what held.
        `partial_since`: this is a witness's log, by the configuration at that place; nothing stands for what it lacks.
        """
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        before = self._snapshot()
        handles = self._forget_segments()
        self._active = Segment(self.directory, end_offset, index + 1)
        self._segments = [self._active]
        self._epochs = LeaderEpochs()
        if index:
            self._epochs.assign(term, index, end_offset)
        else:
            self.is_uncertain = self.is_blank = True
        self.start_index = self.last_index = index
        self.last_term, self.log_end_offset, self.size_bytes = term, end_offset, 0
        self.log_start_offset = end_offset
        self._tail.reset(index + 1)
        self._host.loaded.drop_group(self.group)
        # Before the journal has what it belongs to: recovery drops it if that never came.
        self._restart_members(index, term, configuration if configuration.voters else self.configuration)
        self._truncations += 1
        number = self._truncations
        saved = encode_state(index, term, state) if state else b""
        self.partial_since = partial_since
        is_partial = partial_since is not None
        payload = _INSTALLED.pack(end_offset, number | is_partial << PARTIAL_BIT) + encode_place(partial_since) + saved
        gate = self._add_gate(before, RecordKind.INSTALL, index, term, payload)
        self.operations.append(Remove(handles, "" if self._journaled else self.directory))
        if saved:
            self._queue_save(index, saved)
        self._await_snapshot(gate, index, number)

    def _forget_segments(self) -> list[FileHandle]:
        """Return the files of the log, which begins anew, with those that wait for a checkpoint to replace them.

        The latter go with the others, before anything new has a place: it may have the name of one of them.
        """
        for segment in self._segments:
            self._host.forget_index(segment)
        waiting = [handle for _, _, handles in self._replaced for handle in handles]
        self._replaced = []
        return waiting + [handle for segment in self._segments for handle in segment.handles]

    def _await_snapshot(self, gate: Gate, index: int, number: int) -> None:
        """Let entry `index` be durable when the snapshot behind `gate` is; what makes it so is queued already."""
        self._directory_changed = True
        durable_index = max(min(self.durable_index, index - 1), 0)  # what a crash would leave now
        if gate.ticket is not None:
            self._durable.reset(durable_index)
            self._durable.queue(gate.ticket, index)
            self._written.reset(index)
        else:
            # Until the journal says that the files show it, a crash would empty the log again: the file that is made
            # behind the second gate is what counts.
            self._add_gate(self._snapshot(), RecordKind.TRUNCATED, 0, number)
            self._serial += 1
            write = self._write = Write(self._active, 0, self._serial)
            write.last_index = index
            self.operations.append(write)
            self._written.reset(durable_index)
            self._written.queue(write.serial, index)
        self._host.writes.add(self)
        self._mark_dirty()

    def roll(self) -> bool:
        """Close the newest segment, and return whether that was so: one without records stays."""
        if self.failed is not None or self.is_deleted or self._active.base_offset == self.log_end_offset:
            return False
        self._roll(self.last_index + 1)
        return True

    def limit_segments(self, segment_bytes: int) -> None:
        """Let new segments begin at this size from now on."""
        self._segment_bytes = segment_bytes

    def spans(self) -> list[SegmentSpan]:
        """Return the segments, oldest first, as retention looks at them."""
        segments = self._segments
        ends = [segment.base_offset for segment in segments[1:]]
        return [
            SegmentSpan(segment.base_offset, end_offset, segment.size_bytes, segment.newest_ms, segment.modified_ms)
            for segment, end_offset in zip(segments, (*ends, self.log_end_offset), strict=True)
        ]

    def drop_before(self, offset: int, committed_index: int) -> None:
        """Let the log start at `offset`, and delete the segments below it as soon as nothing needs them any more.

        Entries above `committed_index` stay. If `has_segments_before(offset)`, the owner saves its state first.
        """
        assert offset <= self.log_end_offset, (offset, self.log_end_offset)
        self.log_start_offset = max(self.log_start_offset, offset)
        self._committed_index = max(self._committed_index, committed_index)
        if self.log_start_offset == self.log_end_offset:
            # Nothing in the newest segment is needed either, but its file only goes when another one is the newest.
            self.roll()
        self._drop_unneeded()
        # Commits are told of behind the driver's flush; the next one may be hours away.
        self._host.commits.flush()
        self._host.writes.flush()

    def _drop_unneeded(self) -> None:
        index = min(self._committed_index, self.durable_index, self._saved_index)
        segments, count = self._segments, 0
        while (
            count + 1 < len(segments)
            and segments[count + 1].base_offset <= self.log_start_offset
            and segments[count + 1].first_index <= index + 1
            and segments[count] not in self._pins
        ):
            count += 1
        if self.failed is None:
            self._drop(count)

    def on_journaled(self, durable_ticket: int) -> None:
        super().on_journaled(durable_ticket)
        if self.log_start_offset > self.base_offset:
            self._drop_unneeded()
            self._ask_for_state()

    def on_operation(self, operation: Operation) -> None:
        super().on_operation(operation)
        if isinstance(operation, Save):
            self._saved_index = max(self._saved_index, operation.index)
        if self.log_start_offset > self.base_offset:
            self._drop_unneeded()

    def _ask_for_state(self) -> None:
        """Have the state saved anew where this alone keeps a segment.

        The others may have made durable, and so committed, what this disk has only now: then the state was kept with
        an entry before it, and nothing would delete the segment until somebody writes again.
        """
        if self.on_state_needed is None or not self.has_segments_before(self.log_start_offset):
            return
        index = self._segments[1].first_index - 1
        if max(self._saved_index, self._asked_index) < index <= min(self._committed_index, self.durable_index):
            self._asked_index = index
            self.on_state_needed()
            self._host.writes.flush()

    def has_segments_before(self, offset: int) -> bool:
        """Tell whether a whole segment lies before `offset`."""
        return len(self._segments) > 1 and self._segments[1].base_offset <= offset

    def drop_prefix(self, index: int, *, partial_since: Place | None = None) -> None:
        """Forget the sealed segments all of whose entries are at or before `index`, and durable here.

        `partial_since`: this is a witness's log, by the configuration at that place; nothing stands for what it loses.
        """
        index, count = min(index, self.durable_index), 0
        segments = self._segments
        while (
            count + 1 < len(segments)
            and segments[count + 1].first_index <= index + 1
            and segments[count] not in self._pins
        ):
            count += 1
        if self.failed is None and count:
            if partial_since is not None:
                self.partial_since = max(self.partial_since or (0, 0), partial_since)
            self._drop(count)
        self.log_start_offset = max(self.log_start_offset, self.base_offset)

    def _drop(self, count: int) -> None:
        """Forget the first `count` segments."""
        if not count:
            return
        before = self._snapshot()
        gone = self._segments[:count]
        del self._segments[:count]
        first = self._segments[0]
        self.start_index = index = first.first_index - 1
        term = self._epochs.term_at(index)
        self._epochs.drop_prefix(index)
        self._members.drop_prefix(index)
        self._tail.drop_before(first.first_index)
        self.size_bytes -= sum(segment.size_bytes for segment in gone)
        for segment in gone:
            self._host.forget_index(segment)
        payload = first.base_offset.to_bytes(8, "big") + encode_place(self.partial_since)
        # Before the journal has it, a missing file is damage.
        self._add_gate(before, RecordKind.PREFIX, index, term, payload)
        self.operations.append(Remove([handle for segment in gone for handle in segment.handles]))
        self._directory_changed = True
        self._host.writes.add(self)
        self._mark_dirty()

    def _add_gate(self, before: Sync, kind: RecordKind, index: int, term: int, payload: bytes = b"") -> Gate:
        """Let what follows in the queue wait for a record in the journal."""
        put = partial(self._host.commits.put, kind, self.group, index, term, payload, self)
        gate = Gate(before, put, at_once=self._journaled)
        self.operations.append(gate)
        return gate

    def save_state(self, index: int, state: StateOrMaker) -> None:
        """Keep what says what the state is after entry `index`, or a later one, in place of an older one.

        Queued. It counts after a crash if the log still has that entry then, so it had better be durable.
        """
        term = self.term_at(index)
        assert term is not None, index
        self._queue_save(index, lambda: encode_state(index, term, made(state)))
        self._host.writes.add(self)

    def _queue_save(self, index: int, data: StateOrMaker) -> None:
        if not self._is_named:
            # Checkpoints do this too, once for all replicas, but a state may count before the first of them.
            self._is_named = True
            self.operations.append(SyncDirectory(self.directory.rpartition("/")[0]))
        self.operations.append(Save(f"{self.directory}/{STATE_FILE}", data, index))

    def load_state(self) -> tuple[int, bytes] | None:
        """Return what `save_state` kept: (index, blob); None if there is nothing that fits this log. May block.

        Raises:
            StorageFailedError: the file cannot be read; unless that will pass, the replica has failed.
        """
        path = f"{self.directory}/{STATE_FILE}"
        try:
            data = read_file(self._host.files, path)
        except OSError as error:
            self._on_unreadable((self._active,), error)
            raise StorageFailedError(f"cannot read {path}: {error}") from error
        saved = None if data is None else decode_state(data)
        if saved is None or self.term_at(saved[0]) != saved[1]:
            return None
        return saved[0], saved[2]
