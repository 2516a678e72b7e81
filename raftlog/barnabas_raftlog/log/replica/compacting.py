"""Compacts a log: sealed segments are written again without records that newer ones replace.

*Touched* are segments that are sealed, committed, durable and wholly in their files, from the oldest on, up to the
first that is too young, or reaches beyond the last stable offset: in what is touched every transaction is decided. Of
those the ones that were never cleaned are *dirty*; when they are enough of the whole, or one of them is too old, a pass
begins. It notes the newest offset of each key in the dirty ones (`compaction`), then writes every segment up to there
again, a piece at a time in a thread, with pauses that the caller decides. If there are more keys than there is memory
for, several passes follow each other.

*The same* as before stay indexes, offsets, terms, and the ends of every segment. So a holder of a position notices
nothing, and each replica does this by itself.

*A crash* leaves the old file or the new one. The new one is complete and synced before it takes the old one's place in
memory. The checkpoint names the file that counts by its generation, and only when one that names the new file is on
the disk, the old file goes. Recovery removes other files that a crash leaves.

A file that cannot be written (no room) ends the pass, and nothing else; so does a table of keys that does not fit in
memory. So does a file that cannot be read, which is then a suspect as for any reader (`scrub`). A copy from another
replica only mends a segment that both have compacted alike: it must have the same size.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from barnabas_raftlog.errors import BarnabasError, CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.checkpoint import ReplicaRow
from barnabas_raftlog.log.machine.open_files import FileHandle
from barnabas_raftlog.log.segments.frame_walk import frame_size, split_entries
from barnabas_raftlog.log.segments.operations import Remove
from barnabas_raftlog.log.segments.segment import NO_TIMESTAMP, Segment
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.aborted import AbortedBatches
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.walker.key_parts import SECRET_BYTES

from .compaction import KeyOffsets, Walk
from .lending import sealed_segments
from .reading import on_unreadable
from .state import LogState

__all__ = [
    "Compacted",
    "CompactionFailedError",
    "CompactionLimits",
    "Pause",
    "TransactionOutcomes",
    "compact",
    "forget_replaced",
    "in_thread",
]

# Read, thought about and written between two looks at the clock; more only if that is a single batch.
PIECE_BYTES = 256 << 10
# Of what that is when it is plain: between two looks at the clock, and held until it is written.
PLAIN_BYTES = 8 << 20
PLAIN_RECORDS = 100_000
T = TypeVar("T")
Pause = Callable[[int], Awaitable[None]]  # called with the bytes that were read since the last call


class CompactionFailedError(BarnabasError):
    """A new file could not be written, or there is no memory for the keys; the log is as it was."""


class CompactionLimits(NamedTuple):
    """The settings of a pass. `keys_max` bounds memory; the ages are in milliseconds."""

    keys_max: int
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    delete_retention_ms: int


class Compacted(NamedTuple):
    """The result of a pass.

    `unread_count` batches of the dirty segments were kept as they are, because they cannot be read or are beyond
    `compaction.BOUNDS`, the first of them at `unread_offset`. Each is counted in one pass only, unless
    that is cut short.
    """

    segment_count: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    unread_count: int
    unread_offset: int


class TransactionOutcomes(Protocol):
    """What the owner of a log knows of the transactions in it, as of the entries that have committed."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction that is not decided; if there is none, the high watermark."""

    def aborted_between(self, start_offset: int, end_offset: int) -> Sequence[tuple[int, int, int]]:
        """Return the aborted transactions with an offset in [start_offset, end_offset), which is decided.

        Each is (producer id, offset of its first record, offset of its marker).
        """


class _Piece(NamedTuple):
    """Entries of a segment that follow each other, and the aborted ones among them."""

    entries: list[Entry]
    aborted: AbortedBatches


class _GoneError(Exception):
    """The segment that is being written again is not the log's any more, or must not change now."""


async def compact(
    log: LogState,
    limits: CompactionLimits,
    committed_index: int,
    now_ms: int,
    pause: Pause,
    outcomes: TransactionOutcomes,
) -> Compacted | None:
    """Compact the segments that are due; None if there is too little.

    `outcomes` is asked between two pieces, never in a thread.

    Cancellation: segments that were written again so far count; a piece that is being written is finished first.

    Raises:
        CompactionFailedError: there is no room on the disk, or in memory.
        StorageFailedError: a file cannot be read.
    """
    before_ms = now_ms - limits.min_lag_ms if limits.min_lag_ms else 1 << 62
    sealed = _touched(log, committed_index, before_ms, outcomes.last_stable_offset)
    if not _is_due(sealed, limits, now_ms):
        return None
    rewriting = _Rewriting(log, limits, now_ms, pause, outcomes)
    # A segment may be deleted, replaced by a snapshot, or on its way to another replica: the next pass has the rest.
    with suppress(_GoneError):
        await rewriting.run(sealed)
    return rewriting.result()


