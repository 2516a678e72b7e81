"""Our own Admin sees groups of KIP-848 as it sees others."""

import asyncio

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients import Admin, OffsetAndMetadata, TopicPartition
from barnabas_clients.protocol.errors import GroupIdNotFoundError, NonEmptyGroupError

from .consumer_client import ConsumerClient


def test_a_group_is_listed_described_surveyed_and_deleted(brokers: RunningCluster, topic: str) -> None:
    one = ConsumerClient(brokers.bootstrap, topic, topic, member_id="a", instance_id="i")
    one.beat_surely()
    one.commit_surely(topic, {0: 0})
    place = TopicPartition(topic, 0)

    async def look() -> None:
        async with Admin(brokers.bootstrap) as admin:
            (listed,) = [row for row in await admin.list_groups() if row.group_id == topic]
            assert (listed.type, listed.state, listed.protocol_type) == ("consumer", "Stable", "consumer")
            described = (await admin.describe_groups([topic]))[topic]
            assert (described.state, described.assignor) == ("Stable", "uniform")
            assert described.coordinator_id == one.coordinator_id
            (member,) = described.members
            assert (member.member_id, member.group_instance_id) == ("a", "i")
            assert member.assignment == frozenset(TopicPartition(topic, number) for number in range(4))
            lag = await admin.group_lag(topic)
            assert lag[place].member == member
            survey = (await admin.survey_groups([listed])).groups[topic]
            assert survey.description == described
            with pytest.raises(NonEmptyGroupError):
                await admin.alter_group_offsets(topic, {place: OffsetAndMetadata(0)})
            await asyncio.to_thread(one.leave_group)
            assert (await admin.describe_groups([topic]))[topic].state == "Empty"
            await admin.delete_groups([topic])
            with pytest.raises(GroupIdNotFoundError, match=topic):
                await admin.describe_groups([topic])

    asyncio.run(look())
    one.lose()
