"""Writes batches of records into the journal's files, and syncs them.

One `Journal` is in one place at a time: with the sync worker, which may wait for the disk (`write` and all else), or
with the loop, which hands small batches to the kernel if nothing needs to be made or decided (`begin`), and takes note
of the outcome (`finish`). `CommitQueue` sees to that. The journal never decides about durability of one group or
another; it takes records in order and says how many of them are on the disk.

Files. A file grows in steps of `step_bytes` of preallocated room until it has `file_bytes`, which pays for unwritten
extents once; then it is used again and again (its blocks are written over). A small batch that comes to blocks which
nobody has written to in this run takes zeros for the next `PAVED_BYTES` with it: only that sync has to make the file
system remember that they are written, and the next hundred, which do not, take a third of its writes and half the time.
Those go past the page cache if the file system lets them (`Files.open_direct`): a write that is also a sync. Large
batches do, too, in pieces with a sync behind the last (ADR 0012): nobody reads a journal while all is well, and the
page cache would have to find a page for each 4 KiB of it, and to have it written out.

A file that is full is kept until a checkpoint makes it unnecessary (`release`), then it waits in `_free` for its next
life. When no file is free, another one is made, up to `files_max` in all; when that is reached, `write` does nothing
and says `blocked`: the records stay queued until the checkpoint is done, and producers feel it as `StorageBusyError`. A
record that is larger than a whole file makes its file larger.

When the first batch of a file is on the disk, and before anybody is told, a note is made that the file is there
(`note`): if the file is lost, the next start misses it. And each batch says how long the file is, as far as that is
durable, so that a file that was cut is missed, too.

Failures. If there is no room at preallocation, nothing was written (`disk_full`), and the caller tries again. A write
or a sync that failed is final for that file, which is `_broken` from then on and never written or synced again. `write`
goes on in a new file, whose header says up to where the old one is valid; it writes there everything that was not known
durable, syncs it and reads it back. If that fails too, `write` says that it `failed`, and takes the attempt back: its
file is removed if that can be, and its sequence number is never used again, so that recovery cannot take it for a part
of the journal. The records stay with the caller, and the next `write` tries the same once more, with another new file.
The caller decides when. If only the note of a file fails, that alone is tried again: a file that may be noted must
stay.
"""

import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.checkpoint import JournalPlace
from barnabas_raftlog.log.machine.disk_errors import is_disk_full
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.raft.messages import Buffer

from .format import (
    FILE_HEADER_BYTES,
    RECORD_BYTES,
    SECTOR_BYTES,
    FileHeader,
    QueuedRecord,
    aligned,
    encode_batch,
    encode_file_header,
)
from .kernel_sync import Syncer
from .note import JournalNote
from .scan import JournalScan
from .sector_room import SectorRoom

__all__ = ["Journal", "JournalLimits", "WriteResult"]


PAVED_BYTES = 256 << 10
LARGE_BYTES = 64 << 10
PIECE_BYTES = 1 << 20  # of a large batch; in memory of its own
_ZEROS = memoryview(bytes(PAVED_BYTES))


class JournalLimits(NamedTuple):
    """Sizes of the files; `files_max` is at least 2, or nothing could ever be released."""

    file_bytes: int
    step_bytes: int
    files_max: int


class WriteResult(NamedTuple):
    """The outcome of a batch. The first `durable_count` records are on the disk; the rest must be given again."""

    durable_count: int
    place: JournalPlace
    full_count: int  # journal files that wait for a checkpoint
    disk_full: bool
    blocked: bool
    reopened: str = ""  # why a file was given up and replaced, or empty
    failed: str = ""  # why nothing can be written at the moment, or empty


class _File:
    __slots__ = ("direct_fd", "fd", "is_bad", "path", "paved_bytes", "sequence", "size_bytes", "synced_bytes")

    def __init__(self, path: str, fd: int, size_bytes: int) -> None:
        self.path = path
        self.fd = fd
        self.direct_fd: int | None = None  # past the page cache
        self.size_bytes = size_bytes
        self.synced_bytes = 0  # so long it is on the disk; not known before the first sync of this life
        self.paved_bytes = 0  # so much of it was written to, in any life of this run
        self.sequence = 0
        self.is_bad = False

    def descriptors(self) -> list[int]:
        return [self.fd] if self.direct_fd is None else [self.fd, self.direct_fd]


