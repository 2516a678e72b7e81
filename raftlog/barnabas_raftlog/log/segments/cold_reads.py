"""Reads segment files: first on the loop, then in a thread, where it may block.

Every read of up to `LOOP_BYTES_MAX` is tried with RWF_NOWAIT on the loop: if the pages are cached it costs no more than
the copy (118 µs/MiB measured) and the checksums, and if they are not the call says so at once, and the same function
runs in a thread. Larger reads go to a thread from the first, and so do those that come to many small frames: each has a
checksum of its own, and 4 MiB of the smallest take 100 ms.

A read returns a view of the bytes that were read. If those are many more, because a batch is cut off at their end, it
returns a copy: an answer that waits for a client to take it would hold them all.

A read begins at the frame that the sparse index names, and walks the headers from there. The index is only a hint:
if the frame at its place is not the one it names, the walk begins at the start of the segment.
"""

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.log.machine.disk_errors import will_pass
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import FileHandle, OpenFiles
from barnabas_raftlog.log.machine.worker import Worker
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.header import HEADER_BYTES, BatchHeader, parse_header

from .frame_walk import ManyFramesError, check_frames, cut_range, split_entries
from .offset_index import INDEX_ROW_BYTES, TIME_ROW_BYTES, Columns, parse_index, parse_times
from .segment import Segment

__all__ = ["ColdReads", "Hint", "NotCachedError"]

T = TypeVar("T")
Rows = tuple[Columns, Columns]  # of an index file and of a time index file
Hint = tuple[int, int, int]  # index, base_offset, file position of a frame
# Frames that a walk passes by on the loop, in about 2 ms; compaction leaves long runs of empty ones.
STEPS_ON_LOOP_MAX = 1_000
# Rows of sparse indexes that are parsed on the loop, in about 2 ms: those of 40 MiB.
ROWS_ON_LOOP_MAX = 10_000
LOOP_BYTES_MAX = 4 << 20  # 1 to 2 ms
WALK_BYTES = 32 << 10  # covers an index interval and the first header after it, for frames of usual size
_BASE = struct.Struct(">q")


class NotCachedError(Exception):
    """The page cache does not have the bytes, or it takes too long for the loop: ask again from a thread."""


