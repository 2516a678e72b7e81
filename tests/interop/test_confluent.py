"""librdkafka, through confluent-kafka, works as in an ordinary service, from first topic to last."""

from collections.abc import Collection
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from . import workload
from .conftest import NewTopicMaker, wait_for_leaders
from .workload import Place, Received, Sample

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PARTITIONS_OF_TWO = {"range": (2, 4), "roundrobin": (3, 3), "cooperative-sticky": (3, 3)}


class Client:
    """A librdkafka consumer as a member of a group."""

    def __init__(self, bootstrap: str, group_id: str, topics: Collection[str], **settings: Any) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": workload.HEARTBEAT_MS,
                "session.timeout.ms": workload.SESSION_MS,
                "fetch.wait.max.ms": 100,
            }
            | {key.replace("_", "."): value for key, value in settings.items()}
        )
        self._consumer.subscribe(list(topics))

    def poll(self, timeout_s: float) -> list[Received]:
        messages = self._consumer.consume(500, timeout_s)
        for message in messages:
            assert message.error() is None, message.error()
        return [workload.received(message) for message in messages]

    def assignment(self) -> frozenset[Place]:
        return frozenset((part.topic, part.partition) for part in self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Sender:
    """An idempotent producer whose `send` returns when everything is acknowledged."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._failures: list[str] = []
        self._offsets: list[int] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "on_delivery": self._delivered}
            | {key.replace("_", "."): value for key, value in settings.items()}
        )

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self._failures.append(str(error))
        else:
            self._offsets.append(message.offset())

    def send(self, places: Collection[Place], *samples: Sample, timestamps_ms: Collection[int] = ()) -> list[int]:
        """Send each sample to each partition and return the offsets that were reported."""
        times = list(timestamps_ms) or [0] * len(samples)
        self._offsets.clear()
        for topic, partition in places:
            for (key, value, headers), timestamp_ms in zip(samples, times, strict=True):
                more = {"timestamp": timestamp_ms} if timestamp_ms else {}
                self._producer.produce(topic, value, key, partition, headers=list(headers), **more)
        assert self._producer.flush(workload.WAIT_LIMIT_S) == 0
        assert not self._failures
        return list(self._offsets)

    def send_value(self, places: Collection[Place], value: bytes) -> None:
        self.send(places, Sample(None, value))


@pytest.fixture(scope="module")
def sender(bootstrap: str) -> Sender:
    return Sender(bootstrap, linger_ms=0)


@pytest.mark.parametrize("compression", workload.COMPRESSIONS)
def test_every_kind_of_record_comes_back(bootstrap: str, codec_topic: str, compression: str) -> None:
    place = (codec_topic, workload.COMPRESSIONS.index(compression))
    samples = (*workload.SAMPLES, workload.NEITHER, workload.NULL_HEADER)
    sender = Sender(bootstrap, compression_type=compression, message_max_bytes=workload.BATCH_BYTES_MAX)
    assert sender.send([place], *samples) == list(range(len(samples)))
    found = workload.read_back(bootstrap, place, len(samples))
    assert [record.sample for record in found] == list(samples)
    assert [record.offset for record in found] == list(range(len(samples)))


@pytest.mark.parametrize("strategy", sorted(PARTITIONS_OF_TWO))
def test_two_members_share_and_hand_over(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str, strategy: str
) -> None:
    topics = (new_topic(3), new_topic(3))
    workload.rebalance_between_two(
        partial(Client, bootstrap, name, topics, partition_assignment_strategy=strategy),
        sender.send_value,
        frozenset((topic, partition) for topic in topics for partition in range(3)),
        PARTITIONS_OF_TWO[strategy],
    )


def test_configurations_are_altered_one_by_one_or_all_together(admin: AdminClient, new_topic: NewTopicMaker) -> None:
    name = new_topic()

    def own() -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = admin.describe_configs([resource])[resource].result(20).values()
        named = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name: entry.value for entry in entries if entry.source == named and entry.name != "flush.mode"}

    def alter(*changes: tuple[str, str | None, AlterConfigOpType]) -> None:
        entries = [ConfigEntry(key, value, incremental_operation=what) for key, value, what in changes]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(20)

    alter(("retention.ms", "5000", AlterConfigOpType.SET), ("segment.ms", "60000", AlterConfigOpType.SET))
    alter(("retention.ms", None, AlterConfigOpType.DELETE), ("retention.bytes", "1000", AlterConfigOpType.SET))
    assert own() == {"segment.ms": "60000", "retention.bytes": "1000"}
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        alter(("retention.ms", "-7", AlterConfigOpType.SET))
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_CONFIG
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"retention.ms": "7000"})
    with pytest.deprecated_call():  # The older API, which other clients still speak.
        altered = admin.alter_configs([resource])
    altered[resource].result(20)
    assert own() == {"retention.ms": "7000"}


def test_a_group_begins_again_at_its_commit(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    workload.restart_from_the_commit(partial(Client, bootstrap, name, [topic]), sender.send_value, (topic, 0))


def test_a_group_without_commit_begins_where_it_is_told(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    workload.reset_to_both_ends(
        lambda reset: Client(bootstrap, f"{name}-{reset}", [topic], auto_offset_reset=reset),
        sender.send_value,
        (topic, 0),
    )


def test_a_closing_member_commits_what_it_was_given(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str, admin: AdminClient
) -> None:
    place = (new_topic(), 0)
    sender.send([place], *[Sample(None, b"value")] * 7)
    with workload.Group() as group:
        member = group.add(partial(Client, bootstrap, name, [place[0]], enable_auto_commit=True))
        group.wait_until(lambda: len(member.received) == 7, "all records")
    assert committed(admin, name) == {place: 7}


def test_a_static_member_returns_to_its_partitions(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic(4)
    places = frozenset((topic, partition) for partition in range(4))
    with workload.Group() as group:
        stays = group.add(partial(Client, bootstrap, name, [topic], group_instance_id="stays"))
        leaves = group.add(partial(Client, bootstrap, name, [topic], group_instance_id="leaves"))
        group.wait_until(lambda: len(stays.assignment) == len(leaves.assignment) == 2, "the partitions to be shared")
        of_stays = stays.assignment
        of_leaves = leaves.assignment
        group.leave(leaves)
        returns = group.add(partial(Client, bootstrap, name, [topic], group_instance_id="leaves"))
        group.wait_until(lambda: returns.assignment == of_leaves, "the same partitions")
        sender.send_value(places, b"to both")
        group.wait_until(lambda: len(stays.received) + len(returns.received) == 4, "all records")
        assert {record.place for record in stays.received} == of_stays


def test_records_are_found_by_their_time(bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str) -> None:
    topic = new_topic()
    times = [workload.FIRST_TIMESTAMP_MS + 1000 * k for k in range(10)]
    sender.send([(topic, 0)], *(Sample(None, b"%d" % k) for k in range(10)), timestamps_ms=times)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    try:

        def offset_at(timestamp_ms: int) -> int:
            [found] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=20)
            return int(found.offset)

        assert offset_at(0) == 0
        assert offset_at(times[4]) == 4
        assert offset_at(times[4] + 1) == 5
        assert offset_at(times[9] + 1) == confluent_kafka.OFFSET_END
        consumer.assign([TopicPartition(topic, 0, offset_at(times[6]))])
        message = consumer.poll(workload.WAIT_LIMIT_S)
        assert message is not None
        assert (message.offset(), message.timestamp()) == (6, (confluent_kafka.TIMESTAMP_CREATE_TIME, times[6]))
    finally:
        consumer.close()


def committed(admin: AdminClient, group_id: str) -> dict[Place, int]:
    [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)]).values()
    return {(part.topic, part.partition): part.offset for part in future.result(20).topic_partitions}


def test_topics_are_made_described_grown_and_deleted(
    bootstrap: str, admin: AdminClient, sender: Sender, replicas: int, name: str
) -> None:
    admin.create_topics([NewTopic(name, 2, replicas, config={"max.message.bytes": "2000000"})])[name].result(20)
    wait_for_leaders(admin, name, 2)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.create_topics([NewTopic(name, 2, replicas)])[name].result(20)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    described = admin.describe_topics(confluent_kafka.TopicCollection([name]))[name].result(20)
    assert [len(partition.replicas) for partition in described.partitions] == [replicas, replicas]
    assert not described.is_internal
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(20)
    assert (configs["max.message.bytes"].value, configs["cleanup.policy"].value) == ("2000000", "delete")

    admin.create_partitions([NewPartitions(name, 5)])[name].result(20)
    wait_for_leaders(admin, name, 5)
    assert sender.send([(name, 4)], *[Sample(None, b"value")] * 3) == [0, 1, 2]

    part = TopicPartition(name, 4)
    admin.delete_records([TopicPartition(name, 4, 2)])[part].result(20)
    ends = [
        admin.list_offsets({part: spec})[part].result(20).offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    assert ends == [2, 3]

    admin.delete_topics([name])[name].result(20)
    workload.wait_until(lambda: name not in admin.list_topics(timeout=10).topics, "the topic to be gone")


def test_groups_are_listed_described_reset_and_deleted(
    bootstrap: str, admin: AdminClient, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    place = (new_topic(), 0)
    sender.send([place], *[Sample(None, b"value")] * 6)
    with workload.Group() as group:
        member = group.add(partial(Client, bootstrap, name, [place[0]], client_id="interop-client"))
        group.wait_until(lambda: len(member.received) == 6, "all records")
        group.commit(member)
        described = admin.describe_consumer_groups([name])[name].result(20)
        assert described.state == confluent_kafka.ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        assert [found.client_id for found in described.members] == ["interop-client"]
        assert [(part.topic, part.partition) for part in described.members[0].assignment.topic_partitions] == [place]
        # A group with members is neither reset from outside nor deleted.
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            admin.delete_consumer_groups([name])[name].result(20)
        assert refused.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    listed = {found.group_id: found.state for found in admin.list_consumer_groups().result(20).valid}
    assert listed[name] == confluent_kafka.ConsumerGroupState.EMPTY
    assert committed(admin, name) == {place: 6}

    to = [ConsumerGroupTopicPartitions(name, [TopicPartition(*place, 2)])]
    admin.alter_consumer_group_offsets(to)[name].result(20)
    assert committed(admin, name) == {place: 2}
    with workload.Group() as group:
        member = group.add(partial(Client, bootstrap, name, [place[0]]))
        group.wait_until(lambda: len(member.received) == 4, "what comes after the reset")
        assert [record.offset for record in member.received] == [2, 3, 4, 5]

    admin.delete_consumer_groups([name])[name].result(20)
    assert name not in {found.group_id for found in admin.list_consumer_groups().result(20).valid}
    assert committed(admin, name) == {}
