"""Reads and writes what members of the classic protocol say to each other, which a broker passes on unread there. Pure.

In a group of KIP-848 the broker makes the assignment, so it reads what such a member subscribes to and says that it
has, and writes what it gets. They are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment:

    subscription   version i16, topics [string], user_data nullable bytes,
                   since 1: owned [topic string, partitions [i32]],  since 2: generation_id i32,
                   since 3: rack_id nullable string
    assignment     version i16, partitions [topic string, partitions [i32]], user_data nullable bytes

A newer version only appends fields, so its reader takes those that it knows.

Limits, so that nobody waits for the reader: a subscription of `NAMES_MAX` topics and `NAMES_BYTES_MAX` bytes in their
names, and `NUMBERS_MAX` partitions. Anything beyond that is malformed.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from barnabas_raftlog.errors import MalformedMessageError

__all__ = [
    "CONSUMER",
    "Numbers",
    "Said",
    "read_assignment",
    "read_subscription",
    "version_of",
    "write_assignment",
]

CONSUMER: Final = "consumer"
"""The type of the classic protocol whose members exchange these."""
NEWEST: Final = 3
NAMES_MAX: Final = 5_000
NAMES_BYTES_MAX: Final = 256 << 10
NUMBERS_MAX: Final = 20_000
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NOTHING: Final = _INT32.pack(-1)

Numbers: TypeAlias = Mapping[str, Sequence[int]]
"""Numbers of partitions by the name of their topic."""


class Said(NamedTuple):
    """The topics that a member subscribes to, sorted, each once; the partitions that it says it has; its rack."""

    topic_names: tuple[str, ...]
    owned: Numbers
    rack_id: str | None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def count(self, at_most: int) -> int:
        count = self.int32()
        if not 0 <= count <= at_most:
            raise MalformedMessageError(f"embedded protocol: an array of {count}")
        return count

    def text(self) -> str | None:
        length = self.int16()
        try:
            return None if length < 0 else self.take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"embedded protocol: {error}") from error

    def name(self) -> str:
        name = self.text()
        if name is None:
            raise MalformedMessageError("embedded protocol: null where a name is due")
        return name

    def user_data(self) -> bytes:
        length = self.int32()
        return b"" if length < 0 else self.take(length)

    def numbers(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        left = NUMBERS_MAX
        for _ in range(self.count(NAMES_MAX)):
            name = self.name()
            count = self.count(left)
            left -= count
            found[name] = found.get(name, ()) + struct.unpack(f">{count}i", self.take(4 * count))
        return found

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise MalformedMessageError(f"embedded protocol: {len(self._data)} bytes end within a field")
        taken = self._data[self._position : end]
        self._position = end
        return taken


def version_of(data: bytes) -> int:
    """Return the version of a subscription or an assignment, at most the newest that is known.

    Raises:
        MalformedMessageError: it has none.
    """
    version = _Reader(data).int16()
    if version < 0:
        raise MalformedMessageError(f"embedded protocol: version {version}")
    return min(version, NEWEST)


def read_subscription(data: bytes) -> Said:
    """Read what a member says when it joins.

    Raises:
        MalformedMessageError: the bytes are no subscription, or one that is too long.
    """
    version = version_of(data)
    reader = _Reader(data)
    reader.int16()
    names = [reader.name() for _ in range(reader.count(NAMES_MAX))]
    if sum(map(len, names)) > NAMES_BYTES_MAX:
        raise MalformedMessageError("embedded protocol: the names of topics are too long")
    reader.user_data()
    owned = reader.numbers() if version >= 1 else {}
    if version >= 2:
        reader.int32()
    rack_id = reader.text() if version >= 3 else None
    return Said(tuple(sorted(set(names))), owned, rack_id or None)


def read_assignment(data: bytes) -> tuple[Numbers, bool]:
    """Read an assignment: the partitions, and whether an assignor has put something else beside them.

    No bytes are no partitions.

    Raises:
        MalformedMessageError: the bytes are no assignment, or one that is too long.
    """
    if not data:
        return {}, False
    version_of(data)
    reader = _Reader(data)
    reader.int16()
    return reader.numbers(), bool(reader.user_data())


def write_assignment(version: int, numbers: Numbers) -> bytes:
    """Return an assignment of that version, topics and partitions in order."""
    parts = [_INT16.pack(version), _INT32.pack(len(numbers))]
    for name, some in sorted(numbers.items()):
        text = name.encode()
        parts += (_INT16.pack(len(text)), text, struct.pack(f">i{len(some)}i", len(some), *sorted(some)))
    return b"".join([*parts, _NOTHING])
