"""Checks the records of a batch that comes in pieces, in Python, and in constant memory. Pure.

A record that lies within a piece is walked over as `check` does it. One that crosses the end of a piece is followed
field by field, and of it nothing is kept but where it stands: a value of a hundred megabytes is counted, not held.
"""

from enum import IntEnum

from barnabas_raftlog.records.walker.faults import HEADERS_MAX, Fault, Walked

from .walk import INT64_MAX, INT64_MIN, Buffer, Cursor, FaultError, walk_record

__all__ = ["StreamCheck"]


class _Step(IntEnum):
    """What comes next of the record that is followed, in their order."""

    LENGTH = 0
    ATTRIBUTES = 1
    TIMESTAMP = 2
    OFFSET = 3
    KEY = 4
    VALUE = 5
    HEADERS = 6
    NAME = 7
    HEADER_VALUE = 8
    END = 9


_FAULTS = {
    _Step.KEY: Fault.KEY,
    _Step.VALUE: Fault.VALUE,
    _Step.NAME: Fault.HEADER_NAME,
    _Step.HEADER_VALUE: Fault.HEADER_VALUE,
}


class _Followed:
    """The record that crosses the end of a piece. Positions count from the first byte of the first piece."""

    __slots__ = (
        *("base_timestamp", "body_start", "end", "headers", "key_size", "offset_delta"),
        *("shift", "skip", "start", "step", "timestamp", "value"),
    )

    def __init__(self, start: int, base_timestamp: int) -> None:
        self.start = start
        self.base_timestamp = base_timestamp
        self.step = _Step.LENGTH
        self.value = self.shift = 0  # of the varint that has begun
        self.skip = 0  # bytes of a key, value or name that are still to come
        self.body_start = self.end = 0  # known once its length is
        self.headers = self.key_size = self.timestamp = self.offset_delta = 0

    def follow(self, piece: Buffer, place: int, fed: int) -> int:
        """Go on at `place` in a piece which `fed` bytes came before; return where it ends, or the piece does.

        Raises:
            FaultError: it is not sound. `args` has the position of the fault, from the first byte of all.
        """
        while True:
            if self.skip > len(piece) - place:
                self.skip -= len(piece) - place
                return len(piece)
            place += self.skip
            self.skip = 0
            if self.step is _Step.END:
                if fed + place != self.end:
                    raise _FollowedError(Fault.LONGER, fed + place)
                return place
            if self.step is not _Step.LENGTH and fed + place >= self.end:
                raise _FollowedError(Fault.VARINT, fed + place)
            if place >= len(piece):
                return place
            place += 1
            if self.step is _Step.ATTRIBUTES:
                self.step = _Step.TIMESTAMP
            else:
                self._byte(piece[place - 1], fed + place)

    def _byte(self, byte: int, position: int) -> None:
        """Take a byte of a varint; `position` is behind it."""
        bits = 64 if self.step is _Step.TIMESTAMP else 32
        self.value |= (byte & 0x7F) << self.shift
        self.shift += 7
        if self.value >> bits or (byte >= 0x80 and self.shift >= bits):
            raise _FollowedError(Fault.VARINT, self.start if self.step is _Step.LENGTH else position)
        if byte < 0x80:
            number = (self.value >> 1) ^ -(self.value & 1)
            self.value = self.shift = 0
            self._take(number, position)

    def _take(self, number: int, position: int) -> None:
        """Take the number that has come: its meaning is what was due. `position` is behind it."""
        step = self.step
        if step is _Step.LENGTH:
            if number < 0:
                raise _FollowedError(Fault.LENGTH, position)
            self.body_start = position
            self.end = position + number
        elif step is _Step.TIMESTAMP:
            self.timestamp = self.base_timestamp + number
            if not INT64_MIN <= self.timestamp <= INT64_MAX:
                raise _FollowedError(Fault.TIMESTAMP, position)
        elif step is _Step.OFFSET:
            self.offset_delta = number
        elif step is _Step.HEADERS:
            if not 0 <= number <= min(HEADERS_MAX, (self.end - position) // 2):  # a header is at least two sizes
                raise _FollowedError(Fault.HEADER_COUNT, position)
            self.headers = number
        else:
            if not (0 if step is _Step.NAME else -1) <= number <= self.end - position:
                raise _FollowedError(_FAULTS[step], position)
            self.skip = max(number, 0)
            if step is _Step.KEY:
                self.key_size = number
        if step is _Step.HEADERS or step is _Step.HEADER_VALUE:
            self.headers -= step is _Step.HEADER_VALUE
            self.step = _Step.NAME if self.headers else _Step.END
        else:
            self.step = _Step(step + 1)


class _FollowedError(FaultError):
    """A fault with its position, from the first byte of the first piece."""

    def __init__(self, fault: Fault, position: int) -> None:
        super().__init__(fault)
        self.position = position


class StreamCheck:
    """What `check` does, for a body that comes in pieces, cut anywhere. Not for two threads at once.

    Args:
        count: How many records there are to be, by the header.
        base_timestamp: The header's, in milliseconds.
        last_offset_delta: The header's; no record may be beyond it.
        is_dense: Offsets must be 0, 1, 2 ...; else each must be larger than the one before.
    """

    def __init__(self, count: int, base_timestamp: int, last_offset_delta: int, *, is_dense: bool) -> None:
        self._count = count
        self._base_timestamp = base_timestamp
        self._last_offset_delta = last_offset_delta
        self._is_dense = is_dense
        self._records = self._next_delta = self._null_keys = self._fed = 0
        self._min_timestamp, self._max_timestamp = INT64_MAX, INT64_MIN
        self._followed: _Followed | None = None  # the record that began in an earlier piece, or failed
        self._fault = Fault.NONE
        self._fault_position = 0

    @property
    def bytes_due(self) -> int:
        """How many bytes the body has at least, by what came and by the length of the record that is under way."""
        return max(self._fed, self._followed.end) if self._followed else self._fed

    def feed(self, piece: Buffer) -> bool:
        """Walk over the next bytes of the body; return False from the first fault on."""
        if not self._fault:
            try:
                self._walk(piece)
            except _FollowedError as error:
                self._fault, self._fault_position = error.fault, error.position
        self._fed += len(piece)
        return not self._fault

    def end(self, *, is_cut_short: bool = False) -> Walked:
        """Return what `check` returns for all pieces as one body.

        Args:
            is_cut_short: After a fault, pieces were left out. It stands then as it was seen, while `check` says of a
                record that is longer than the body only this.
        """
        fault = self._fault
        position = self._fault_position if fault else self._fed
        followed = self._followed
        if not fault and followed and followed.step is _Step.LENGTH:
            fault, position = Fault.VARINT, followed.start
        elif not fault and not followed and self._records < self._count:
            fault = Fault.VARINT
        elif followed and self._fed < followed.end and not (fault and is_cut_short):
            fault, position = Fault.LENGTH, followed.body_start
        if not self._records:
            return Walked(fault, 0, position, -1, -1, 0)
        return Walked(fault, self._records, position, self._min_timestamp, self._max_timestamp, self._null_keys)

    def _walk(self, piece: Buffer) -> None:
        place = self._follow(piece, 0) if self._followed else 0
        while not self._followed and self._records < self._count and place < len(piece):
            cursor = Cursor(piece, place)
            try:
                seen = walk_record(cursor, self._base_timestamp)
            except FaultError:
                # Followed from its start it says the same, unless it goes on in the next piece.
                self._followed = _Followed(self._fed + place, self._base_timestamp)
                place = self._follow(piece, place)
            else:
                place = cursor.position
                self._count_in(seen.offset_delta, seen.timestamp, seen.key_size, place)
        if not self._followed and place < len(piece):
            raise _FollowedError(Fault.BEHIND, self._fed + place)

    def _follow(self, piece: Buffer, place: int) -> int:
        followed = self._followed
        assert followed
        place = followed.follow(piece, place, self._fed)
        if followed.step is _Step.END and not followed.skip:
            self._followed = None
            self._count_in(followed.offset_delta, followed.timestamp, followed.key_size, place)
        return place

    def _count_in(self, offset_delta: int, timestamp: int, key_size: int, place: int) -> None:
        """Count a record that is sound in itself, and ends at `place` of the piece."""
        if not self._next_delta <= offset_delta <= self._last_offset_delta or (
            self._is_dense and offset_delta != self._next_delta
        ):
            raise _FollowedError(Fault.OFFSET, self._fed + place)
        self._next_delta = offset_delta + 1
        self._min_timestamp = min(self._min_timestamp, timestamp)
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._null_keys += key_size < 0
        self._records += 1
