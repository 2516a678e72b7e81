"""`Admin` against real brokers: topics, partitions, records, configurations."""

import asyncio
import uuid

import pytest
from cancellation import sweep

from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import ConfigResource, NewTopic, OffsetSpec
from barnabas_clients.admin.values import ConfigSource
from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.protocol.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from .conftest import TIMEOUT_S, MakeTopic
from .filling import fill


async def describe_until_refused(admin: Admin, name: str) -> None:
    """Ask until the answer is a refusal: in a larger Apache Kafka another broker may know a topic a moment longer."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            await admin.describe_topics([name])


async def test_a_topic_is_created_described_listed_and_deleted(bootstrap: str) -> None:
    name = f"live-admin-{uuid.uuid4().hex[:12]}"
    async with Admin(bootstrap) as admin:
        created = await admin.create_topic(name, 3, configs={"max.message.bytes": "2000000"})
        assert sorted(created.partitions) == [0, 1, 2]
        assert all(view.leader_id >= 0 for view in created.partitions.values())
        with pytest.raises(TopicAlreadyExistsError, match=name):
            await admin.create_topic(name)
        (described,) = await admin.describe_topics([name])
        assert described.topic_id == created.topic_id
        assert name in [topic.name for topic in await admin.list_topics()]
        await admin.delete_topics([name])
        with pytest.raises(UnknownTopicOrPartitionError, match=name):
            await describe_until_refused(admin, name)
        with pytest.raises(UnknownTopicOrPartitionError, match=name):
            await admin.delete_topics([name])


async def test_validation_creates_nothing(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("live-admin-valid", 2)], validate_only=True)
        assert "live-admin-valid" not in [topic.name for topic in await admin.list_topics()]
        with pytest.raises(InvalidReplicationFactorError):
            await admin.create_topics([NewTopic("live-admin-valid", 1, 9999)], validate_only=True)


async def test_a_topic_gets_more_partitions_and_never_fewer(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic(2)
    async with Admin(bootstrap) as admin:
        grown = await admin.create_partitions(name, 5)
        assert sorted(grown.partitions) == [0, 1, 2, 3, 4]
        assert all(view.leader_id >= 0 for view in grown.partitions.values())
        for count in (5, 3):
            with pytest.raises(InvalidPartitionsError):
                await admin.create_partitions(name, count)
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.create_partitions("live-nowhere", 3)


async def test_records_are_deleted_up_to_an_offset_or_to_the_end(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic(2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    await fill(bootstrap, {first: 10, second: 4})
    async with Admin(bootstrap) as admin:
        assert await admin.delete_records({first: 3, second: -1}) == {first: 3, second: 4}
        assert await admin.delete_records({first: 1}) == {first: 3}
        found = await admin.list_offsets({first: OffsetSpec.EARLIEST, second: OffsetSpec.EARLIEST})
        assert {key: listed.offset for key, listed in found.items()} == {first: 3, second: 4}
        with pytest.raises(OffsetOutOfRangeError, match=f"{name}-0: before 11"):
            await admin.delete_records({first: 11})


async def test_offsets_are_found_by_time(bootstrap: str, make_topic: MakeTopic) -> None:
    partition = TopicPartition(await make_topic(), 0)
    await fill(bootstrap, {partition: 10}, first_timestamp_ms=1_700_000_000_000, step_ms=1000)
    async with Admin(bootstrap) as admin:
        for timestamp_ms, offset in ((0, 0), (1_700_000_003_000, 3), (1_700_000_003_001, 4), (1_800_000_000_000, -1)):
            assert (await admin.list_offsets({partition: timestamp_ms}))[partition].offset == offset
        latest = (await admin.list_offsets({partition: OffsetSpec.MAX_TIMESTAMP}))[partition]
        assert latest.timestamp_ms == 1_700_000_009_000


async def test_what_does_not_exist_is_refused_long_before_the_deadline(bootstrap: str, make_topic: MakeTopic) -> None:
    nowhere = TopicPartition("live-nowhere", 0)
    name = await make_topic()
    async with Admin(bootstrap, timeout_s=3600) as admin:
        for missing in (nowhere, TopicPartition(name, 7)):
            with pytest.raises(UnknownTopicOrPartitionError, match=missing.topic):
                await admin.list_offsets({missing: OffsetSpec.LATEST})
            with pytest.raises(UnknownTopicOrPartitionError, match=missing.topic):
                await admin.delete_records({missing: 0})
        with pytest.raises(UnknownTopicOrPartitionError, match="live-nowhere"):
            await admin.describe_configs([ConfigResource.topic("live-nowhere")])


async def test_configurations_say_where_they_come_from(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    async with Admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        topic = ConfigResource.topic(name)
        broker = ConfigResource.broker(cluster.brokers[-1].node_id)
        found = await admin.describe_configs([topic, broker])
        assert list(found) == [topic, broker]
        assert found[topic]["min.insync.replicas"].value == "1"
        assert found[topic]["cleanup.policy"].is_default
        assert found[broker]["node.id"].value == broker.name
        assert not found[broker]["node.id"].is_default
        assert found[broker]["node.id"].read_only


async def test_brokers_and_groups_are_configured_while_they_run(bootstrap: str) -> None:
    name = "log.cleaner.io.max.bytes.per.second"
    session = "consumer.session.timeout.ms"
    every, group = ConfigResource.all_brokers(), ConfigResource.group("live-configured")
    async with Admin(bootstrap) as admin:
        broker = ConfigResource.broker((await admin.describe_cluster()).brokers[0].node_id)
        await admin.alter_configs(every, {name: 7_000_000})
        await admin.alter_configs(broker, {name: 6_000_000})
        await admin.alter_configs(group, {session: 50_000})
        found = await admin.describe_configs([every, broker, group], include_documentation=True)
        assert (found[every][name].value, found[every][name].source) == ("7000000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert (found[broker][name].value, found[broker][name].source) == ("6000000", ConfigSource.DYNAMIC_BROKER)
        assert not found[broker][name].read_only
        assert (found[group][session].value, found[group][session].source) == ("50000", ConfigSource.GROUP)
        with pytest.raises(InvalidConfigError, match="between"):
            await admin.alter_configs(group, {session: 1})
        for resource, taken in ((every, name), (broker, name), (group, session)):
            await admin.alter_configs(resource, {taken: None})
        assert name not in (await admin.describe_configs([every]))[every]


async def test_configurations_can_be_altered_and_taken_back(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    resource = ConfigResource.topic(name)
    async with Admin(bootstrap) as admin:
        await admin.alter_configs(resource, {"retention.ms": "5000", "segment.ms": "10000"})
        await admin.alter_configs(resource, {"retention.ms": None, "retention.bytes": "1000"})
        await admin.alter_configs(resource, {"retention.bytes": "1"}, validate_only=True)
        found = (await admin.describe_configs([resource]))[resource]
        own = {entry.name: entry.value for entry in found.values() if entry.source is ConfigSource.TOPIC}
        assert own | {"segment.ms": "10000", "retention.bytes": "1000"} == own
        assert "retention.ms" not in own
        assert not found["retention.ms"].read_only
        with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
            await admin.alter_configs(resource, {"retention.ms": "-7"})
        with pytest.raises(UnknownTopicOrPartitionError, match="live-nowhere"):
            await admin.alter_configs(ConfigResource.topic("live-nowhere"), {"retention.ms": "1"})


async def test_a_cluster_names_its_brokers(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        found = await admin.describe_cluster()
        assert found.cluster_id
        assert found.controller_id in {broker.node_id for broker in found.brokers}


async def test_every_call_ends_at_its_deadline_and_says_what_it_waited_for(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        with pytest.raises(DeadlineExceededError, match="listing groups"):
            await admin.list_groups(timeout_s=0.0)
        with pytest.raises(DeadlineExceededError, match="of group g"):
            await admin.describe_groups(["g"], timeout_s=0.0)
        with pytest.raises(DeadlineExceededError):
            await admin.list_topics(timeout_s=0.0)


async def test_nobody_listening_is_told_at_the_deadline() -> None:
    with pytest.raises(DeadlineExceededError, match=r"connecting: .*127\.0\.0\.1:1"):
        async with Admin("127.0.0.1:1", timeout_s=0.1):
            raise AssertionError("entered")


async def test_a_closed_client_says_so(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        pass
    with pytest.raises(ClientClosedError):
        await admin.list_topics()
    await admin.close()


async def test_calls_can_be_cancelled_anywhere(bootstrap: str, make_topic: MakeTopic) -> None:
    partition = TopicPartition(await make_topic(), 0)
    await fill(bootstrap, {partition: 3})
    async with Admin(bootstrap) as admin:

        async def usable() -> None:
            assert (await admin.list_offsets({partition: OffsetSpec.LATEST}))[partition].offset == 3

        for call in (
            lambda: admin.list_offsets({partition: OffsetSpec.EARLIEST}),
            lambda: admin.delete_records({partition: 1}),
            lambda: admin.describe_configs([ConfigResource.topic(partition.topic)]),
            admin.describe_cluster,
            lambda: admin.describe_topics([partition.topic]),
            lambda: admin.create_topics([NewTopic(partition.topic)], validate_only=False),
        ):

            async def run(call=call) -> None:  # type: ignore[no-untyped-def]
                try:
                    await call()
                except TopicAlreadyExistsError:
                    return

            assert await sweep(run, usable) > 0