def _touched(log: LogState, committed_index: int, before_ms: int, end_offset: int) -> list[Segment]:
    """Return the oldest segments, as far as they are sealed, older than `before_ms`, and wholly below `end_offset`."""
    touched: list[Segment] = []
    for segment, after in zip(sealed_segments(log, committed_index), log.segments[1:], strict=False):
        if segment.max_timestamp >= before_ms or after.base_offset > end_offset:
            break
        touched.append(segment)
    return touched


def _is_held(log: LogState, segment: Segment) -> bool:
    """Tell whether `segment` is part of a log that can be used, and nobody reads its file as a whole."""
    is_usable = log.failed is None and not log.is_deleted and segment in log.segments
    return is_usable and segment not in log.pins


def _replace(log: LogState, old: Segment, new: Segment) -> None:
    """Let `new`, which is on the disk, take the place of `old`, whose file goes when a checkpoint says so."""
    number = log.segments.index(old)
    log.segments[number] = new
    shared = log.shared
    shared.forget_index(old)
    shared.used_index(new)
    shared.loaded.drop_group(log.group)
    # The memory has the entries as they were; all of them are in files.
    log.tail.drop_before(log.segments[number + 1].first_index)
    log.size_bytes += new.size_bytes - old.size_bytes
    log.replaced.append((new.base_offset, new.generation, old.handles))
    shared.replaced[log] = None
    log.mark_dirty()


def _mark_clean(log: LogState, segment: Segment, now_ms: int) -> None:
    """Note that no record in `segment` is replaced by another one in it or before it from now on."""
    if segment.cleaned_ms < 0:
        segment.cleaned_ms = now_ms
        log.mark_dirty()


def forget_replaced(log: LogState, row: ReplicaRow) -> None:
    """Remove the files that nothing names any more, now that `row` is in a checkpoint on the disk."""
    named = {segment.base_offset: segment.generation for segment in row.segments}
    newest = max(named, default=-1)  # segments behind it the row does not know, and recovery finds by their names
    kept: list[tuple[int, int, tuple[FileHandle, ...]]] = []
    for base_offset, generation, handles in log.replaced:
        if base_offset > newest or named.get(base_offset, generation) < generation:
            kept.append((base_offset, generation, handles))
        else:
            log.operations.append(Remove(list(handles)))
    log.replaced = kept
    if not kept:
        log.shared.replaced.pop(log, None)
    log.shared.writes.add(log)
    log.shared.writes.flush()


# In a thread.


def _read_piece(log: LogState, segment: Segment, position: int, index: int) -> list[Entry]:
    """Return the entries at `position`, whose first has `index`."""
    wanted = PIECE_BYTES
    while True:
        left = segment.size_bytes - position
        data = log.shared.cold.read(segment.log, position, min(wanted, left), blocking=True)
        entries = split_entries(data, 0, index, PIECE_BYTES)
        if entries:
            return entries
        if len(data) < 12 or frame_size(data) <= len(data) or frame_size(data) > left:
            raise CorruptBatchError(f"{segment.log.path} ends within entry {index}")
        wanted = frame_size(data)


def _write_piece(log: LogState, segment: Segment, buffers: list[Buffer]) -> None:
    """Write to the end of a new file."""
    position = segment.size_bytes
    files = log.shared.files
    try:
        with log.shared.opened.borrow(segment.log, create=True) as fd:
            if not position:
                files.truncate(fd, 0)  # a pass that was given up may have left something
            files.write(fd, buffers, position)
    except OSError as error:
        raise CompactionFailedError(f"cannot write {segment.log.path}: {error}") from error


def _sync_new(log: LogState, segment: Segment) -> None:
    try:
        with log.shared.opened.borrow(segment.log) as fd:
            log.shared.files.sync(fd)
        log.shared.files.sync_directory(log.directory)
    except OSError as error:
        raise CompactionFailedError(f"cannot sync {segment.log.path}: {error}") from error


