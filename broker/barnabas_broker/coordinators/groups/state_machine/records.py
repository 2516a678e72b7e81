"""Encodes and decodes records of the offsets topic, byte for byte as Kafka does. Pure.

A record is a key and a value, each behind an int16 of its own. In a key that number says what it names; in a value it
is the version of the value's layout:

    key 0, 1    string group, string topic, int32 partition      an offset that a group has committed
    key 2       string group                                     a group: its generation, members, assignment
    value null                                                   a tombstone: forget what the key names

    offset, version 3    int64 offset, int32 leader epoch, string metadata, int64 commit time
    offset, version 4    the same, flexible, with the topic's id as tagged field 0
    offset, version 1    int64 offset, string metadata, int64 commit time, int64 expiry time
    group, version 3     string protocol type, int32 generation, string? protocol, string? leader, int64 state time,
                         members of: string member id, string? instance id, string client id, string client host,
                         int32 rebalance timeout, int32 session timeout, bytes subscription, bytes assignment

Offsets are written as version 4, as Kafka 4.3 does, or as version 1 where the client set an expiry time of its own;
groups as version 3. Every version back to 0 is read, so that a log written by Kafka could be too. A key of another
kind (KIP-848 and share groups have theirs) is skipped, as Kafka skips kinds that it does not know.

Source: Kafka's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue. Not here: batches around
these records, and what they mean together (`offsets`, `group`).
"""

import struct
from collections.abc import Generator
from typing import NamedTuple

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.steps import at_once
from barnabas_raftlog.wire.primitives import read_uvarint, uvarint

from .messages import SavedGroup, SavedMember

__all__ = [
    "NO_TIMESTAMP",
    "NO_TOPIC_ID",
    "CommittedOffset",
    "GroupKey",
    "Name",
    "OffsetKey",
    "decode_group",
    "decode_group_in_steps",
    "decode_key",
    "decode_offset",
    "encode_group",
    "encode_group_in_steps",
    "encode_group_key",
    "encode_offset",
    "encode_offset_key",
]

Buffer = bytes | bytearray | memoryview

NO_TOPIC_ID = bytes(16)
NO_TIMESTAMP = -1
_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_OFFSET_PLAIN = 3
_OFFSET_EXPIRING = 1
_OFFSET_FLEXIBLE = 4
_GROUP_VERSION = 3
_GROUP_FLEXIBLE = 4
_TOPIC_ID_TAG = 0
MEMBERS_STEP = 200  # between two yields

_I16, _I32, _I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_OFFSET_HEAD = struct.Struct(">hqi")
_EXPIRING_HEAD = struct.Struct(">hq")
_TOPIC_ID_FIELD = b"\x01\x00\x10"  # one tagged field, tag 0, 16 bytes
_TWO_I64 = struct.Struct(">qq")


class OffsetKey(NamedTuple):
    """Names the position of one group in one partition."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Names one group."""

    group_id: str


Name = OffsetKey | GroupKey
"""The things that a record's key can name."""


class CommittedOffset(NamedTuple):
    """A position as it is stored. Times in milliseconds since 1970; `expire_timestamp_ms` -1: as the broker says."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = NO_TOPIC_ID


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the key of a committed offset.

    Raises:
        ValueError: a name is longer than 32,767 bytes.
    """
    return b"\x00\x01" + _string(key.group_id) + _string(key.topic) + _I32.pack(key.partition)


def encode_group_key(group_id: str) -> bytes:
    """Return the key of a group. Raises ValueError as above."""
    return b"\x00\x02" + _string(group_id)


def encode_offset(value: CommittedOffset) -> bytes:
    """Return the value of a committed offset; one with an expiry time of its own has no room for epoch and topic id.

    Raises:
        ValueError: the metadata is longer than 32,767 bytes.
    """
    if value.expire_timestamp_ms >= 0:
        head = _EXPIRING_HEAD.pack(_OFFSET_EXPIRING, value.offset) + _string(value.metadata)
        return head + _TWO_I64.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
    time = _I64.pack(value.commit_timestamp_ms)
    if value.topic_id == NO_TOPIC_ID:
        return _OFFSET_HEAD.pack(_OFFSET_PLAIN, value.offset, value.leader_epoch) + _string(value.metadata) + time
    metadata = value.metadata.encode()
    head = _OFFSET_HEAD.pack(_OFFSET_FLEXIBLE, value.offset, value.leader_epoch) + uvarint(len(metadata) + 1)
    return b"".join((head, metadata, time, _TOPIC_ID_FIELD, value.topic_id))


def encode_group(group: SavedGroup) -> bytes:
    """Return the value of a group. Raises ValueError as above."""
    return at_once(encode_group_in_steps(group))


