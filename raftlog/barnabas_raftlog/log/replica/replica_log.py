"""The log of one replica, complete: what `appending` puts in and what `shortening` leaves is read here.

Reading goes from the cheap to the costly: the tail cache answers from memory, then the page cache on the loop, then a
thread. Whatever is not in the tail cache is in a segment file, so a cold read is bounded by where the tail begins, and
never sees bytes that a truncation has made invalid.

A read that waits in a thread may find that its segment was dropped meanwhile, and its file deleted. That is no failure:
what it looked for is below the log's start, or gone with a truncation, and the read begins anew.

A sealed segment that cannot be read, or does not hold what it should, is not the end of its replica: that read fails,
the segment is a *suspect* (`SharedStorage.suspects`), and followers who need it wait until it was mended (`scrub`).
Damage in the segment that is written to fails the replica.

Timestamps are answered for whole batches first (headers only), and within the one batch that was found by decoding it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TypeVar

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.segments.check import SegmentCheck, SegmentPlace
from barnabas_raftlog.log.segments.cold_reads import Hint, NotCachedError, Rows
from barnabas_raftlog.log.segments.frame_walk import check_terms
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.header import BatchHeader

from .compacting import CompactedLog
from .retention import tells_age
from .timestamps import TIMESTAMP_MAX, Answer, FilePart, SegmentDroppedError, TimestampReads

__all__ = ["ReplicaLog"]

REPLAY_BYTES = 1 << 20
T = TypeVar("T")


class ReplicaLog(CompactedLog):
    """What `Storage.open_log` returns. Implements `LogReader`."""

    def _segment_number(self, offset: int) -> int:
        """Return the place in `_segments` of the one that has `offset`: the last that begins at or before it."""
        number = len(self._segments) - 1
        while number > 0 and self._segments[number].base_offset > offset:
            number -= 1
        return number

    def read(self, start_offset: int, end_offset: int, bytes_max: int) -> list[Buffer] | None:
        """Return whole data frames, the first one containing `start_offset`, none beyond `end_offset`.

        None from below `log_start_offset`, though the first frame may reach below it. At least one if there is one,
        whatever `bytes_max` (KIP-74). None: not in memory, use `read_cold`. The views stay valid for as long as the
        caller keeps them.
        """
        if start_offset >= end_offset or start_offset >= self.log_end_offset or start_offset < self.log_start_offset:
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
            segment = self._segments[self._segment_number(start_offset)]
            limit = min(limit, self._end_of(segment))
            try:
                frames = await self.guard(self._range(segment, (start_offset, limit, bytes_max)), segment)
            except SegmentDroppedError:
                continue
            if frames or limit >= end_offset:
                return frames
            start_offset = limit  # Compaction has emptied what is before it.

    async def _range(self, segment: Segment, limits: tuple[int, int, int]) -> list[Buffer]:
        cold = self._host.cold
        await cold.index_of(segment)
        self._used(segment)
        hint = segment.index.before_offset(limits[0])
        size, end = segment.size_bytes, self._end_of(segment)
        return await cold.run(lambda blocking: cold.range(segment, hint, limits, size, end, blocking=blocking))

    def _end_of(self, segment: Segment) -> int:
        number = self._segment_number(segment.base_offset) + 1
        return self._segments[number].base_offset if number < len(self._segments) else self.log_end_offset

    def _tail_offset(self) -> int:
        return self._tail.base_offset_at(self._tail.first_index) if self._tail.count else self.log_end_offset

    def _used(self, segment: Segment) -> None:
        if segment is not self._active:
            self._host.used_index(segment)

    async def guard(self, reading: Awaitable[T], segment: Segment) -> T:
        """Await a read of `segment`.

        Raises:
            SegmentDroppedError: it failed, and the segment is not part of the log any more.
            StorageFailedError: it failed.
        """
        try:
            return await reading
        except (OSError, CorruptBatchError) as error:
            if self.failed is None and not self.is_deleted and segment not in self._segments:
                raise SegmentDroppedError from error
            self._on_unreadable((segment,), error)
            raise StorageFailedError(f"cannot read {self.name}: {error}") from error

    def segments_to_scrub(self) -> list[Segment]:
        """Return the segments that nothing is appended to any more, and that are wholly in their files."""
        if self.failed is not None or self.is_deleted:
            return []
        written_index = self._written.reached  # What the tail cache still has may be in the file all the same.
        return [one for one, after in pairwise(self._segments) if after.first_index <= written_index + 1]

    def begin_check(self, segment: Segment) -> SegmentCheck | None:
        """Return a check of a sealed segment as it is now; None: it is not part of the log any more."""
        if segment not in self.segments_to_scrub():
            return None
        following = self._segments[self._segments.index(segment) + 1]
        place = SegmentPlace(
            segment.base_offset, segment.first_index, segment.size_bytes, following.base_offset, following.first_index
        )
        return SegmentCheck(place, self._epochs.rows())

    def mended(self, segment: Segment) -> None:
        """A segment that could not be read is whole."""
        self._host.suspects.pop((self, segment), None)
        self._checksums = {known: sums for known, sums in self._checksums.items() if known is not segment}
        self.may_be_read()

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
        segment = self._segment_of_index(start_index)
        if start_index in self._loading or self.failed is not None or (self, segment) in self._host.suspects:
            return None
        try:
            self._host.cold.load_index(segment, blocking=False)
            hint = self._hint(segment, start_index)
            return self._entries_of(self._epochs.rows(), segment, hint, start_index, bytes_max, blocking=False)
        except NotCachedError:
            self._loading |= {start_index}
            self._load(start_index, bytes_max)
        except (OSError, CorruptBatchError) as error:
            self._on_unreadable((segment,), error)
        return None

    @staticmethod
    def _hint(segment: Segment, start_index: int) -> Hint | None:
        """Return where to begin to look for an entry. On the loop only: it may unload an index at any time."""
        return None if segment.index.missing else segment.index.before_index(start_index)

    def _entries_of(
        self, epochs: list[tuple[int, int, int]], segment: Segment, hint: Hint | None, start_index: int, bytes_max: int,
        *, blocking: bool,
    ) -> list[Entry]:  # fmt: skip
        """Return entries from a segment file, as far as they are surely in it; `epochs` and `hint` from the loop."""
        last = self._tail.first_index - 1
        entries = self._host.cold.entries(segment, hint, start_index, last, bytes_max, blocking=blocking)
        check_terms(entries, epochs)
        return entries

    def _load(self, start_index: int, bytes_max: int) -> None:
        """Read entries in a thread; the sparse index before them, if it is not in memory."""
        cold, segment = self._host.cold, self._segment_of_index(start_index)
        truncations = self._truncations

        def rows_read(rows: Rows | None, _: BaseException | None) -> None:
            if rows is not None:
                cold.apply_rows(segment, rows)
            read_entries()

        def read_entries() -> None:
            hint = self._hint(segment, start_index)
            job = partial(self._entries_of, self._epochs.rows(), segment, hint, start_index, bytes_max, blocking=True)
            cold.submit(job, entries_read)

        def entries_read(entries: list[Entry] | None, error: BaseException | None) -> None:
            self._loading -= {start_index}
            if self.is_deleted:
                return
            if truncations == self._truncations and start_index >= self.first_index:
                if error is not None and segment in self._segments:
                    self._on_unreadable((segment,), error)
                    if self.failed is None:
                        return  # `on_loaded` is called when the segment was mended.
                elif entries:
                    self._host.loaded.put(self.group, entries)
            if self.on_loaded is not None:
                self.on_loaded(self.group)

        if segment.index.missing or segment.time_index.missing:
            cold.submit(partial(cold.rows, segment, blocking=True), rows_read)
        else:
            read_entries()

    async def replay(self, from_index: int) -> AsyncGenerator[Entry, None]:
        """Yield the entries from `from_index` to what is then the last one, in order, checksums checked.

        Entries that are dropped from the beginning of the log meanwhile are left out.

        Raises:
            StorageFailedError: one cannot be read; the replica has failed.
        """
        index, cold = from_index, self._host.cold
        while (index := max(index, self.first_index)) <= self.last_index:
            if index >= self._tail.first_index:
                run = self._tail.entries(index, REPLAY_BYTES)
            else:
                segment = self._segment_of_index(index)
                try:
                    await self.guard(cold.index_of(segment), segment)
                    hint, rows = self._hint(segment, index), self._epochs.rows()
                    job = partial(self._entries_of, rows, segment, hint, index, REPLAY_BYTES, blocking=True)
                    run = await self.guard(cold.in_thread(job), segment)
                except SegmentDroppedError:
                    continue
            for entry in run:
                yield entry
            index += len(run)

    async def begun_ms(self, now_ms: int) -> int | None:
        """Return when the newest segment got its first batch; None: it has none.

        That batch says so, unless its timestamp is missing or lies in the future: then it was when this was first asked
        of the segment.
        """
        segment, timestamp = self._active, await self.first_timestamp()
        if segment.base_offset == self.log_end_offset or segment is not self._active:
            return None
        if timestamp is not None and tells_age(timestamp, now_ms):
            return timestamp
        if not 0 <= segment.seen_ms <= now_ms:
            segment.seen_ms = now_ms
        return segment.seen_ms

    async def look_at_files(self, now_ms: int) -> None:
        """Find out when files were last written to, where no timestamp tells how old a segment is. For `spans`."""
        asked = [
            segment
            for segment in self._segments
            if segment.modified_ms < 0 < segment.size_bytes and not tells_age(segment.newest_ms, now_ms)
        ]
        if asked:
            written = await self._host.cold.in_thread(partial(self._files_written, asked))
            for segment, found in zip(asked, written, strict=True):
                segment.written = found

    def _files_written(self, segments: Sequence[Segment]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for segment in segments:
            try:
                with self._host.opened.borrow(segment.log) as fd:
                    found.append(self._host.files.written(fd))
            except OSError:  # Not made yet, gone by now, or found bad by those who need what is in it.
                found.append((-1, -1))
        return found

    async def first_timestamp(self) -> int | None:
        """Return the largest timestamp of the first batch in the newest segment; None: it has none, or is unknown.

        From memory, but for the first time after a start.
        """
        segment = self._active
        if segment.first_timestamp is None:
            size_bytes, timestamps = self._bytes_in_file(segment), list[int]()

            def note(_: int, header: BatchHeader) -> bool:
                timestamps.append(header.max_timestamp)
                return header.record_count > 0

            seek = partial(self._host.cold.seek, segment, None, size_bytes, note)
            # A file that cannot be read is found bad by those who need what is in it.
            with suppress(OSError, CorruptBatchError):
                if await self._host.cold.run(lambda blocking: seek(blocking=blocking)) is not None:
                    segment.first_timestamp = timestamps[-1]
        timestamp = segment.first_timestamp
        return None if timestamp is None or timestamp < 0 else timestamp

    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: int, believed_ms: int = TIMESTAMP_MAX
    ) -> Answer:
        """Return (offset, timestamp, epoch) of the first record at or after `timestamp_ms` and below `end_offset`.

        Records below `log_start_offset` do not count. A timestamp above `believed_ms` is only answered of a record that
        was read: -1 for a batch that says so and cannot be read.
        """
        return await self._from_timestamps(lambda reads: reads.first_at(timestamp_ms, end_offset), believed_ms)

    async def max_timestamp(self, end_offset: int, believed_ms: int = TIMESTAMP_MAX) -> Answer:
        """Return (offset, timestamp, epoch) of the first record below `end_offset` that has the largest timestamp."""
        return await self._from_timestamps(lambda reads: reads.largest(end_offset), believed_ms)

    async def _from_timestamps(self, ask: Callable[[TimestampReads], Awaitable[Answer]], believed_ms: int) -> Answer:
        while True:
            answer = await ask(TimestampReads(self._host.cold, self, self._tail, self.log_start_offset, believed_ms))
            if answer is None or answer[0] >= self.log_start_offset:
                return answer
            # The log's start has moved beyond it meanwhile.

    def file_part(self, offset: int) -> FilePart | None:
        """Return the part of a segment's file that has `offset`, as it is now; None: the tail has it, or nothing."""
        if self._tail.holds_offset(offset) or offset >= self.log_end_offset:
            return None
        segment = self._segments[self._segment_number(offset)]
        end_offset = min(self._end_of(segment), self._tail_offset())
        return FilePart(segment, self._bytes_in_file(segment), end_offset)

    def _bytes_in_file(self, segment: Segment) -> int:
        """Return how many bytes of `segment` are surely in its file: those before what the tail cache holds."""
        tail_bytes = self._tail.bytes
        for known in reversed(self._segments):
            if known is segment:
                return max(0, segment.size_bytes - tail_bytes)
            tail_bytes = max(0, tail_bytes - known.size_bytes)
        return 0