def _discard(log: LogState, segment: Segment) -> None:
    """Remove a new file that is not wanted."""
    # A file that cannot be removed is written over by the next pass, or removed by recovery.
    with suppress(OSError):
        Remove(list(segment.handles)).run(log.shared.files, log.shared.opened)


async def in_thread(log: LogState, job: Callable[[], T], *segments: Segment) -> T:
    """Run `job`, which reads `segments`; its end is awaited even if the caller is cancelled."""
    running = asyncio.ensure_future(log.shared.cold.in_thread(job))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
    except (OSError, CorruptBatchError) as error:
        if not all(_is_held(log, segment) for segment in segments):
            raise _GoneError from error
        on_unreadable(log, segments, error)
        raise StorageFailedError(f"cannot read {log.name}: {error}") from error


def _is_due(sealed: list[Segment], limits: CompactionLimits, now_ms: int) -> bool:
    dirty = [segment for segment in sealed if segment.cleaned_ms < 0]
    if not dirty:
        return False
    dirty_bytes = sum(one.size_bytes for one in dirty)
    all_bytes = sum(one.size_bytes for one in sealed)
    is_old = 0 <= dirty[0].max_timestamp < now_ms - limits.max_lag_ms
    return is_old or dirty_bytes > limits.min_dirty_ratio * all_bytes


class _Rewriting:
    """One compaction of one log: as many rounds as it takes until all keys of the dirty segments were looked at."""

    def __init__(
        self, log: LogState, limits: CompactionLimits, now_ms: int, pause: Pause, outcomes: TransactionOutcomes
    ) -> None:
        self._outcomes = outcomes
        self._log = log
        self._limits = limits
        self._now_ms = now_ms
        self._pause = pause
        self._segment_count = 0
        self._bytes_before = 0
        self._bytes_after = 0
        self._records_before = 0
        self._records_after = 0
        self._unread_count = 0
        self._unread_offset = -1

    def result(self) -> Compacted:
        return Compacted(
            segment_count=self._segment_count,
            bytes_before=self._bytes_before,
            bytes_after=self._bytes_after,
            records_before=self._records_before,
            records_after=self._records_after,
            unread_count=self._unread_count,
            unread_offset=self._unread_offset,
        )

    async def run(self, sealed: list[Segment]) -> None:
        segments = list(sealed)
        next_index: int | None = next(one.first_index for one in segments if one.cleaned_ms < 0)
        while next_index is not None:
            keys = self._room_for_keys(next(one.base_offset for one in segments if one.cleaned_ms < 0))
            number, next_index = await self._note(segments, keys, next_index)
            if keys.unread_count and not self._unread_count:
                self._unread_offset = keys.unread_offset
            self._unread_count += keys.unread_count
            walk = Walk(keys, self._now_ms, self._limits.delete_retention_ms)
            for place in range(number + 1):
                is_last = place == len(segments) - 1
                segments[place] = await self._rewrite(segments[place], walk, is_last=is_last)
                if place < number or next_index is None:
                    _mark_clean(self._log, segments[place], self._now_ms)

    def _room_for_keys(self, from_offset: int) -> KeyOffsets:
        """Return a table for the keys of the records from an offset on: not more than there are offsets."""
        keys_max = min(self._limits.keys_max, self._log.log_end_offset - from_offset)
        try:
            return KeyOffsets(keys_max, os.urandom(SECRET_BYTES))
        except (OSError, MemoryError) as error:
            raise CompactionFailedError(f"no memory for {keys_max} keys: {error}") from error

    async def _note(self, segments: list[Segment], keys: KeyOffsets, from_index: int) -> tuple[int, int | None]:
        """Note the keys of dirty segments from an entry on.

        Returns the number of the last segment that was looked at, and the entry to go on with, None if there is none.
        """
        for number, segment in enumerate(segments):
            if segment.cleaned_ms >= 0:
                continue
            position = 0
            index = segment.first_index
            while position < segment.size_bytes:
                entries, aborted = await self._piece(segment, position, index)
                position += sum(len(entry.frame) for entry in entries)
                index += len(entries)
                while entries:
                    note = partial(_note_some, keys, entries, aborted, from_index)
                    looked_at, is_full = await in_thread(self._log, note)
                    if is_full:
                        # More keys in one batch than there is room for: what was noted is right, so go on behind it.
                        full_at = entries[looked_at].index
                        return number, full_at if full_at > from_index else full_at + 1
                    entries = await self._others(entries, looked_at)
        return len(segments) - 1, None

    async def _rewrite(self, old: Segment, walk: Walk, *, is_last: bool) -> Segment:
        """Return the segment that takes the place of `old`: itself if nothing in it is replaced."""
        log = self._log
        # The newest record of the log stays, whatever it is, so that readers reach the end.
        is_due = old.cleaned_ms >= 0 and self._now_ms - old.cleaned_ms >= self._limits.delete_retention_ms
        rewrite = partial(_compact_some, walk, is_due=is_due and not is_last)
        new = Segment(log.directory, old.base_offset, old.first_index, old.generation + 1)
        new.cleaned_ms = old.cleaned_ms
        position = read = kept = 0
        index = old.first_index
        try:
            while position < old.size_bytes:
                entries, aborted = await self._piece(old, position, index)
                position += sum(len(entry.frame) for entry in entries)
                index += len(entries)
                while entries:
                    buffers, counts = await in_thread(log, partial(rewrite, entries, aborted))
                    await in_thread(log, partial(_write_piece, log, new, buffers))
                    _add_written(new, entries, buffers)
                    read += counts[0]
                    kept += counts[1]
                    entries = await self._others(entries, len(buffers))
            is_changed = kept < read
            if is_changed:
                await in_thread(log, partial(_sync_new, log, new))
        except (Exception, asyncio.CancelledError):
            await in_thread(log, partial(_discard, log, new))
            raise
        if not is_changed or not _is_held(log, old):
            await in_thread(log, partial(_discard, log, new))
            if is_changed:
                raise _GoneError
            return old
        _replace(log, old, new)
        self._segment_count += 1
        self._bytes_before += old.size_bytes
        self._bytes_after += new.size_bytes
        self._records_before += read
        self._records_after += kept
        return new

    async def _others(self, entries: list[Entry], done: int) -> list[Entry]:
        """Return the entries of a piece that are still to be looked at, after a rest if there are any."""
        if done < len(entries):
            await self._pause(0)
        return entries[done:]

    async def _piece(self, segment: Segment, position: int, index: int) -> _Piece:
        entries = await in_thread(self._log, partial(_read_piece, self._log, segment, position, index), segment)
        await self._pause(sum(len(entry.frame) for entry in entries))
        if not _is_held(self._log, segment):
            raise _GoneError
        # Only now, and before anything else can happen: what is still held has not been forgotten.
        start_offset = parse_header(entries[0].frame).base_offset
        end_offset = parse_header(entries[-1].frame).end_offset
        return _Piece(entries, AbortedBatches(self._outcomes.aborted_between(start_offset, end_offset)))


