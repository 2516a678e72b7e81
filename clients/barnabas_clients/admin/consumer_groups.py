"""Describes the groups of KIP-848, whose coordinator assigns, in the form of all groups."""

from collections.abc import Sequence
from typing import Final

from barnabas_clients.errors import UnsupportedVersionError
from barnabas_clients.groups.coordinator import Coordinator
from barnabas_clients.protocol.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas_clients.topic_partition import TopicPartition

from .values import GroupDescription, GroupMember

__all__ = ["CONSUMER_TYPE", "described_consumers", "find_consumers"]

CONSUMER_TYPE = "consumer"
"""The type of these groups, and the protocol type of theirs and of classic ones that consumers form."""
MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}


async def find_consumers(coordinator: Coordinator, group_id: str, deadline: float) -> GroupDescription | None:
    """Ask once for a group of this kind; None: the broker has no such groups.

    Raises:
        GroupIdNotFoundError: there is none of this name. KafkaError, ClientError: as `Coordinator.ask` and `judge`.
    """
    try:
        response = await coordinator.ask(ConsumerGroupDescribeRequest(group_ids=(group_id,)), deadline)
    except UnsupportedVersionError:
        return None
    for row in response.groups:
        coordinator.judge(row.error_code, row.error_message or group_id)
        return _described(row, coordinator.node_id)
    return None


def described_consumers(response: ConsumerGroupDescribeResponse, node_id: int) -> dict[str, GroupDescription]:
    """Return the groups of an answer that there are."""
    return {row.group_id: _described(row, node_id) for row in response.groups if not row.error_code}


def _described(row: ConsumerGroupDescribeGroup, node_id: int | None) -> GroupDescription:
    return GroupDescription(
        group_id=row.group_id,
        state=row.group_state,
        protocol_type=CONSUMER_TYPE,
        assignor=row.assignor_name,
        coordinator_id=-1 if node_id is None else node_id,
        members=_members(row.members),
        type=CONSUMER_TYPE,
        epoch=row.group_epoch,
        assignment_epoch=row.assignment_epoch,
    )


def _members(rows: Sequence[ConsumerGroupDescribeMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(map(_member, rows), key=lambda member: member.member_id))


def _member(row: ConsumerGroupDescribeMember) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        group_instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        assignment=_partitions(row.assignment),
        type=MEMBER_TYPES.get(row.member_type, ""),
        rack=row.rack_id,
        epoch=row.member_epoch,
        target=_partitions(row.target_assignment),
        topics=frozenset(row.subscribed_topic_names),
        server_pattern=row.subscribed_topic_regex or None,
    )


def _partitions(assignment: ConsumerGroupDescribeAssignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )
