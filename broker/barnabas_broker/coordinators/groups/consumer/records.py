"""Encodes and decodes records of consumer groups in the offsets topic, byte for byte as Kafka 4.4 does. Pure.

A key is an int16 that says what it names (`values.Kind`), the group's id, and, if it is about one of them, the member's
id or the pattern. A value is an int16, the version of its layout (0, for all), and its fields. A null value is a
tombstone.

Topics, and partitions in them, are written in ascending order, so that equal states are equal bytes; Kafka writes them
as a hash map has them. Kind 4, partitions by topic, is of brokers before 4.1, which had no hash of them: it is passed
over as every kind is that is not known.

A record names as many things as a member has partitions, or topics: some ten thousand (`limits`), a millisecond or two.

Source: Kafka's ConsumerGroupMetadataKey and -Value, and so on for each kind.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Buffer,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
    message,
    wire,
)

from .values import (
    ClassicMetadata,
    ConsumerKey,
    ConsumerValue,
    GroupEpoch,
    Kind,
    MemberAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
    ResolvedPattern,
    TargetEpoch,
)

__all__ = ["decode_consumer_key", "decode_consumer_value", "encode_consumer_key", "encode_consumer_value"]

_VERSION = 0
_I16 = struct.Struct(">h")
_NO_TAGS = b"\0"
_NO_CLASSIC = b"\x01\x00\x01\x00"
"""One tagged field, number 0, of one byte: null. To Kafka a member without that field is a classic one."""
_OF_THE_GROUP = {Kind.GROUP_EPOCH, Kind.TARGET_EPOCH}
_KINDS = {kind.value: kind for kind in Kind}


@message(api_key=3, versions=range(1), flexible_since=1)
class ConsumerGroupKey(Message):
    """Names what is of a whole group."""

    group_id: String = ""


@message(api_key=5, versions=range(1), flexible_since=1)
class ConsumerGroupSubjectKey(Message):
    """Names something in a group: a member, or a pattern."""

    group_id: String = ""
    subject: String = ""


@message(api_key=3, versions=range(1), flexible_since=0)
class ConsumerGroupMetadataValue(Message):
    """See `GroupEpoch`."""

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, wire(tag=0)] = 0


class ConsumerGroupClassicProtocol(Struct):
    """A protocol that a classic member offers."""

    name: String = ""
    metadata: Bytes = b""


class ConsumerGroupClassicMetadata(Struct):
    """See `ClassicMetadata`."""

    session_timeout_ms: Int32 = 0
    supported_protocols: list[ConsumerGroupClassicProtocol] = field(default_factory=list)


@message(api_key=5, versions=range(1), flexible_since=0)
class ConsumerGroupMemberMetadataValue(Message):
    """See `MemberMetadata`."""

    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: Annotated[ConsumerGroupClassicMetadata | None, wire(tag=0)] = None


@message(api_key=6, versions=range(1), flexible_since=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """See `TargetEpoch`."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, wire(tag=0)] = 0


class ConsumerGroupTargetPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()


@message(api_key=7, versions=range(1), flexible_since=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """See `Target`."""

    topic_partitions: list[ConsumerGroupTargetPartitions] = field(default_factory=list)


class ConsumerGroupCurrentPartitions(Struct):
    """Partitions of one topic, and since which epoch a member has each; null: since its own (before Kafka 4.3)."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()
    assignment_epochs: Annotated[Sequence[Int32] | None, wire(tag=0)] = None


@message(api_key=8, versions=range(1), flexible_since=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """See `MemberAssignment`."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[ConsumerGroupCurrentPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[ConsumerGroupCurrentPartitions] = field(default_factory=list)


@message(api_key=16, versions=range(1), flexible_since=0)
class ConsumerGroupRegularExpressionValue(Message):
    """See `ResolvedPattern`."""

    topics: Sequence[String] = ()
    version: Int64 = 0
    timestamp: Int64 = 0


_VALUES: Mapping[Kind, type[Message]] = {
    Kind.GROUP_EPOCH: ConsumerGroupMetadataValue,
    Kind.MEMBER_METADATA: ConsumerGroupMemberMetadataValue,
    Kind.TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataValue,
    Kind.TARGET: ConsumerGroupTargetAssignmentMemberValue,
    Kind.MEMBER_ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentValue,
    Kind.PATTERN: ConsumerGroupRegularExpressionValue,
}


def encode_consumer_key(key: ConsumerKey) -> bytes:
    """Return the key of a record.

    Raises:
        ValueError: a name is longer than 32,767 bytes.
    """
    body: Message
    if key.kind in _OF_THE_GROUP:
        body = ConsumerGroupKey(group_id=key.group_id)
    else:
        body = ConsumerGroupSubjectKey(group_id=key.group_id, subject=key.subject)
    return _I16.pack(key.kind) + body.to_bytes(_VERSION)


def decode_consumer_key(data: Buffer) -> ConsumerKey | None:
    """Read a key; None for a kind that is not one of these.

    Raises:
        MalformedMessageError: it is cut off, or not text where text should be.
    """
    if len(data) < _I16.size:
        raise MalformedMessageError(f"key of {len(data)} bytes")
    kind = _KINDS.get(_I16.unpack_from(data)[0])
    if kind is None:
        return None
    if kind in _OF_THE_GROUP:
        return ConsumerKey(ConsumerGroupKey.decode(data, _VERSION, _I16.size).group_id, kind)
    named = ConsumerGroupSubjectKey.decode(data, _VERSION, _I16.size)
    return ConsumerKey(named.group_id, kind, named.subject)


def encode_consumer_value(kind: Kind, value: ConsumerValue) -> bytes:
    """Return the value of a record of that kind. Raises ValueError as above."""
    body = _message(kind, value).to_bytes(_VERSION)
    if isinstance(value, MemberMetadata) and value.classic is None:
        body = body[: -len(_NO_TAGS)] + _NO_CLASSIC
    return _I16.pack(_VERSION) + body


def _message(kind: Kind, value: ConsumerValue) -> Message:
    match value:
        case GroupEpoch(epoch, metadata_hash):
            return ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case TargetEpoch(epoch, timestamp_ms):
            return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        case MemberMetadata():
            return _metadata_message(value)
        case MemberAssignment():
            return ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=value.epoch,
                previous_member_epoch=value.previous_epoch,
                state=value.state,
                assigned_partitions=_current(value.assigned),
                partitions_pending_revocation=_current(value.revoking),
            )
        case ResolvedPattern(topics, version, timestamp_ms):
            return ConsumerGroupRegularExpressionValue(topics=topics, version=version, timestamp=timestamp_ms)
        case _:
            assert kind is Kind.TARGET
            return ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    ConsumerGroupTargetPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in sorted(value.items())
                ]
            )