def _add_written(segment: Segment, entries: list[Entry], buffers: list[Buffer]) -> None:
    """Add to a new segment the entries that were written to its file: as many as there are `buffers`."""
    for entry, frame in zip(entries, buffers, strict=False):
        header = parse_header(frame)
        latest = header.max_timestamp if header.record_count > 0 else NO_TIMESTAMP
        segment.add(entry.index, header.base_offset, len(frame), latest)


def _note_some(keys: KeyOffsets, entries: list[Entry], aborted: AbortedBatches, from_index: int) -> tuple[int, bool]:
    """Note the first entries, as many as are due at once; return their number, and whether the next finds no room."""
    began_bytes = keys.plain_bytes
    records = 0
    for number, entry in enumerate(entries):
        if keys.plain_bytes - began_bytes >= PLAIN_BYTES or records >= PLAIN_RECORDS:
            return number, False
        if entry.index >= from_index:
            frame = memoryview(entry.frame)
            header = parse_header(frame)
            records += header.record_count
            if not aborted.has(header) and not keys.note(frame):
                return number, True
    return len(entries), False


def _compact_some(
    walk: Walk, entries: list[Entry], aborted: AbortedBatches, *, is_due: bool
) -> tuple[list[Buffer], tuple[int, int]]:
    """Compact the first entries, as many as are due at once; return them, and the records read and kept."""
    buffers: list[Buffer] = []
    read = kept = plain_bytes = 0
    for entry in entries:
        if plain_bytes >= PLAIN_BYTES or read >= PLAIN_RECORDS:
            break
        frame, counts = walk.compacted(memoryview(entry.frame), aborted, is_due=is_due)
        buffers.append(frame)
        read += counts.read
        kept += counts.kept
        plain_bytes += counts.plain_bytes
    return buffers, (read, kept)
