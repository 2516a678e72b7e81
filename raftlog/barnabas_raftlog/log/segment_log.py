"""The log of one replica, complete: what `append_log` puts in is read, truncated, replayed and forgotten here.

Reading goes from the cheap to the costly: the tail cache answers from memory, then the page cache on the loop, then a
thread. Whatever is not in the tail cache is in a segment file, so a cold read is bounded by where the tail begins, and
never sees bytes that a truncation has made invalid.

Truncation changes the log in memory at once and the files in order (see `write_queue.Gate`): the journal has it before
anything that is appended afterwards can become durable, in both modes.

Timestamps are answered for whole batches first (headers only), and within the one batch that was found by decoding it.
"""

import struct
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from typing import TypeVar

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.header import BatchHeader, parse_header
from barnabas_raftlog.wire.crc32c import crc32c

from .append_log import AppendLog
from .cold_reads import Hint, NotCachedError, Rows
from .journal_format import RecordKind
from .leader_epochs import LeaderEpochs
from .segment import Segment
from .timestamps import Answer, TimestampReads
from .write_queue import Gate, Remove, Save, Truncate

__all__ = ["ReplicaLog"]

REPLAY_BYTES = 1 << 20
STATE_HEADER = struct.Struct(">IQQ")  # crc of what follows, index, term
T = TypeVar("T")


class ReplicaLog(AppendLog):
    """What `Storage.open_log` returns. Implements `LogReader`."""

    def offset_after(self, index: int) -> int:
        """Return the end offset of the part of the log that ends with entry `index`.

        From memory for anything recent; else it reads a few headers from the segment file, on the loop.
        """
        if index == self.last_index:
            return self.log_end_offset
        if index <= self.start_index:
            return self.log_start_offset
        assert index < self.last_index, (index, self.last_index)
        if index + 1 >= self._tail.first_index:
            return self._tail.base_offset_at(index + 1)
        return self._find(index + 1)[1]

    def _find(self, index: int) -> Hint:
        """Return (index, base_offset, position within its segment) of an entry that is not in the tail. May block."""
        segment = self._segment_of_index(index)
        self._host.cold.load_index(segment, blocking=True)
        hint = segment.index.before_index(index)
        place = self._host.cold.seek(segment, hint, segment.size_bytes, lambda found, _: found == index, blocking=True)
        if place is None:
            raise CorruptBatchError(f"{segment.log.path} has no entry {index}")
        return place

    def _segment_of_index(self, index: int) -> Segment:
        return next(segment for segment in reversed(self._segments) if segment.first_index <= index)

    def _segment_number(self, offset: int) -> int:
        """Return the place in `_segments` of the one that has `offset`: the last that begins at or before it."""
        number = len(self._segments) - 1
        while number > 0 and self._segments[number].base_offset > offset:
            number -= 1
        return number

    def read(self, start_offset: int, end_offset: int, bytes_max: int) -> list[Buffer] | None:
        """Return whole data frames, the first one containing `start_offset`, none beyond `end_offset`.

        At least one if there is one, whatever `bytes_max` (KIP-74). None: not in memory, use `read_cold`. The views
        stay valid for as long as the caller keeps them.
        """
        if start_offset >= end_offset or start_offset >= self.log_end_offset:
            return []
        tail = self._tail
        if tail.holds_offset(start_offset):
            return tail.read(start_offset, end_offset, bytes_max, self.log_end_offset)
        return None

    async def read_cold(self, start_offset: int, end_offset: int, bytes_max: int) -> list[Buffer]:
        """Return the same from the segment files; from one segment only, so perhaps less.

        Cancellation: it has no effect.

        Raises:
            StorageFailedError: the file cannot be read, or does not hold frames; the replica has failed.
        """
        while True:
            in_memory = self.read(start_offset, end_offset, bytes_max)
            if in_memory is not None:
                return in_memory
            self._host.stats.cold_reads += 1
            # What the tail holds need not be in the file yet.
            limit = min(end_offset, self._tail_offset())
            start_offset = max(start_offset, self.log_start_offset)
            number = self._segment_number(start_offset)
            segment = self._segments[number]
            frames = await self._guard(self._range(segment, (start_offset, limit, bytes_max)))
            if frames or number + 1 >= len(self._segments) or self._segments[number + 1].base_offset >= limit:
                return frames
            start_offset = max(start_offset, self._segments[number + 1].base_offset)

    async def _range(self, segment: Segment, limits: tuple[int, int, int]) -> list[Buffer]:
        cold = self._host.cold
        await cold.index_of(segment)
        self._used(segment)
        hint = segment.index.before_offset(limits[0])
        size = segment.size_bytes
        return await cold.run(lambda blocking: cold.range(segment, hint, limits, size, blocking=blocking))

    def _tail_offset(self) -> int:
        return self._tail.base_offset_at(self._tail.first_index) if self._tail.count else self.log_end_offset

    def _used(self, segment: Segment) -> None:
        if segment is not self._active:
            self._host.used_index(segment)

    async def _guard(self, reading: Awaitable[T]) -> T:
        """Await a read; if it shows that a file is bad, this replica has failed."""
        try:
            return await reading
        except (OSError, CorruptBatchError) as error:
            if not self.is_deleted:
                self._fail(f"cannot read {self.name}: {error}")
            raise StorageFailedError(f"cannot read {self.name}: {error}") from error

    def entries(self, start_index: int, bytes_max: int) -> Sequence[Entry] | None:
        """Return entries from `start_index` on. None: they are being loaded, `on_loaded` will be called."""
        if start_index > self.last_index:
            return ()
        if start_index >= self._tail.first_index:
            return self._tail.entries(start_index, bytes_max)
        assert start_index >= self.first_index, (start_index, self.first_index)
        run = self._host.loaded.get(self.group, start_index)
        if run is not None:
            return run
        if start_index in self._loading or self.failed is not None:
            return None
        try:
            return self._entries_of(self._segment_of_index(start_index), start_index, bytes_max, blocking=False)
        except NotCachedError:
            self._loading.add(start_index)
            self._load(start_index, bytes_max)
        except (OSError, CorruptBatchError) as error:
            self._fail(f"cannot read {self.name}: {error}")
        return None

    def _entries_of(self, segment: Segment, start_index: int, bytes_max: int, *, blocking: bool) -> list[Entry]:
        """Return entries from a segment file, as far as they are surely in it."""
        cold = self._host.cold
        if not blocking:
            cold.load_index(segment, blocking=False)
        hint = None if segment.index.missing else segment.index.before_index(start_index)
        last = self._tail.first_index - 1
        return cold.entries(segment, hint, start_index, last, bytes_max, blocking=blocking)

    def _load(self, start_index: int, bytes_max: int) -> None:
        """Read entries in a thread; the sparse index before them, if it is not in memory."""
        cold, segment = self._host.cold, self._segment_of_index(start_index)
        truncations = self._truncations

        def rows_read(rows: Rows | None, _: BaseException | None) -> None:
            if rows is not None:
                cold.apply_rows(segment, rows)
            read_entries()

        def read_entries() -> None:
            job = partial(self._entries_of, segment, start_index, bytes_max, blocking=True)
            cold.submit(job, entries_read)

        def entries_read(entries: list[Entry] | None, error: BaseException | None) -> None:
            self._loading.discard(start_index)
            if self.is_deleted:
                return
            if truncations == self._truncations:
                if error is not None:
                    self._fail(f"cannot read {self.name}: {error}")
                elif entries:
                    self._host.loaded.put(self.group, entries)
            if self.on_loaded is not None:
                self.on_loaded(self.group)

        if segment.index.missing or segment.time_index.missing:
            cold.submit(partial(cold.rows, segment, blocking=True), rows_read)
        else:
            read_entries()

    async def replay(self, from_index: int) -> AsyncIterator[Entry]:
        """Yield the entries from `from_index` to what is then the last one, in order, checksums checked.

        Raises:
            StorageFailedError: one cannot be read; the replica has failed.
        """
        index, cold = max(from_index, self.first_index), self._host.cold
        while index <= self.last_index:
            if index >= self._tail.first_index:
                run = self._tail.entries(index, REPLAY_BYTES)
            else:
                segment = self._segment_of_index(index)
                await self._guard(cold.index_of(segment))
                job = partial(self._entries_of, segment, index, REPLAY_BYTES, blocking=True)
                run = await self._guard(cold.in_thread(job))
            for entry in run:
                yield entry
            index += len(run)

    async def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> Answer:
        """Return (offset, timestamp, epoch) of the first record at or after `timestamp_ms` and below `end_offset`."""
        return await self._guard(self._timestamps().first_at(timestamp_ms, end_offset))

    async def max_timestamp(self, end_offset: int) -> Answer:
        """Return (offset, timestamp, epoch) of the first record below `end_offset` that has the largest timestamp."""
        return await self._guard(self._timestamps().largest(end_offset))

    def _timestamps(self) -> TimestampReads:
        return TimestampReads(self._host.cold, [(s, self._bytes_in_file(s)) for s in self._segments], self._tail)

    def _bytes_in_file(self, segment: Segment) -> int:
        """Return how many bytes of `segment` are surely in its file: those before what the tail cache holds."""
        tail_bytes = self._tail.bytes
        for known in reversed(self._segments):
            if known is segment:
                return max(0, segment.size_bytes - tail_bytes)
            tail_bytes = max(0, tail_bytes - known.size_bytes)
        return 0

    def truncate_from(self, index: int) -> None:
        """Forget the entries at and after `index`.

        Durable before anything that is appended from now on is. When this raises, nothing was changed.
        """
        if self.failed is not None:
            raise self.failed
        assert self.first_index <= index <= self.last_index, (self.first_index, index, self.last_index)
        segment, position, base_offset = self._place_of(index)
        before = self._snapshot()
        gone = self._segments[self._segments.index(segment) + 1 :]
        del self._segments[len(self._segments) - len(gone) :]
        self._host.cold.load_index(segment, blocking=True)
        for known in gone:
            self._host.forget_index(known)
        self.size_bytes -= segment.size_bytes - position + sum(known.size_bytes for known in gone)
        self._active = segment
        segment.truncate_to(position, base_offset)
        self._host.forget_index(segment)
        self._renew_max(segment, position, index)
        self.last_index = index - 1
        self.log_end_offset = base_offset
        self._epochs.truncate_from(index)
        self.last_term = self._epochs.last_term
        self._tail.truncate_from(index)
        self._durable.truncate_from(index)
        self._written.truncate_from(index)
        self._host.loaded.drop_group(self.group)
        self._truncations += 1
        number = self._truncations
        ticket = self._host.commits.put(RecordKind.TRUNCATE, self.group, index, number, b"", self)
        self.operations.append(Gate(ticket, number, before))
        handles = [handle for known in gone for handle in known.handles]
        if handles:
            self.operations.append(Remove(handles, "" if self._journaled else self.directory))
        self.operations.append(Truncate(segment.log, position, sync=not self._journaled))
        self._directory_changed = True
        if not self._journaled:
            self.operations.append(Gate(None, number, self._snapshot()))
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

    def _renew_max(self, segment: Segment, position: int, index: int) -> None:
        """Count the timestamps of the frames between the last index row and a truncation at `index`."""
        row = segment.index.before_index(index - 1)
        number = row[0] if row else segment.first_index
        stop = min(self._tail.first_index, index)

        def count(found: int, header: BatchHeader) -> bool:
            segment.renew_max(header.max_timestamp, header.base_offset)
            return found >= stop - 1

        if number < stop:
            self._host.cold.seek(segment, row, position, count, blocking=True)
            number = stop
        for known in range(number, index):
            header = parse_header(self._tail.entry_at(known).frame)
            segment.renew_max(header.max_timestamp, header.base_offset)

    def install_snapshot(self, index: int, term: int, end_offset: int) -> None:
        """Forget everything: the log now starts after entry `index` of `term`, with offset `end_offset`.

        Only for groups in fsync mode, whose journal says what the segment files must look like.
        """
        if self.failed is not None:
            raise self.failed
        assert self._journaled, self.name
        before = self._snapshot()
        handles = [handle for segment in self._segments for handle in segment.handles]
        for segment in self._segments:
            self._host.forget_index(segment)
        self._active = Segment(self.directory, end_offset, index + 1)
        self._segments = [self._active]
        self._epochs = LeaderEpochs()
        if index:
            self._epochs.assign(term, index, end_offset)
        self.start_index = self.last_index = index
        self.last_term, self.log_end_offset, self.size_bytes = term, end_offset, 0
        self._tail.reset(index + 1)
        self._written.reset(index)
        self._host.loaded.drop_group(self.group)
        self._truncations += 1
        payload = end_offset.to_bytes(8, "big")
        ticket = self._host.commits.put(RecordKind.INSTALL, self.group, index, term, payload, self)
        self._durable.reset(index - 1)
        self._durable.queue(ticket, index)
        self.operations.append(Gate(ticket, self._truncations, before))
        self.operations.append(Remove(handles))
        self._directory_changed = True
        self._host.writes.add(self)
        self._mark_dirty()

    def drop_prefix(self, index: int) -> None:
        """Forget the sealed segments all of whose entries are at or before `index`."""
        count = 0
        while count + 1 < len(self._segments) and self._segments[count + 1].first_index <= index + 1:
            count += 1
        if not count or self.failed is not None:
            return
        # A checkpoint may still name them: recovery knows that leading segments may be gone.
        gone = self._segments[:count]
        del self._segments[:count]
        self.start_index = self._segments[0].first_index - 1
        self._epochs.drop_prefix(self.start_index)
        self.size_bytes -= sum(segment.size_bytes for segment in gone)
        for segment in gone:
            self._host.forget_index(segment)
        self.operations.append(Remove([handle for segment in gone for handle in segment.handles]))
        self._host.writes.add(self)
        self._mark_dirty()

    def save_state(self, index: int, blob: bytes) -> None:
        """Keep `blob`, which says what the state after entry `index` is, in place of an older one. Queued."""
        term = self.term_at(index)
        assert term is not None, index
        tail = struct.pack(">QQ", index, term) + blob
        self.operations.append(Save(f"{self.directory}/state", struct.pack(">I", crc32c(tail)) + tail))
        self._host.writes.add(self)

    def load_state(self) -> tuple[int, bytes] | None:
        """Return what `save_state` kept: (index, blob); None if there is nothing that fits this log. May block."""
        path = f"{self.directory}/state"
        files = self._host.files
        if not files.exists(path):
            return None
        fd = files.open(path, create=False)
        try:
            data = files.read(fd, 0, files.size(fd))
        finally:
            files.close(fd)
        if len(data) < STATE_HEADER.size or crc32c(data[4:]) != STATE_HEADER.unpack_from(data)[0]:
            return None
        _, index, term = STATE_HEADER.unpack_from(data)
        # Equal index and term: the same entry, and the same log before it. Else there was a truncation in between.
        return (index, bytes(data[STATE_HEADER.size :])) if self.term_at(index) == term else None
