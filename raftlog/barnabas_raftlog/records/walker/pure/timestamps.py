"""Finds records by their timestamps in a batch that comes in pieces, in Python. Pure."""

from barnabas_raftlog.records.walker.faults import Fault
from barnabas_raftlog.records.walker.key_parts import Timed

from .walk import Buffer, Cursor, FaultError, walk_record

__all__ = ["TimeSearch"]

_LENGTH_BYTES_MAX = 5


class TimeSearch:
    """The first record of a batch at or after a timestamp, or the first of those with the largest one.

    Attributes:
        is_done: Nothing more needs to be fed: it is found, or there is a fault.
        fault: What is wrong with the batch, if that was seen before the answer was certain.
        bytes_due: How many bytes, from the first one that was not used, the next record has at least.
    """

    def __init__(
        self,
        *,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_timestamp: int | None,
        start_offset: int,
        wanted: int | None,
    ) -> None:
        """Begin before the first record of a batch.

        Args:
            count: How many records there are to be, by the header; as the next three.
            base_offset: Of the batch.
            last_offset_delta: No record may be beyond it.
            base_timestamp: In milliseconds.
            append_timestamp: That of all records, if it is not None.
            start_offset: Records before it do not count.
            wanted: The first record at this timestamp or later is looked for; None: the one with the largest.
        """
        self.is_done = False
        self.fault = Fault.NONE
        self.bytes_due = 1
        self._left = count
        self._base_offset = base_offset
        self._last_delta = last_offset_delta
        self._base_timestamp = base_timestamp
        self._append_timestamp = append_timestamp
        self._start_offset = start_offset
        self._wanted = wanted
        self._next_delta = 0
        self._found: Timed | None = None

    def feed(self, data: Buffer) -> int:
        """Walk over the whole records that `data` begins with, and return their bytes.

        The others are to be fed again, with what follows them.
        """
        position = 0
        self.bytes_due = 1
        while self._left > 0 and not self.is_done:
            try:
                size = self._size_at(data, position)
                if size > len(data) - position:
                    self.bytes_due = size
                    return position
                position = self._record(data, position)
            except FaultError as error:
                self._fail(error.fault)
        if not self.is_done and position < len(data):
            self._fail(Fault.BEHIND)
        return position

    def end(self, *, is_left: bool) -> Timed | None:
        """Return the record; None if there is none, or the batch is not sound: `fault` tells.

        Args:
            is_left: Bytes were fed that were not used.
        """
        if not self.is_done and (self._left > 0 or is_left):
            self._fail(Fault.LENGTH if is_left else Fault.VARINT)
        return None if self.fault else self._found

    def _fail(self, fault: Fault) -> None:
        self.is_done = True
        self.fault = fault

    def _size_at(self, data: Buffer, position: int) -> int:
        """Return the bytes of the record at `position`, or how many more are due to tell."""
        cursor = Cursor(data, position)
        try:
            length = cursor.varint(32)
        except FaultError:
            if cursor.position == len(data) < position + _LENGTH_BYTES_MAX and _is_unfinished(data, position):
                return len(data) - position + 1
            raise
        if length < 0:
            raise FaultError(Fault.LENGTH)
        return cursor.position - position + length

    def _record(self, data: Buffer, position: int) -> int:
        cursor = Cursor(data, position)
        seen = walk_record(cursor, self._base_timestamp)
        if not self._next_delta <= seen.offset_delta <= self._last_delta:
            raise FaultError(Fault.OFFSET)
        self._next_delta = seen.offset_delta + 1
        self._left -= 1
        offset = self._base_offset + seen.offset_delta
        timestamp = seen.timestamp if self._append_timestamp is None else self._append_timestamp
        if offset >= self._start_offset:
            if self._wanted is not None and timestamp >= self._wanted:
                self._found = Timed(offset, timestamp)
                self.is_done = True
            elif self._wanted is None and (self._found is None or timestamp > self._found.timestamp):
                self._found = Timed(offset, timestamp)
        return cursor.position


def _is_unfinished(data: Buffer, position: int) -> bool:
    """Tell whether a varint goes on behind the data."""
    return all(byte >= 0x80 for byte in data[position:])
