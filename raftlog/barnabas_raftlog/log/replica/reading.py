"""Reads entries by index and frames by offset, from the cheap to the costly.

The tail cache answers from memory, then the page cache on the loop, then a thread. Entries that are not in the tail
cache are in a segment file, so a cold read is bounded by the beginning of the tail, and never sees bytes that a
truncation has made invalid.

A read that waits in a thread may find that its segment was dropped meanwhile, and its file deleted. That is no failure:
the frames that it looked for are below the log's start, or gone with a truncation, and the read begins anew.

A sealed segment that cannot be read, or does not hold what it should, is not the end of its replica: that read fails,
the segment is a *suspect* (`SharedStorage.suspects`), and followers who need it wait until it was mended (`scrub`).
Damage in the segment that is written to fails the replica.
"""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.machine.disk_errors import will_pass
from barnabas_raftlog.log.segments.cold_reads import Hint, NotCachedError, Rows
from barnabas_raftlog.log.segments.frame_walk import check_terms
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.header import emptied_batch

from .state import LogState
from .write_behind import fail

__all__ = [
    "FilePart",
    "SegmentDroppedError",
    "bytes_in_file",
    "entries",
    "file_part",
    "find",
    "guard",
    "offset_after",
    "on_unreadable",
    "read",
    "read_cold",
    "replay",
    "segment_of_index",
]

REPLAY_BYTES = 1 << 20
T = TypeVar("T")


class SegmentDroppedError(Exception):
    """The segment that was being read is not part of the log any more."""


class FilePart(NamedTuple):
    """The part of a segment that is surely in its file: so many bytes, up to `end_offset` (exclusive)."""

    segment: Segment
    size_bytes: int
    end_offset: int


# By offset: for clients.


def read(log: LogState, start_offset: int, end_offset: int, bytes_max: int) -> list[Buffer] | None:
    """Return whole data frames, the first one containing `start_offset`, none beyond `end_offset`.

    Offsets below `log_start_offset` have none, though the first frame may reach below it. If there is a frame, at least
    one is returned, however small `bytes_max` is (KIP-74). None: it is not in memory, use `read_cold`. The views stay
    valid for as long as the caller keeps them.
    """
    if start_offset >= end_offset or start_offset >= log.log_end_offset or start_offset < log.log_start_offset:
        return []
    tail = log.tail
    if tail.holds_offset(start_offset):
        return tail.read(start_offset, end_offset, bytes_max, log.log_end_offset)
    return None


async def read_cold(log: LogState, start_offset: int, end_offset: int, bytes_max: int) -> list[Buffer]:
    """Return the same from the segment files; from one segment only, so perhaps less.

    If compaction has emptied all that is left before `end_offset`, that is one batch without records, which says so: a
    reader goes on behind it. If it got nothing, it would ask for the same at once, and again.

    Cancellation: it has no effect.

    Raises:
        StorageFailedError: the file cannot be read, or does not hold frames.
    """
    asked_offset = start_offset
    while True:
        in_memory = read(log, start_offset, end_offset, bytes_max)
        if in_memory is not None:
            return in_memory
        log.shared.stats.cold_reads += 1
        # Frames that the tail holds need not be in the file yet.
        limit = min(end_offset, _tail_offset(log))
        segment = log.segments[_segment_number(log, start_offset)]
        limit = min(limit, _end_of(log, segment))
        try:
            frames = await guard(log, _range(log, segment, (start_offset, limit, bytes_max)), segment)
        except SegmentDroppedError:
            continue
        if frames:
            return frames
        if limit >= end_offset:
            return [emptied_batch(asked_offset, limit, log.epoch_at_offset(limit - 1))]
        start_offset = limit  # Compaction has emptied the batches before it.


async def _range(log: LogState, segment: Segment, limits: tuple[int, int, int]) -> list[Buffer]:
    cold = log.shared.cold
    await cold.index_of(segment)
    if segment is not log.active:
        log.shared.used_index(segment)
    hint = segment.index.before_offset(limits[0])
    size_bytes = segment.size_bytes
    end_offset = _end_of(log, segment)
    return await cold.run(lambda blocking: cold.range(segment, hint, limits, size_bytes, end_offset, blocking=blocking))