class Journal:
    """The files, and the place where the next batch goes. Owned by the thread that `CommitQueue` has given it to.

    Invariant: batch numbers grow by one, file sequence numbers by one or, after attempts that failed, more. `_place` is
    where the next batch goes: while there is no current file, no file has a number below `_place.sequence`.
    """

    def __init__(self, files: Files, directory: str, limits: JournalLimits, place: JournalPlace) -> None:
        self._files = files
        self._directory = directory
        self._limits = limits
        self._free: list[_File] = []
        self._full: list[_File] = []
        self._current: _File | None = None
        self._numbers = itertools.count(1)
        self._place = place
        self._note = JournalNote(files, directory.rpartition("/")[0])
        self._sequence = place.sequence - 1  # the last that was used, or tried
        # Position and sequence behind the last batch that was synced. A file without such a batch may be gone after a
        # loss of power, so no other file names it as its predecessor.
        self._durable_end = (0, 0)
        self._broken = ""  # why the current file must not be written to any more
        # A batch that is on the disk and does not count yet: how many of the next records, and the place behind it.
        # It is the first of its file, and the note of that could not be synced.
        self._synced: tuple[int, JournalPlace] | None = None
        self._begun = self._place  # behind the batch that is being synced
        self._begun_bytes = 0  # how long the file was then
        self._may_be_direct = True  # until that has failed once
        self._room: SectorRoom | None = None
        self._is_direct = False  # the batch that is being synced went past the page cache

    def adopt(self, paths: Iterable[str]) -> None:
        """Take over files whose contents are not needed any more; called once, before the first `write`."""
        for path in paths:
            self._free.append(self._open_file(path, create=False))
            number = int(path.rpartition("/")[2].partition(".")[0])
            self._numbers = itertools.count(max(next(self._numbers), number + 1))

    def write(self, records: list[QueuedRecord]) -> WriteResult:
        """Append and sync `records`, as far as possible."""
        done = 0
        disk_full = blocked = False
        reopened = failed = ""
        while done < len(records) and not (disk_full or blocked or failed):
            if self._synced is not None:
                try:
                    self._note_first()
                except OSError as error:
                    disk_full = is_disk_full(error)
                    failed = "" if disk_full else f"a new journal file cannot be noted: {error}"
                    continue
                count, behind = self._synced
                self._advance(behind)
                done += count
            elif self._broken:
                try:
                    self._synced = self._replace(records, done)
                except (OSError, StorageFailedError) as error:
                    disk_full = is_disk_full(error)
                    if not disk_full:
                        failed = f"the journal failed ({self._broken}), and so did a new file in its place: {error}"
                    continue
                reopened = self._broken
                self._broken = ""
            else:
                try:
                    count = self._fitting(records, done)
                    if count == 0:
                        blocked = not self._start_file(RECORD_BYTES * 3 + len(records[done][4]))
                        continue
                except OSError as error:
                    # Making room failed: nothing was written where it matters.
                    disk_full = is_disk_full(error)
                    self._broken = "" if disk_full else str(error)
                    continue
                try:
                    self._synced = (count, self._write_batch(records[done : done + count]))
                except OSError as error:
                    self._broken = str(error)
        if not failed and not disk_full:
            disk_full = not self._reserve()
        return WriteResult(
            durable_count=done,
            place=self._place,
            full_count=len(self._full),
            disk_full=disk_full,
            blocked=blocked,
            reopened=reopened,
            failed=failed,
        )

    def begin(self, records: list[QueuedRecord], syncer: Syncer, done: Callable[[OSError | None], None]) -> bool:
        """Write `records` from the loop and let `syncer` sync them; `done` is called when it has, and calls `finish`.

        False: there is not room in plenty where they go, or it did not work. Then `write` must be given the same ones.
        """
        file = self._current
        place = self._place
        # The first batch of a file needs a note, and the header before it went through the page cache.
        if file is None or self._broken or self._synced is not None or place.position == FILE_HEADER_BYTES:
            return False
        buffers, size = encode_batch(place.sequence, place.batch + 1, records, file.synced_bytes)
        position = aligned(place.position)
        ahead = 0 if file.size_bytes >= self._limits.file_bytes else self._limits.step_bytes // 2
        if position + size + ahead > file.size_bytes:
            return False
        is_paved = aligned(position + size) <= file.paved_bytes
        # Such a write syncs nothing but itself.
        direct_fd = file.direct_fd if is_paved and self._may_be_direct else None
        self._is_direct = direct_fd is not None
        if direct_fd is not None:
            self._begun = _behind(place, size)
            return syncer.begin_write(direct_fd, buffers, position, done)
        self._begun_bytes = file.size_bytes
        try:
            self._begun = self._put(file, buffers, size)
        except OSError as error:
            self._broken = str(error)
            return False
        return syncer.begin(file.fd, done)

    def finish(self, count: int, error: OSError | None) -> WriteResult:
        """Take note that the `count` records of `begin` are on the disk, or of the error."""
        if error is None:
            assert self._current is not None
            if not self._is_direct:
                self._current.synced_bytes = self._begun_bytes
            self._advance(self._begun)
        else:
            self._broken = str(error)
            self._may_be_direct = self._may_be_direct and not self._is_direct
        return WriteResult(
            durable_count=0 if error else count,
            place=self._place,
            full_count=len(self._full),
            disk_full=False,
            blocked=False,
        )

    def retry_room(self) -> bool:
        """Try to preallocate once more; return whether there is room again, or nothing that speaks against it."""
        return bool(self._broken) or self._reserve()

    def release(self, sequence: int) -> int:
        """Free the files before `sequence`, which a checkpoint covers; return how many full files are left."""
        released = [file for file in self._full if file.sequence < sequence]
        self._full = [file for file in self._full if file.sequence >= sequence]
        for file in released:
            if file.is_bad:
                self._discard(file)
            else:
                self._free.append(file)
        return len(self._full)

    def close(self) -> None:
        for file in (*self._free, *self._full, *([self._current] if self._current else ())):
            for fd in file.descriptors():
                self._files.close(fd)
        self._current = None

    def _fitting(self, records: list[QueuedRecord], start: int) -> int:
        """Return how many records from `start` on fit into the current file, and preallocate room for them."""
        file = self._current
        if file is None:
            return 0
        capacity = max(self._limits.file_bytes, file.size_bytes)
        size = aligned(self._place.position) + RECORD_BYTES * 2
        count = 0
        for record in itertools.islice(records, start, None):
            size += RECORD_BYTES + len(record[4])
            if size > capacity:
                size -= RECORD_BYTES + len(record[4])
                break
            count += 1
        if count:
            self._allocate(file, size)
        return count

    def _allocate(self, file: _File, end: int) -> None:
        end = aligned(end)
        step = self._limits.step_bytes
        if end <= file.size_bytes:
            return
        size = max(end, min(-(-end // step) * step, max(self._limits.file_bytes, end)))
        self._files.preallocate(file.fd, file.size_bytes, size - file.size_bytes)
        file.size_bytes = size

    def _reserve(self) -> bool:
        """Keep half a step of room ahead, so that a full disk shows before anything depends on it."""
        file = self._current
        if file is None:
            return True
        wanted = min(self._place.position + self._limits.step_bytes // 2, self._limits.file_bytes)
        try:
            self._allocate(file, wanted)
        except OSError as error:
            # Any other error will come back from the write that needs the room, and is treated there.
            return not is_disk_full(error)
        return True

    def _start_file(self, needed: int) -> bool:
        """Begin the next life of a free file, or of a new one; False if no further file is allowed."""
        in_use = len(self._free) + len(self._full) + (self._current is not None)
        if not self._free:
            if in_use >= self._limits.files_max:
                return False
            self._free.append(self._new_file())
        previous = self._current
        try:
            self._begin(self._free[0], needed)
        except OSError as error:
            if not is_disk_full(error):
                self._discard(self._free.pop(0))
            raise
        del self._free[0]
        if previous is not None:
            self._full.append(previous)
        return True

    def _new_file(self) -> _File:
        path = f"{self._directory}/{next(self._numbers):08d}.journal"
        file = self._open_file(path, create=True)
        try:
            self._files.sync_directory(self._directory)
        except OSError:
            self._discard(file)
            raise
        return file

    def _open_file(self, path: str, *, create: bool) -> _File:
        fd = self._files.open(path, create=create)
        try:
            file = _File(path, fd, self._files.size(fd))
            file.direct_fd = self._files.open_direct(path, SECTOR_BYTES)
        except OSError:
            self._files.close(fd)
            raise
        return file

    def _begin(self, file: _File, needed: int) -> None:
        """Make `file` the current one, with a sequence number that was never used, not even in an attempt."""
        self._allocate(file, needed + FILE_HEADER_BYTES)
        self._sequence += 1
        previous_end, previous_sequence = self._durable_end
        header = FileHeader(self._sequence, previous_end, previous_sequence)
        self._files.write(file.fd, [encode_file_header(header)], 0)
        file.sequence = self._sequence
        file.synced_bytes = 0
        self._current = file
        self._place = JournalPlace(self._sequence, FILE_HEADER_BYTES, self._place.batch)

    def _discard(self, file: _File) -> None:
        """Close and remove a file, as far as the disk lets us. If it stays, it is no part of the journal."""
        for fd in file.descriptors():
            with suppress(OSError):
                self._files.close(fd)
        with suppress(OSError):
            self._files.remove(file.path)

    def _write_batch(self, records: list[QueuedRecord]) -> JournalPlace:
        """Write and sync a batch; return the place behind it, for `_advance`."""
        file = self._current
        place = self._place
        assert file is not None
        is_first = place.position == FILE_HEADER_BYTES
        size_bytes = file.size_bytes
        file_bytes = size_bytes if is_first else file.synced_bytes
        buffers, size = encode_batch(place.sequence, place.batch + 1, records, file_bytes)
        if size < LARGE_BYTES or file.direct_fd is None or not self._may_be_direct:
            behind = self._put(file, buffers, size)
        else:
            behind = _behind(place, size)
            self._put_directly(file.direct_fd, buffers)
            file.paved_bytes = max(file.paved_bytes, behind.position)
        self._files.sync(file.fd)
        file.synced_bytes = size_bytes
        return behind

    def _put_directly(self, direct_fd: int, buffers: list[Buffer]) -> None:
        """Write a large batch past the page cache; the sync that follows makes it durable."""
        if self._room is None:
            self._room = SectorRoom(PIECE_BYTES)
        position = aligned(self._place.position)
        try:
            for piece in self._room.pieces(buffers):
                self._files.write(direct_fd, [piece], position)
                position += len(piece)
        except OSError:
            self._may_be_direct = False
            raise

    def _put(self, file: _File, buffers: list[Buffer], size: int) -> JournalPlace:
        """Write an encoded batch where the next one goes, and return the place behind it."""
        place = self._place
        position = aligned(self._place.position)
        self._pave(file, buffers, position + size, size)
        self._files.write(file.fd, buffers, position)
        return _behind(place, size)

    def _pave(self, file: _File, buffers: list[Buffer], end: int, size: int) -> None:
        """Let a small batch that ends at `end`, where nothing was ever written to, bring zeros for what comes next."""
        if end > file.paved_bytes:
            count = min(PAVED_BYTES, file.size_bytes - end) if size < PAVED_BYTES else 0
            file.paved_bytes = end + max(count, 0)
            if count > 0:
                buffers.append(_ZEROS[:count])

    def _note_first(self) -> None:
        """Note that a file is there if the batch that is on the disk is its first.

        Raises:
            OSError: that could not be done. The batch does not count before it is.
        """
        if self._place.position == FILE_HEADER_BYTES:
            assert self._current is not None
            self._note.write(self._current.sequence, self._current.path.rpartition("/")[2].partition(".")[0])

    def _advance(self, behind: JournalPlace) -> None:
        """Let a batch count that is on the disk."""
        file = self._current
        self._synced = None
        assert file is not None
        self._place = JournalPlace(behind.sequence, behind.position, behind.batch, file.synced_bytes)
        self._durable_end = (behind.position, behind.sequence)

    def _replace(self, records: list[QueuedRecord], start: int) -> tuple[int, JournalPlace]:
        """Write as many of the records as fit, which did not become durable, into a new file.

        Returns how many those are, and the place behind them: see `_synced`.

        Raises:
            OSError, StorageFailedError: they are not there, and the journal is as it was before.
        """
        size = RECORD_BYTES * 3
        count = 0
        for record in itertools.islice(records, start, None):
            size += RECORD_BYTES + len(record[4])
            if count and size + FILE_HEADER_BYTES > self._limits.file_bytes:
                size -= RECORD_BYTES + len(record[4])
                break
            count += 1
        bad = self._current
        place = self._place
        durable_end = self._durable_end
        fresh = self._new_file()
        try:
            self._begin(fresh, size)
            behind = self._write_batch(records[start : start + count])
            self._verify(count, behind)
        except (OSError, StorageFailedError):
            self._current = bad
            self._place = place
            self._durable_end = durable_end
            self._discard(fresh)
            raise
        if bad is not None:
            # It is kept until the checkpoint, for the records that are durable in it, and never written again.
            bad.is_bad = True
            self._full.append(bad)
        return count, behind

    def _verify(self, count: int, behind: JournalPlace) -> None:
        assert self._current is not None
        read = partial(self._files.read, self._current.fd)
        scan = JournalScan(read, behind.position, behind.sequence, FILE_HEADER_BYTES, behind.batch - 1)
        if sum(1 for _ in scan.records()) != count:
            raise StorageFailedError(f"{self._current.path} does not hold what was written to it")


def _behind(place: JournalPlace, size_bytes: int) -> JournalPlace:
    """Return the place behind a batch of `size_bytes` that goes to `place`."""
    return JournalPlace(place.sequence, aligned(aligned(place.position) + size_bytes), place.batch + 1)
