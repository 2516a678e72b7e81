"""Encodes and decodes the bytes that members of a group exchange. Pure.

They are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3:

    subscription   version i16, topics [string], user_data nullable bytes,
                   since 1: owned [topic string, partitions [i32]],  since 2: generation_id i32,
                   since 3: rack_id nullable string
    assignment     version i16, partitions [topic string, partitions [i32]], user_data nullable bytes

A broker passes them on unread. Unlike in requests, a newer version only appends fields, so a reader takes the fields
that it knows and ignores the rest. We write version 3, with topics and partitions sorted, as Kafka's own clients do.
(KIP-429, KIP-792, KIP-881.)
"""

import struct
from collections.abc import Collection, Iterable
from typing import Final

from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import MalformedMessageError

from .assignor import NO_GENERATION, Subscription

__all__ = [
    "PartitionReader",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_partitions",
    "encode_subscription",
]

VERSION: Final = 3
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL_INT16: Final = _INT16.pack(-1)
_NULL_INT32: Final = _INT32.pack(-1)


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription, which a join carries."""
    topics = sorted(subscription.topics)
    rack_id = subscription.rack_id
    return b"".join(
        [
            _INT16.pack(VERSION),
            _INT32.pack(len(topics)),
            *map(_text, topics),
            _bytes(subscription.user_data),
            encode_partitions(subscription.owned),
            _INT32.pack(subscription.generation_id),
            _NULL_INT16 if rack_id is None else _text(rack_id),
        ]
    )


def decode_subscription(data: bytes | memoryview, group_instance_id: str | None = None) -> Subscription:
    """Parse the subscription of another member. Fields that its version lacks have their defaults.

    Raises:
        MalformedMessageError: the bytes are no subscription.
    """
    reader = PartitionReader(data)
    version = reader.version()
    topics = frozenset(reader.text() for _ in range(reader.count()))
    user_data = reader.nullable_bytes()
    owned = frozenset(reader.partitions()) if version >= 1 else frozenset[TopicPartition]()
    generation_id = reader.int32() if version >= 2 else NO_GENERATION
    rack_id = reader.nullable_text() if version >= 3 else None
    return Subscription(
        topics=topics,
        user_data=user_data,
        owned=owned,
        generation_id=generation_id,
        rack_id=rack_id,
        group_instance_id=group_instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    """Return the bytes of an assignment, which a sync hands to one member."""
    return _INT16.pack(VERSION) + encode_partitions(partitions) + _bytes(user_data)


def decode_assignment(data: bytes | memoryview) -> frozenset[TopicPartition]:
    """Parse the assignment that the group's leader made. No bytes are no partitions (a coordinator's default).

    Raises:
        MalformedMessageError: the bytes are no assignment.
    """
    if not data:
        return frozenset()
    reader = PartitionReader(data)
    reader.version()
    partitions = frozenset(reader.partitions())
    reader.nullable_bytes()
    return partitions


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return partitions grouped by topic, sorted: `[topic string, partitions [i32]]`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += (_text(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


class PartitionReader:
    """Reads the fields of the layouts above from `data`, front to back."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = bytes(data)
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def version(self) -> int:
        version: int = _INT16.unpack(self._take(2))[0]
        if version < 0:
            raise MalformedMessageError(f"consumer protocol: version {version}")
        return version

    def int32(self) -> int:
        number: int = _INT32.unpack(self._take(4))[0]
        return number

    def count(self) -> int:
        """Return the length of an array, which cannot exceed the number of bytes."""
        count = self.int32()
        if not 0 <= count <= len(self._data):
            raise MalformedMessageError(f"consumer protocol: an array of {count} in {len(self._data)} bytes")
        return count

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise MalformedMessageError("consumer protocol: null where text is due")
        return text

    def nullable_text(self) -> str | None:
        length: int = _INT16.unpack(self._take(2))[0]
        try:
            return None if length < 0 else self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"consumer protocol: {error}") from error

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.text()
            count = self.count()
            numbers: Collection[int] = struct.unpack(f">{count}i", self._take(4 * count))
            found += [TopicPartition(topic, number) for number in numbers]
        return found

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise MalformedMessageError(f"consumer protocol: {len(self._data)} bytes end within a field")
        taken = self._data[self._position : end]
        self._position = end
        return taken


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"a name of {len(encoded)} bytes is too long")
    return _INT16.pack(len(encoded)) + encoded


def _bytes(data: bytes | None) -> bytes:
    return _NULL_INT32 if data is None else _INT32.pack(len(data)) + data