# By index: for Raft.


def entries(log: LogState, start_index: int, bytes_max: int) -> Sequence[Entry] | None:
    """Return entries from `start_index` on. None: they are being loaded, `on_loaded` will be called."""
    if start_index > log.last_index:
        return ()
    if start_index >= log.tail.first_index:
        return log.tail.entries(start_index, bytes_max)
    assert start_index >= log.first_index, (start_index, log.first_index)
    shared = log.shared
    run = shared.loaded.get(log.group, start_index)
    if run is not None:
        return run
    segment = segment_of_index(log, start_index)
    if start_index in log.loading or log.failed is not None or (log, segment) in shared.suspects:
        return None
    try:
        shared.cold.load_index(segment, blocking=False)
        hint = _hint(segment, start_index)
        epochs = log.leader_epochs.rows()
        return _entries_of(log, epochs, segment, hint, start_index, bytes_max, blocking=False)
    except NotCachedError:
        log.loading |= {start_index}
        _load(log, start_index, bytes_max)
    except (OSError, CorruptBatchError) as error:
        on_unreadable(log, (segment,), error)
    return None


async def replay(log: LogState, from_index: int) -> AsyncGenerator[Entry, None]:
    """Yield the entries from `from_index` to the one that is then the last, in order, checksums checked.

    Entries that are dropped from the beginning of the log meanwhile are left out.

    Raises:
        StorageFailedError: one cannot be read.
    """
    index = from_index
    cold = log.shared.cold
    while (index := max(index, log.first_index)) <= log.last_index:
        if index >= log.tail.first_index:
            run = log.tail.entries(index, REPLAY_BYTES)
        else:
            segment = segment_of_index(log, index)
            try:
                await guard(log, cold.index_of(segment), segment)
                hint = _hint(segment, index)
                epochs = log.leader_epochs.rows()
                job = partial(_entries_of, log, epochs, segment, hint, index, REPLAY_BYTES, blocking=True)
                run = await guard(log, cold.in_thread(job), segment)
            except SegmentDroppedError:
                continue
        for entry in run:
            yield entry
        index += len(run)


def _hint(segment: Segment, start_index: int) -> Hint | None:
    """Return where to begin to look for an entry. On the loop only: it may unload an index at any time."""
    return None if segment.index.missing else segment.index.before_index(start_index)


def _entries_of(
    log: LogState,
    epochs: list[tuple[int, int, int]],
    segment: Segment,
    hint: Hint | None,
    start_index: int,
    bytes_max: int,
    *,
    blocking: bool,
) -> list[Entry]:
    """Return entries from a segment file, as far as they are surely in it; `epochs` and `hint` from the loop."""
    last = log.tail.first_index - 1
    found = log.shared.cold.entries(segment, hint, start_index, last, bytes_max, blocking=blocking)
    check_terms(found, epochs)
    return found


def _load(log: LogState, start_index: int, bytes_max: int) -> None:
    """Read entries in a thread; the sparse index before them, if it is not in memory."""
    cold = log.shared.cold
    segment = segment_of_index(log, start_index)
    truncations = log.truncations

    def rows_read(rows: Rows | None, _: BaseException | None) -> None:
        if rows is not None:
            cold.apply_rows(segment, rows)
        read_entries()

    def read_entries() -> None:
        hint = _hint(segment, start_index)
        epochs = log.leader_epochs.rows()
        job = partial(_entries_of, log, epochs, segment, hint, start_index, bytes_max, blocking=True)
        cold.submit(job, entries_read)

    def entries_read(found: list[Entry] | None, error: BaseException | None) -> None:
        log.loading -= {start_index}
        if log.is_deleted:
            return
        if truncations == log.truncations and start_index >= log.first_index:
            if error is not None and segment in log.segments:
                on_unreadable(log, (segment,), error)
                if log.failed is None:
                    return  # `on_loaded` is called when the segment was mended.
            elif found:
                log.shared.loaded.put(log.group, found)
        if log.on_loaded is not None:
            log.on_loaded(log.group)

    if segment.index.missing or segment.time_index.missing:
        cold.submit(partial(cold.rows, segment, blocking=True), rows_read)
    else:
        read_entries()


# From one to the other.


