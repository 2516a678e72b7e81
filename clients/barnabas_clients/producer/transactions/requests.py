"""Builds the requests of a transactional producer, each with the versions that say what is meant. Pure.

A version that lacks a field leaves it out without a word. Where that would say something else, the version is not among
those of the request: an InitProducerId without the present id would fence whoever has taken over, offsets without their
member would be believed although the group has gone on. The versions also tell the two protocols apart
(state_machine.py).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas_clients.groups.offsets_to_send import GroupMember
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.wire.schema import Message

__all__ = [
    "NO_ID",
    "GroupMember",
    "Owner",
    "Request",
    "add_group",
    "add_partitions",
    "end",
    "initialise",
    "produce_versions",
    "store_offsets",
]

NO_ID: Final = -1


class Owner(NamedTuple):
    """The producer of a transaction; id and epoch are -1 before it has got any."""

    transactional_id: str
    producer_id: int = NO_ID
    epoch: int = NO_ID


class Request(NamedTuple):
    """A request to the coordinator of `group_id`; None: of the transactional id. Only `versions` of it will do."""

    message: Message
    versions: range
    group_id: str | None = None


def produce_versions(*, is_second: bool) -> range:
    """Return the versions of Produce that belong to the protocol: from 12 on it adds its partitions by itself."""
    return range(12, 14) if is_second else range(3, 12)


def initialise(owner: Owner, timeout_ms: int, *, is_prepared: bool = False) -> Request:
    """Return the request for a producer id; of an owner that has one, for the next epoch.

    `is_prepared`: no transaction of it times out, where coordinators offer that (KIP-939); others leave it out.
    """
    message = InitProducerIdRequest(
        transactional_id=owner.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        enable_2pc=is_prepared,
    )
    since = 0 if owner.producer_id == NO_ID else 3
    return Request(message, range(since, 7))


def add_partitions(owner: Owner, partitions: Iterable[TopicPartition]) -> Request:
    """Return the request of the first protocol that adds partitions."""
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in _by_topic(partitions).items()]
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=owner.transactional_id,
        v3_and_below_producer_id=owner.producer_id,
        v3_and_below_producer_epoch=owner.epoch,
        v3_and_below_topics=topics,
    )
    return Request(message, range(4))


def add_group(owner: Owner, group_id: str) -> Request:
    """Return the request of the first protocol that adds a group."""
    message = AddOffsetsToTxnRequest(
        transactional_id=owner.transactional_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        group_id=group_id,
    )
    return Request(message, range(5))


def store_offsets(
    owner: Owner, member: GroupMember, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, is_second: bool
) -> Request:
    """Return the request that stores offsets; in the second protocol it adds the group as well."""
    message = TxnOffsetCommitRequest(
        transactional_id=owner.transactional_id,
        group_id=member.group_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic, partitions=[_row(number, offsets[TopicPartition(topic, number)]) for number in numbers]
            )
            for topic, numbers in _by_topic(offsets).items()
        ],
    )
    if is_second:
        return Request(message, range(5, 6), member.group_id)
    since = 0 if member == GroupMember(member.group_id) else 3
    return Request(message, range(since, 5), member.group_id)


def end(owner: Owner, *, committed: bool, is_second: bool) -> Request:
    """Return the request that ends a transaction; in the second protocol its answer has the next epoch."""
    message = EndTxnRequest(
        transactional_id=owner.transactional_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        committed=committed,
    )
    return Request(message, range(5, 6) if is_second else range(5))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _row(number: int, position: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        committed_metadata=position.metadata,
    )
