"""ConsumerGroupDescribe: show members and assignments of groups of KIP-848 that this broker coordinates.

What is committed is shown, and nothing else: partitions that a member has not given up yet are among its own. Topics
that do not exist any more are left out, as in Kafka.
"""

from collections.abc import Iterable

from barnabas_broker.coordinators.groups.consumer.saved import GroupRecords
from barnabas_broker.coordinators.groups.consumer.values import NO_TARGET, MemberAssignment, MemberMetadata
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import distinct
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from . import operations
from .group_routing import ShardFinder

__all__ = ["handle", "refuse"]

PIECE = 20  # members between two looks at the clock
CONSUMER, CLASSIC = 1, 0
NOBODY = MemberAssignment(0, 0)


async def handle(
    broker: BrokerContext, _: Exchange, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group, once; a coordinator that may have been deposed asks first."""
    response = ConsumerGroupDescribeResponse()
    slices = Slices()
    shards = ShardFinder(broker)
    for group_id in await taken(distinct(request.group_ids, str)):
        await slices.yield_if_due()
        if not group_id:
            response.groups.append(_failed(group_id, ErrorCode.INVALID_GROUP_ID))
            continue
        shard = await shards.find(group_id)
        if isinstance(shard, ErrorCode):
            response.groups.append(_failed(group_id, shard))
            continue
        saved = shard.consumers.saved(group_id)
        if shard.is_going_over(group_id):
            text = f"Group {group_id} is being converted."
            response.groups.append(_failed(group_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text))
            continue
        if saved is None:
            which = "not found" if shard.group(group_id) is None else "is not a consumer group"
            text = f"Group {group_id} {which}."
            response.groups.append(_failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text))
            continue
        described = await _described(broker, saved, slices)
        if request.include_authorized_operations:
            described.authorized_operations = operations.OF_GROUPS
        response.groups.append(described)
    return response


def refuse(request: ConsumerGroupDescribeRequest, code: ErrorCode) -> ConsumerGroupDescribeResponse:
    """Answer every group with `code`."""
    return ConsumerGroupDescribeResponse(groups=[_failed(group_id, code) for group_id in request.group_ids])


def _failed(group_id: str, code: ErrorCode, text: str | None = None) -> ConsumerGroupDescribeGroup:
    return ConsumerGroupDescribeGroup(group_id=group_id, error_code=code, error_message=in_words(text))


async def _described(broker: BrokerContext, saved: GroupRecords, slices: Slices) -> ConsumerGroupDescribeGroup:
    described = ConsumerGroupDescribeGroup(
        group_id=saved.group_id,
        group_state=saved.state,
        group_epoch=saved.epoch_number,
        assignment_epoch=saved.target_number,
        assignor_name=saved.preferred_assignor or broker.config.consumer_assignors[0],
    )
    for number, (member_id, metadata) in enumerate(list(saved.members.items()), 1):
        described.members.append(_member(broker, saved, member_id, metadata))
        if not number % PIECE:
            await slices.yield_if_due()
    return described


def _member(
    broker: BrokerContext, saved: GroupRecords, member_id: str, metadata: MemberMetadata
) -> ConsumerGroupDescribeMember:
    now = saved.assignments.get(member_id, NOBODY)
    has = {
        topic_id: [*now.assigned.get(topic_id, ()), *now.revoking.get(topic_id, ())]
        for topic_id in {**now.assigned, **now.revoking}
    }
    return ConsumerGroupDescribeMember(
        member_id=member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=now.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.topic_names,
        subscribed_topic_regex=metadata.topic_pattern or "",  # as Kafka says that there is none
        assignment=_assignment(broker, has.items()),
        target_assignment=_assignment(broker, saved.targets.get(member_id, NO_TARGET).items()),
        member_type=CONSUMER if metadata.classic is None else CLASSIC,
    )


def _assignment(
    broker: BrokerContext, partitions: Iterable[tuple[bytes, Iterable[int]]]
) -> ConsumerGroupDescribeAssignment:
    topics = broker.partitions.topics_by_id
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic_id, topic_name=topics[topic_id].topic.name, partitions=sorted(numbers)
            )
            for topic_id, numbers in sorted(partitions)
            if topic_id in topics
        ]
    )