def encode_group_in_steps(group: SavedGroup) -> Generator[None, None, bytes]:
    """Return the value of a group.

    Raises:
        ValueError: a name is longer than 32,767 bytes.
    """
    parts = [
        _I16.pack(_GROUP_VERSION),
        _string(group.protocol_type),
        _I32.pack(group.generation_id),
        _nullable(group.protocol_name),
        _nullable(group.leader),
        _I64.pack(group.current_state_timestamp_ms),
        _I32.pack(len(group.members)),
    ]
    for number, member in enumerate(group.members, 1):
        if not number % MEMBERS_STEP:
            yield
        parts += (
            _string(member.member_id),
            _nullable(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _I32.pack(member.rebalance_timeout_ms),
            _I32.pack(member.session_timeout_ms),
            _I32.pack(len(member.subscription)),
            bytes(member.subscription),
            _I32.pack(len(member.assignment)),
            bytes(member.assignment),
        )
    return b"".join(parts)


def decode_key(data: Buffer) -> OffsetKey | GroupKey | None:
    """Read a key; None for a kind that is not ours.

    Raises:
        MalformedMessageError: it is cut off, or not text where text should be.
    """
    reader = _Reader(data)
    try:
        kind = reader.int16()
        if kind in _OFFSET_KEYS:
            return OffsetKey(reader.string(), reader.string(), reader.int32())
        if kind == _GROUP_KEY:
            return GroupKey(reader.string())
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"key of an offsets record: {error}") from error
    return None


def decode_offset(data: Buffer) -> CommittedOffset:
    """Read the value of a committed offset, of any version.

    Raises:
        MalformedMessageError: as above, or the version is not known.
    """
    reader = _Reader(data)
    try:
        version = reader.version(_OFFSET_FLEXIBLE)
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= _OFFSET_PLAIN else -1
        reader.is_flexible = version >= _OFFSET_FLEXIBLE
        metadata = reader.string()
        commit_timestamp_ms = reader.int64()
        expire_timestamp_ms = reader.int64() if version == _OFFSET_EXPIRING else NO_TIMESTAMP
        tags = reader.tags() if reader.is_flexible else {}
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"a committed offset: {error}") from error
    topic_id = tags.get(_TOPIC_ID_TAG, NO_TOPIC_ID)
    return CommittedOffset(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=commit_timestamp_ms,
        expire_timestamp_ms=expire_timestamp_ms,
        topic_id=topic_id,
    )


def decode_group(data: Buffer) -> SavedGroup:
    """Read the value of a group, of any version. Raises MalformedMessageError as above."""
    return at_once(decode_group_in_steps(data))


def decode_group_in_steps(data: Buffer) -> Generator[None, None, SavedGroup]:
    """Read the value of a group, of any version.

    Raises:
        MalformedMessageError: as above.
    """
    reader = _Reader(data)
    try:
        version = reader.version(_GROUP_FLEXIBLE)
        reader.is_flexible = version >= _GROUP_FLEXIBLE
        protocol_type = reader.string()
        generation_id = reader.int32()
        protocol_name, leader = reader.nullable(), reader.nullable()
        timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
        members = []
        for number in range(1, reader.count() + 1):
            members.append(_member(reader, version))
            if not number % MEMBERS_STEP:
                yield
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"a group: {error}") from error
    return SavedGroup(
        protocol_type=protocol_type,
        generation_id=generation_id,
        protocol_name=protocol_name,
        leader=leader,
        current_state_timestamp_ms=timestamp_ms,
        members=tuple(members),
    )


def _member(reader: "_Reader", version: int) -> SavedMember:
    member_id = reader.string()
    group_instance_id = reader.nullable() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    if reader.is_flexible:
        reader.tags()
    return SavedMember(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0x7FFF:
        raise ValueError(f"a name of {len(data)} bytes; 32767 are the limit of the format")
    return _I16.pack(len(data)) + data


def _nullable(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else _string(text)


class _Reader:
    """A position in a record. IndexError or struct.error where it ends too early."""

    __slots__ = ("_data", "_position", "is_flexible")

    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._position = 0
        self.is_flexible = False

    def version(self, newest: int) -> int:
        version = self.int16()
        if not 0 <= version <= newest:
            raise MalformedMessageError(f"version {version} of a value; {newest} is the newest that is known")
        return version

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        text = self.nullable()
        if text is None:
            raise MalformedMessageError("null where text must be")
        return text

    def nullable(self) -> str | None:
        size = self._uvarint() - 1 if self.is_flexible else self.int16()
        return None if size < 0 else self._take(size).decode()

    def blob(self) -> bytes:
        size = self._uvarint() - 1 if self.is_flexible else self.int32()
        return self._take(size)

    def count(self) -> int:
        count = self._uvarint() - 1 if self.is_flexible else self.int32()
        # A member takes more than 20 bytes, whatever the version: a lying count is no reason to allocate.
        if not 0 <= count <= len(self._data):
            raise MalformedMessageError(f"{count} members in {len(self._data)} bytes")
        return count

    def tags(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            found[tag] = self._take(self._uvarint())
        return found

    def _uvarint(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise MalformedMessageError(f"{size} bytes at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
