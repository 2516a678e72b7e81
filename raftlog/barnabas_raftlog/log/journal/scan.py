"""Reads a journal file through a window, and finds where its valid part ends. Pure.

A scan goes from batch to batch, checks every record, and says where the valid part ends and why (`format` has the
rules: a torn end is cut, damage before an intact later batch is not). It sees the file through one window of
`WINDOW_BYTES`, which it asks its `read` for, piece by piece and mostly forwards; a record that is larger than that is
checked in pieces. So it needs the window and nothing else, whatever the size of the journal, of a batch or of a record.

Nothing of a record but its header is given out. A caller that needs the payload asks for it (`payload`), or reads it
later at the place that the record names.
"""

from collections.abc import Callable, Iterator

import msgspec

from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.wire.crc32c import crc32c

from .format import (
    BATCH_MAGIC,
    FILE_HEADER_BYTES,
    RECORD_BYTES,
    RECORD_HEADER,
    SECTOR_BYTES,
    RecordKind,
    aligned,
    file_bytes_of,
    record_seed,
)

__all__ = ["WINDOW_BYTES", "JournalRecord", "JournalScan", "Read"]

WINDOW_BYTES = 1 << 20  # a multiple of the sector; larger ones were no faster, smaller ones cost calls
Read = Callable[[int, int], Buffer]  # position and size to bytes, fewer at the end of the file

_BATCH = int(RecordKind.BATCH)


class JournalRecord(msgspec.Struct):
    """A record as it was found: `position` and `size_bytes` are those of its payload within the file."""

    kind: int
    group: bytes
    index: int
    term: int
    position: int
    size_bytes: int


class JournalScan:
    """One pass over the first `size_bytes` of a file, from sector boundary `start` on.

    `batch_before` is the number of the batch that ends at `start`. When `records` is exhausted, `end` says where the
    valid part ends, `last_batch` is the last batch of which something is there, and `damaged_at` says where durable
    bytes are damaged, or None. `whole_count` batches are whole; by them the file must have `file_bytes`, and
    `first_file_bytes` if the first batch of the file was durable.
    """

    def __init__(
        self,
        read: Read,
        size_bytes: int,
        sequence: int,
        start: int,
        batch_before: int,
        *,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        assert not window_bytes % SECTOR_BYTES, window_bytes
        self._read = read
        self._size_bytes = size_bytes
        self._window_bytes = window_bytes
        self._seed = record_seed(sequence)
        self._window = memoryview(b"")
        self._base = 0  # where in the file the window begins
        self.end = aligned(start)
        self.last_batch = batch_before
        self.damaged_at: int | None = None
        self.whole_count = 0
        self.file_bytes = 0
        self.first_file_bytes = 0

    def records(self) -> Iterator[JournalRecord]:
        """Yield the records in their order.

        Those of a batch that is torn are yielded up to the tear: they were never acknowledged, and may be kept.
        """
        position = self.end
        missing = self.last_batch + 1  # the batch that is not wholly there
        while (batch := self._parse(position)) and batch.kind == _BATCH and batch.index == self.last_batch + 1:
            self.last_batch = missing = batch.index
            if position == FILE_HEADER_BYTES:
                self.first_file_bytes = file_bytes_of(batch.group)
            else:
                self.file_bytes = file_bytes_of(batch.group)
            end_of_batch = position + batch.term
            position = self.end = batch.position + batch.size_bytes
            while position < end_of_batch and (record := self._parse(position)):
                position = self.end = record.position + record.size_bytes
                yield record
            if position != end_of_batch:
                break
            position = aligned(position)
            missing = batch.index + 1
            self.whole_count += 1
        if self._has_batch_after(position, missing):
            self.damaged_at = position

    def payload(self, record: JournalRecord) -> bytes:
        """Return the payload of the record that was given out last: mostly it is still in the window."""
        begin = record.position - self._base
        if begin >= 0 and begin + record.size_bytes <= len(self._window):
            return bytes(self._window[begin : begin + record.size_bytes])
        return bytes(self._read(record.position, record.size_bytes))

    def _parse(self, position: int) -> JournalRecord | None:
        """Return the record at `position` if it is intact."""
        start = position - self._base
        window = self._window
        if start + RECORD_BYTES > len(window):
            window = self._move(position)
            start = 0
            if len(window) < RECORD_BYTES:
                return None
        checksum, size, kind, group, index, term = RECORD_HEADER.unpack_from(window, start)
        end = start + RECORD_BYTES + size
        if end > len(window):
            if position + RECORD_BYTES + size > self._size_bytes:
                return None
            if start:
                end -= start
                window = self._move(position)
                start = 0
        found = crc32c(window[start + 4 : end], self._seed)
        if end > len(window):
            found = self._checksum(position + len(window), position + end, found)
        if found != checksum:
            return None
        return JournalRecord(
            kind=kind, group=group, index=index, term=term, position=position + RECORD_BYTES, size_bytes=size
        )

    def _move(self, position: int) -> memoryview:
        """Let the window begin at `position`."""
        size = max(0, min(self._window_bytes, self._size_bytes - position))
        self._window = memoryview(self._read(position, size))
        self._base = position
        return self._window

    def _checksum(self, position: int, end: int, seed: int) -> int:
        """Go on with a checksum over bytes that no window holds; if some are missing, it comes out wrong."""
        while position < end and (piece := self._read(position, min(self._window_bytes, end - position))):
            seed = crc32c(piece, seed)
            position += len(piece)
        return seed

    def _has_batch_after(self, position: int, missing: int) -> bool:
        """True if an intact batch with a number above `missing` begins after `position`: then `missing` was synced."""
        # Batches begin at sector boundaries, and so do these windows: no batch record lies across two of them.
        first = position - position % SECTOR_BYTES
        for base in range(first, self._size_bytes, self._window_bytes):
            window = self._move(base)
            # find() runs at memory speed; only its few hits are looked at.
            haystack = window.obj if isinstance(window.obj, bytes | bytearray) else bytes(window)
            found = haystack.find(BATCH_MAGIC, max(0, position - base))
            while found >= 0:
                begin = found - RECORD_BYTES
                if begin >= 0 and begin % SECTOR_BYTES == 0:
                    batch = self._parse(base + begin)
                    if batch is not None and batch.kind == _BATCH and batch.index > missing:
                        return True
                found = haystack.find(BATCH_MAGIC, found + 1)
        return False