def _metadata_message(value: MemberMetadata) -> ConsumerGroupMemberMetadataValue:
    classic = value.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=value.topic_names,
        subscribed_topic_regex=value.topic_pattern,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ConsumerGroupClassicMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )


def _current(partitions: Partitions) -> list[ConsumerGroupCurrentPartitions]:
    return [
        ConsumerGroupCurrentPartitions(
            topic_id=topic_id,
            partitions=(numbers := sorted(epochs)),
            assignment_epochs=[epochs[number] for number in numbers],
        )
        for topic_id, epochs in sorted(partitions.items())
    ]


def decode_consumer_value(kind: Kind, data: Buffer) -> ConsumerValue:
    """Read the value of a record of that kind.

    Raises:
        MalformedMessageError: it is cut off, or its version is not known.
    """
    if len(data) < _I16.size:
        raise MalformedMessageError(f"value of {len(data)} bytes")
    if kind is Kind.MEMBER_METADATA and bytes(data[-len(_NO_CLASSIC) :]) == _NO_CLASSIC:
        data = bytes(data[: -len(_NO_CLASSIC)]) + _NO_TAGS
    # Like Kafka, nothing is held against bytes behind a value.
    body = _VALUES[kind].decode(data, _I16.unpack_from(data)[0], _I16.size, exact=False)
    match body:
        case ConsumerGroupMetadataValue():
            return GroupEpoch(body.epoch, body.metadata_hash)
        case ConsumerGroupMemberMetadataValue():
            return _metadata(body)
        case ConsumerGroupTargetAssignmentMetadataValue():
            return TargetEpoch(body.assignment_epoch, body.assignment_timestamp)
        case ConsumerGroupTargetAssignmentMemberValue():
            return {
                topic.topic_id: tuple(sorted(topic.partitions)) for topic in body.topic_partitions if topic.partitions
            }
        case ConsumerGroupCurrentMemberAssignmentValue():
            epoch = body.member_epoch
            state = MemberState(body.state) if body.state in _STATES else MemberState.UNKNOWN
            assigned = _partitions(body.assigned_partitions, epoch)
            revoking = _partitions(body.partitions_pending_revocation, epoch)
            return MemberAssignment(epoch, body.previous_member_epoch, state, assigned, revoking)
        case ConsumerGroupRegularExpressionValue():
            return ResolvedPattern(tuple(sorted(body.topics)), body.version, body.timestamp)
        case _:
            raise AssertionError(body)


_STATES = {state.value for state in MemberState}


def _metadata(body: ConsumerGroupMemberMetadataValue) -> MemberMetadata:
    classic = body.classic_member_metadata
    return MemberMetadata(
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=body.client_id,
        client_host=body.client_host,
        topic_names=tuple(sorted(set(body.subscribed_topic_names))),
        topic_pattern=body.subscribed_topic_regex,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        server_assignor=body.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )


def _partitions(topics: Iterable[ConsumerGroupCurrentPartitions], epoch: int) -> Partitions:
    """Return partitions with their epochs: the member's own where none are said, or another number of them."""
    found = {}
    epoch = max(0, epoch)  # It may have left.
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = (epoch,) * len(topic.partitions)
        if topic.partitions:
            found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found