def offset_after(log: LogState, index: int) -> int:
    """Return the end offset of the part of the log that ends with entry `index`.

    From memory for anything recent; else it reads a few headers from the segment file, on the loop.

    Raises:
        StorageFailedError: that cannot be read.
    """
    if index == log.last_index:
        return log.log_end_offset
    if index <= log.start_index:
        return log.base_offset
    assert index < log.last_index, (index, log.last_index)
    if index + 1 >= log.tail.first_index:
        return log.tail.base_offset_at(index + 1)
    return find(log, index + 1)[1]


def find(log: LogState, index: int) -> Hint:
    """Return (index, base_offset, position within its segment) of an entry that is not in the tail. May block.

    Raises:
        StorageFailedError: its segment cannot be read.
    """
    segment = segment_of_index(log, index)
    cold = log.shared.cold
    try:
        cold.load_index(segment, blocking=True)
        hint = segment.index.before_index(index)
        place = cold.seek(segment, hint, segment.size_bytes, lambda found, _: found == index, blocking=True)
        if place is None:
            raise CorruptBatchError(f"{segment.log.path} has no entry {index}")
    except (OSError, CorruptBatchError) as error:
        on_unreadable(log, (segment,), error)
        raise StorageFailedError(f"cannot read {log.name}: {error}") from error
    return place


# Places.


def segment_of_index(log: LogState, index: int) -> Segment:
    """Return the segment that has entry `index`, or would have it."""
    return next(segment for segment in reversed(log.segments) if segment.first_index <= index)


def file_part(log: LogState, offset: int) -> FilePart | None:
    """Return the part of a segment's file that has `offset`, as it is now; None: the tail has it, or nothing.

    The answer is old after each `await`: the tail cache lets go of more.
    """
    if log.tail.holds_offset(offset) or offset >= log.log_end_offset:
        return None
    segment = log.segments[_segment_number(log, offset)]
    end_offset = min(_end_of(log, segment), _tail_offset(log))
    return FilePart(segment, bytes_in_file(log, segment), end_offset)


def bytes_in_file(log: LogState, segment: Segment) -> int:
    """Return how many bytes of `segment` are surely in its file: those before what the tail cache holds."""
    tail_bytes = log.tail.bytes
    for known in reversed(log.segments):
        if known is segment:
            return max(0, segment.size_bytes - tail_bytes)
        tail_bytes = max(0, tail_bytes - known.size_bytes)
    return 0


def _segment_number(log: LogState, offset: int) -> int:
    """Return the place in `segments` of the one that has `offset`: the last that begins at or before it."""
    number = len(log.segments) - 1
    while number > 0 and log.segments[number].base_offset > offset:
        number -= 1
    return number


def _end_of(log: LogState, segment: Segment) -> int:
    number = _segment_number(log, segment.base_offset) + 1
    return log.segments[number].base_offset if number < len(log.segments) else log.log_end_offset


def _tail_offset(log: LogState) -> int:
    return log.tail.base_offset_at(log.tail.first_index) if log.tail.count else log.log_end_offset


# Failed reads.


async def guard(log: LogState, reading: Awaitable[T], segment: Segment) -> T:
    """Await a read of `segment`.

    Raises:
        SegmentDroppedError: it failed, and the segment is not part of the log any more.
        StorageFailedError: it failed.
    """
    try:
        return await reading
    except (OSError, CorruptBatchError) as error:
        if log.failed is None and not log.is_deleted and segment not in log.segments:
            raise SegmentDroppedError from error
        on_unreadable(log, (segment,), error)
        raise StorageFailedError(f"cannot read {log.name}: {error}") from error


def on_unreadable(log: LogState, segments: Sequence[Segment], error: BaseException) -> None:
    """Note that a read of these segments failed, or of one of them: sealed ones can be mended.

    An error that will pass says nothing about them: `on_loaded` is called when it should be tried again.
    """
    if log.is_deleted:
        return
    if will_pass(error):
        log.shared.hamper(log, error)
        return
    if list(segments) == [log.active]:
        fail(log, f"cannot read {log.name}: {error}")
        return
    for segment in segments:
        if segment in log.segments and segment is not log.active:
            log.shared.suspect(log, segment, str(error))