class ColdReads:
    """Borrows files and reads from them. Owned by the loop; functions with `blocking` also run in the read threads.

    `blocking=False` means: raise `NotCachedError` instead of waiting for the disk.
    """

    def __init__(self, files: Files, opened: OpenFiles, worker: Worker | None) -> None:
        self._files = files
        self._opened = opened
        self._worker = worker
        self._waiting: set[asyncio.Future[Any]] = set()

    async def run(self, function: Callable[[bool], T]) -> T:
        """Call `function(blocking)` on the loop, and again in a thread if it needs the disk."""
        try:
            return function(False)
        except NotCachedError:
            return await self.in_thread(partial(function, True))

    async def in_thread(self, job: Callable[[], T]) -> T:
        """Run `job`, which may raise, where it may block."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(job, partial(_settle, future))
        return await future

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `job` where it may block, and call `done(result, error)` on the loop."""
        if self._worker is not None:
            self._worker.submit(partial(_guarded, job), lambda outcome: done(*outcome))
            return

        def report(future: asyncio.Future[tuple[T | None, BaseException | None]]) -> None:
            self._waiting.discard(future)
            if not future.cancelled():
                done(*future.result())

        waiting = asyncio.get_running_loop().run_in_executor(None, _guarded, job)
        self._waiting.add(waiting)
        waiting.add_done_callback(report)

    def read(self, handle: FileHandle, position: int, size_bytes: int, *, blocking: bool) -> memoryview:
        """Read from a segment; it may return less than asked, but something if something is there.

        Raises:
            OSError: the disk says so, or the file ends before `position`.
        """
        with self._opened.borrow(handle) as fd:
            if blocking:
                data = self._files.read(fd, position, size_bytes)
            else:
                cached = self._files.read_cached(fd, position, size_bytes)
                if cached is None:
                    raise NotCachedError
                data = cached
        if not data and size_bytes:
            raise OSError(f"{handle.path} ends before {position}")
        return memoryview(data)

    def read_all(self, handle: FileHandle, position: int, size_bytes: int, *, blocking: bool) -> memoryview:
        """Read exactly so much.

        Raises:
            OSError: the file ends before that.
        """
        data = self.read(handle, position, size_bytes, blocking=blocking)
        if len(data) < size_bytes:
            if not blocking:
                raise NotCachedError
            raise OSError(f"{handle.path} ends before {position + size_bytes}")
        return data

    def load_index(self, segment: Segment, *, blocking: bool) -> None:
        """Read the sparse indexes of `segment` into memory if they are not there. On the loop only."""
        if segment.index.missing or segment.time_index.missing:
            self.apply_rows(segment, self.rows(segment, blocking=blocking))

    def apply_rows(self, segment: Segment, rows: Rows) -> None:
        """Give `segment` the index rows that `rows` has read."""
        segment.index.load(rows[0], segment.size_bytes)
        segment.time_index.load(rows[1])

    def rows(self, segment: Segment, *, blocking: bool) -> Rows:
        """Read the index files of `segment`. A lost one costs longer walks and nothing else: it counts as empty.

        Raises:
            OSError: one that will pass (`disk_errors`): nothing is known of the files.
        """
        index_rows, time_rows = segment.index.missing, segment.time_index.missing
        if not blocking and index_rows + time_rows > ROWS_ON_LOOP_MAX:
            raise NotCachedError
        index = self._index_file(segment.index_handle, index_rows * INDEX_ROW_BYTES, blocking=blocking)
        times = self._index_file(segment.time_handle, time_rows * TIME_ROW_BYTES, blocking=blocking)
        return parse_index(index), parse_times(times)

    def _index_file(self, handle: FileHandle, size_bytes: int, *, blocking: bool) -> memoryview:
        try:
            data = self.read(handle, 0, size_bytes, blocking=blocking) if size_bytes else memoryview(b"")
        except OSError as error:
            if will_pass(error):
                raise
            data = memoryview(b"")
        if len(data) < size_bytes and not blocking:
            raise NotCachedError
        return data[:size_bytes]

    async def index_of(self, segment: Segment) -> None:
        """Make sure that the indexes of `segment` are in memory."""
        if segment.index.missing or segment.time_index.missing:
            rows = await self.run(lambda blocking: self.rows(segment, blocking=blocking))
            self.apply_rows(segment, rows)

    def seek(
        self,
        segment: Segment,
        hint: Hint | None,
        size_bytes: int,
        found: Callable[[int, BatchHeader], bool],
        *,
        end_offset: int | None = None,
        blocking: bool,
    ) -> Hint | None:
        """Walk from `hint` to the first frame for which `found(index, header)`; None: there is none below `size_bytes`.

        `end_offset`: the offset with which the frames below `size_bytes` end, if that is known. No checksum is looked
        at on the way, and a damaged length may lead from a frame exactly to the end, past all that is there.

        Raises:
            CorruptBatchError: a header on the way makes no sense, or does not follow its predecessor, or the last one
                does not end where it should.
        """
        index, base_offset, position = hint or (segment.first_index, segment.base_offset, 0)
        if position:
            start = self.read(segment.log, position, HEADER_BYTES, blocking=blocking)
            if len(start) < HEADER_BYTES or _BASE.unpack_from(start)[0] != base_offset:
                index = segment.first_index
                base_offset = segment.base_offset
                position = 0
        data = memoryview(b"")
        origin = position
        last_index = index + STEPS_ON_LOOP_MAX
        while position < size_bytes:
            if index > last_index and not blocking:
                raise NotCachedError
            if position + HEADER_BYTES > origin + len(data):
                # Large frames are skipped without being read: only headers are needed.
                data = self.read(segment.log, position, WALK_BYTES, blocking=blocking)
                origin = position
                if len(data) < HEADER_BYTES:
                    if blocking:
                        raise CorruptBatchError(f"{segment.log.path} ends within a header at {position}")
                    raise NotCachedError
            header = parse_header(data, position - origin)
            if header.base_offset != base_offset:
                raise CorruptBatchError(f"{segment.log.path}: offset {header.base_offset} where {base_offset} is due")
            if found(index, header):
                return index, header.base_offset, position
            base_offset = header.end_offset
            position += header.size_bytes
            index += 1
        if position > segment.size_bytes:
            raise CorruptBatchError(f"{segment.log.path}: entry {index - 1} goes beyond the end")
        if end_offset is not None and base_offset != end_offset:
            raise CorruptBatchError(f"{segment.log.path}: it ends with offset {base_offset}, where {end_offset} is due")
        return None

    def range(
        self,
        segment: Segment,
        hint: Hint | None,
        limits: tuple[int, int, int],
        size_bytes: int,
        segment_end: int,
        *,
        blocking: bool,
    ) -> list[Buffer]:
        """Return the data frames of one segment; `limits` are start offset, end offset and the number of bytes.

        `segment_end`: the offset that the segment ends with; a batch beyond it would hide all that follows.

        Raises:
            CorruptBatchError: the file does not hold what was written.
        """
        start_offset, end_offset, bytes_max = limits
        # Batches that compaction has emptied may go on for long; header by header they are passed quickly.
        place = self.seek(
            segment,
            hint,
            size_bytes,
            lambda _, h: h.end_offset > start_offset and _may_have_records(h),
            end_offset=segment_end,
            blocking=blocking,
        )
        if place is None:
            return []
        position = place[2]
        wanted = min(bytes_max + HEADER_BYTES, size_bytes - position)
        while True:
            if wanted > LOOP_BYTES_MAX and not blocking:
                raise NotCachedError
            data = self.read(segment.log, position, max(wanted, HEADER_BYTES), blocking=blocking)
            frames_max = None if blocking else STEPS_ON_LOOP_MAX
            try:
                slices, needed = cut_range(data, 0, start_offset, end_offset, bytes_max, frames_max)
            except ManyFramesError as error:
                raise NotCachedError from error
            if slices:
                check_frames(slices)
                return _without_waste(slices, len(data))
            rest = size_bytes - position
            if needed == rest + HEADER_BYTES:
                return slices  # Up to the end there are control frames, and batches that compaction has emptied.
            if needed > rest or parse_header(data).end_offset > segment_end:
                raise CorruptBatchError(f"{segment.log.path}: the batch at {position} goes beyond the end")
            if not needed:
                return slices
            if len(data) < wanted and not blocking:
                raise NotCachedError
            wanted = needed

    def entries(
        self, segment: Segment, hint: Hint | None, start_index: int, last_index: int, bytes_max: int, *, blocking: bool
    ) -> list[Entry]:
        """Return entries of one segment from `start_index`, which it must have, on.

        Raises:
            CorruptBatchError: the file does not hold what was written.
        """
        size_bytes = segment.size_bytes
        place = self.seek(segment, hint, size_bytes, lambda index, _: index >= start_index, blocking=blocking)
        if place is None:
            raise CorruptBatchError(f"{segment.log.path} has no entry {start_index}")
        position = place[2]
        wanted = min(bytes_max + HEADER_BYTES, size_bytes - position)
        while True:
            data = self.read(segment.log, position, wanted, blocking=blocking)
            entries = split_entries(data, 0, start_index, bytes_max)
            if entries:
                return entries[: last_index + 1 - start_index]
            if len(data) < wanted and not blocking:
                raise NotCachedError
            if len(data) < wanted or wanted == size_bytes - position:
                raise CorruptBatchError(f"{segment.log.path} ends within entry {start_index}")
            wanted = min(max(parse_header(data).size_bytes, wanted + 1), size_bytes - position)


def _may_have_records(header: BatchHeader) -> bool:
    """Tell whether a batch is neither a control frame nor emptied by compaction."""
    return header.last_offset_delta >= 0 and (header.record_count > 0 or header.size_bytes > HEADER_BYTES)


def _without_waste(slices: list[Buffer], read_bytes: int) -> list[Buffer]:
    """Return `slices`, or a copy if they are less than three quarters of the `read_bytes` that they keep alive."""
    kept_bytes = sum(map(len, slices))
    return slices if 4 * kept_bytes >= 3 * read_bytes else [memoryview(b"".join(slices))]


def _guarded(job: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return job(), None
    except BaseException as error:  # noqa: BLE001 - raised again where somebody waits for it
        return None, error


def _settle(future: "asyncio.Future[T]", value: T | None, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)  # type: ignore[arg-type]
