"""kafka-python 3 works, which uses flexible versions and reads answers with strict schemas."""

import warnings
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from . import workload
from .conftest import NewTopicMaker
from .workload import Place, Received, Sample

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that newer Pythons discourage
    import kafka
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec, OffsetTimestamp
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

STRATEGIES = {
    "range": (RangePartitionAssignor, (2, 4)),
    "roundrobin": (RoundRobinPartitionAssignor, (3, 3)),
    "sticky": (StickyPartitionAssignor, (3, 3)),
    "cooperative-sticky": (CooperativeStickyAssignor, (3, 3)),
}


class Client:
    """A kafka-python consumer as a member of a group."""

    def __init__(self, bootstrap: str, group_id: str, topics: Collection[str], **settings: Any) -> None:
        self._consumer = kafka.KafkaConsumer(
            *topics,
            **{
                "bootstrap_servers": bootstrap.split(","),
                "group_id": group_id,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "heartbeat_interval_ms": workload.HEARTBEAT_MS,
                "session_timeout_ms": workload.SESSION_MS,
                "fetch_max_wait_ms": 100,
            }
            | settings,
        )

    def poll(self, timeout_s: float) -> list[Received]:
        found = self._consumer.poll(int(timeout_s * 1000))
        return [received(record) for records in found.values() for record in records]

    def assignment(self) -> frozenset[Place]:
        return frozenset((part.topic, part.partition) for part in self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


def received(record: Any) -> Received:
    return Received(
        (record.topic, record.partition),
        record.offset,
        record.timestamp,
        Sample(record.key, record.value, tuple(record.headers)),
    )


class Sender:
    """A kafka-python producer, idempotent as it is by default, whose `send` waits for the acknowledgements."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=True, **settings
        )

    def send(self, places: Collection[Place], *samples: Sample, timestamps_ms: Collection[int] = ()) -> list[int]:
        times: list[int | None] = [*timestamps_ms] or [None] * len(samples)
        futures = [
            self._producer.send(topic, value, key, list(headers), partition, timestamp_ms)
            for topic, partition in places
            for (key, value, headers), timestamp_ms in zip(samples, times, strict=True)
        ]
        return [int(future.get(workload.WAIT_LIMIT_S).offset) for future in futures]

    def send_value(self, places: Collection[Place], value: bytes) -> None:
        self.send(places, Sample(None, value))

    def close(self) -> None:
        self._producer.close(workload.WAIT_LIMIT_S)


@pytest.fixture(scope="module")
def sender(bootstrap: str) -> Iterator[Sender]:
    producer = Sender(bootstrap)
    yield producer
    producer.close()


@pytest.fixture(scope="module")
def own_admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    yield client
    client.close()


@pytest.mark.parametrize("compression", workload.COMPRESSIONS)
def test_every_kind_of_record_comes_back(bootstrap: str, codec_topic: str, compression: str) -> None:
    place = (codec_topic, workload.COMPRESSIONS.index(compression))
    samples = workload.SAMPLES
    chosen = None if compression == "none" else compression
    settings = {"compression_type": chosen, "max_request_size": workload.BATCH_BYTES_MAX}
    with closing(Sender(bootstrap, **settings)) as sender:
        assert sender.send([place], *samples) == list(range(len(samples)))
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=None)
    part = kafka.TopicPartition(*place)
    consumer.assign([part])
    consumer.seek_to_beginning(part)
    found: list[Received] = []
    while len(found) < len(samples):
        records = consumer.poll(int(workload.WAIT_LIMIT_S * 1000)).get(part, [])
        assert records, f"only {len(found)} came"
        found += [received(record) for record in records]
    consumer.close()
    assert [record.sample for record in found] == list(samples)
    assert [record.sample for record in workload.read_back(bootstrap, place, len(samples))] == list(samples)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_two_members_share_and_hand_over(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str, strategy: str
) -> None:
    topics = (new_topic(3), new_topic(3))
    assignor, sizes = STRATEGIES[strategy]
    workload.rebalance_between_two(
        partial(Client, bootstrap, name, topics, partition_assignment_strategy=[assignor]),
        sender.send_value,
        frozenset((topic, partition) for topic in topics for partition in range(3)),
        sizes,
    )


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


def test_records_are_found_by_their_time(bootstrap: str, sender: Sender, new_topic: NewTopicMaker) -> None:
    topic = new_topic()
    times = [workload.FIRST_TIMESTAMP_MS + 1000 * k for k in range(10)]
    sender.send([(topic, 0)], *(Sample(None, b"%d" % k) for k in range(10)), timestamps_ms=times)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=None)
    part = kafka.TopicPartition(topic, 0)
    consumer.assign([part])
    assert consumer.offsets_for_times({part: 0})[part].offset == 0
    assert consumer.offsets_for_times({part: times[4] + 1})[part].offset == 5
    assert consumer.offsets_for_times({part: times[9] + 1})[part] is None
    consumer.seek(part, consumer.offsets_for_times({part: times[6]})[part].offset)
    [first, *_] = consumer.poll(int(workload.WAIT_LIMIT_S * 1000))[part]
    consumer.close()
    assert (first.offset, first.timestamp) == (6, times[6])


@pytest.mark.parametrize("incremental", [True, False])
def test_configurations_are_altered(own_admin: Any, replicas: int, name: str, incremental: bool) -> None:
    own_admin.create_topics({name: {"num_partitions": 1, "replication_factor": replicas}}, wait_for_metadata=True)

    def configs() -> dict[str, Any]:
        found = own_admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all")
        answer: dict[str, Any] = found["topic"][name]
        return answer

    before = configs()["segment.ms"]["value"]
    wanted = {"retention.ms": "5000", "segment.ms": "60000"}
    own_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, wanted)], incremental=incremental)
    assert {key: configs()[key]["value"] for key in wanted} == wanted
    if incremental:
        change = {"segment.ms": ("DELETE", None)}
        own_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, change)], incremental=True)
        assert configs()["segment.ms"]["value"] == before
    own_admin.delete_topics([name])


def test_topics_are_made_described_grown_and_deleted(own_admin: Any, sender: Sender, replicas: int, name: str) -> None:
    wanted = {"num_partitions": 2, "replication_factor": replicas, "configs": {"max.message.bytes": "2000000"}}
    own_admin.create_topics({name: wanted}, wait_for_metadata=True)
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        own_admin.create_topics({name: wanted})
    [described] = own_admin.describe_topics([name])
    assert [len(partition["replica_nodes"]) for partition in described["partitions"]] == [replicas, replicas]
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    configs = own_admin.describe_configs([resource], config_filter="all")["topic"][name]
    assert (configs["max.message.bytes"]["value"], configs["cleanup.policy"]["value"]) == ("2000000", "delete")

    own_admin.create_partitions({name: 5})
    own_admin.wait_for_topics([name])
    assert sender.send([(name, 1)], *[Sample(None, b"value")] * 3) == [0, 1, 2]
    part = kafka.TopicPartition(name, 1)
    assert own_admin.delete_records({part: 2})[part]["low_watermark"] == 2
    ends = [
        own_admin.list_partition_offsets({part: spec})[part].offset for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    ]
    assert ends == [2, 3]
    own_admin.delete_topics([name])
    workload.wait_until(lambda: name not in own_admin.list_topics(), "the topic to be gone")


def test_groups_are_listed_described_reset_and_deleted(
    bootstrap: str, own_admin: Any, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    place = (new_topic(), 0)
    part = kafka.TopicPartition(*place)
    times = [workload.FIRST_TIMESTAMP_MS + 1000 * k for k in range(6)]
    sender.send([place], *[Sample(None, b"value")] * 6, timestamps_ms=times)

    def committed() -> dict[Any, int]:
        return {part: found.offset for part, found in own_admin.list_group_offsets(name)[name].items()}

    with workload.Group() as group:
        member = group.add(partial(Client, bootstrap, name, [place[0]], client_id="interop-client"))
        group.wait_until(lambda: len(member.received) == 6, "all records")
        group.commit(member)
        described = own_admin.describe_groups([name])[name]
        assert described["group_state"] == "Stable"
        assert [found["client_id"] for found in described["members"]] == ["interop-client"]
        assert own_admin.delete_groups([name]) == {name: "NonEmptyGroupError"}
    assert {found["group_id"]: found["group_state"] for found in own_admin.list_groups()}[name] == "Empty"
    assert name in {found["group_id"] for found in own_admin.list_groups(states_filter=["Empty"])}
    assert name not in {found["group_id"] for found in own_admin.list_groups(states_filter=["Stable"])}
    assert committed() == {part: 6}

    for target, offset in ((OffsetSpec.EARLIEST, 0), (OffsetTimestamp(times[4]), 4), (OffsetSpec.LATEST, 6), (2, 2)):
        assert own_admin.reset_group_offsets(name, {part: target})[part]["offset"] == offset
        assert committed() == {part: offset}
    with workload.Group() as group:
        member = group.add(partial(Client, bootstrap, name, [place[0]]))
        group.wait_until(lambda: len(member.received) == 4, "what comes after the reset")
        assert [record.offset for record in member.received] == [2, 3, 4, 5]

    own_admin.delete_group_offsets(name, [part])
    assert committed() == {}
    own_admin.delete_groups([name])
    assert name not in {found["group_id"] for found in own_admin.list_groups()}
