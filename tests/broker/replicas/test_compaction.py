"""Compaction on three brokers: replicas keep the latest of each key, and no client notices.

Rounds are held by hand, so that nothing here waits for a timer.
"""

import asyncio
from collections.abc import Iterator

import confluent_kafka
import pytest
from broker.live.requests.test_administration import offset_at
from broker.live.requests.test_alter_configs import SET, alter
from broker.partition.test_log_start import lead, partition_on, until_equal, wire_to

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Consumer, TopicPartition

from .test_retention import worked_off

pytestmark = pytest.mark.slow
SEGMENT_BYTES = 64 << 10
Values = dict[bytes, tuple[int, bytes | None]]


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    settings = {
        "log.segment.bytes": SEGMENT_BYTES,
        "auto.leader.rebalance.enable": False,
        "log.cleaner.backoff.ms": 1_000_000_000,
        "log.cleaner.io.max.bytes.per.second": 1 << 40,
    }
    with RunningCluster(3, settings=settings) as cluster:
        yield cluster


class Writer:
    """An idempotent producer that knows what each key is now, and where."""

    def __init__(self, brokers: RunningCluster, topic: str, **settings: str) -> None:
        self.topic = topic
        self.latest = Values()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, "linger.ms": 5} | settings
        )

    def write(self, first: int, count: int, keys: int, *, tombstones: bool = False) -> None:
        for number in range(first, first + count):
            key = f"key {number % keys}".encode()
            value = None if tombstones and number % 5 == 0 else f"{number}".encode().ljust(1_000, b".")
            self._producer.produce(self.topic, value, key, partition=0, on_delivery=self._delivered)
            if number % 20 == 19:
                self._producer.flush(20)
        assert self._producer.flush(20) == 0

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        self.latest[message.key()] = (message.offset(), message.value())


async def hold_round(cluster: Cluster) -> None:
    """Close the newest segment of every partition and compact, on every broker, until the old files are gone."""
    for node in cluster.nodes.values():
        for partition in node.partitions:
            if partition.settings is not None and partition.settings.is_compacted:
                partition.log.roll()
        await node.broker.compaction.round()
        await worked_off(node)


def read_by_librdkafka(brokers: RunningCluster, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": "g", "enable.partition.eof": True, "check.crcs": True}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes | None]] = []
    while True:
        message = reader.poll(20)
        assert message is not None, "neither a record nor the end"
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            reader.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


def read_by_us(brokers: RunningCluster, topic: str, end_offset: int) -> list[tuple[int, bytes, bytes | None]]:
    async def read() -> list[tuple[int, bytes, bytes | None]]:
        async with Consumer(brokers.bootstrap, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            found: list[tuple[int, bytes, bytes | None]] = []
            while not found or found[-1][0] < end_offset - 1:
                for records in (await consumer.get_many()).values():
                    found += [(one.offset, one.key or b"", one.value) for one in records]
            return found

    return asyncio.run(asyncio.wait_for(read(), 20))


def held(latest: Values) -> list[tuple[int, bytes, bytes | None]]:
    return sorted((offset, key, value) for key, (offset, value) in latest.items())


@pytest.mark.parametrize(("mode", "compression"), [("fsync", "none"), ("page-cache", "zstd")])
def test_all_replicas_keep_the_latest_of_each_key_and_readers_find_it(
    brokers: RunningCluster, mode: str, compression: str
) -> None:
    topic = f"compacted-{mode}-{compression}"
    wire = wire_to(brokers, 1)
    wire.create(topic, factor=3, flush_mode=mode, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    brokers.run(lambda cluster: lead(cluster, 1, topic))
    writer = Writer(brokers, topic, **{"compression.type": compression})
    writer.write(0, 600, 40, tombstones=True)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    before = partition_on(brokers.cluster, 1, topic).log.size_bytes
    brokers.run(hold_round)
    end_offset = offset_at(wire, topic, -1)[0]
    assert end_offset == 600
    assert read_by_librdkafka(brokers, topic) == read_by_us(brokers, topic, 600) == held(writer.latest)
    for node_id in (1, 2, 3):
        assert partition_on(brokers.cluster, node_id, topic).log.size_bytes < before * 0.6
    kinds = [event["kind"] for event in brokers.cluster.nodes[2].events.to_list() if event["group"] == f"{topic}-0"]
    assert "log compacted" in kinds
    # The producer's sequences go on, and so does compaction, under another leader.
    brokers.run(lambda cluster: lead(cluster, 2, topic))
    assert read_by_librdkafka(brokers, topic) == held(writer.latest)
    writer.write(600, 100, 50)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    brokers.run(hold_round)
    assert read_by_librdkafka(brokers, topic) == read_by_us(brokers, topic, 700) == held(writer.latest)
    wire.close()
    wire = wire_to(brokers, 2)
    assert offset_at(wire, topic, -2)[0] == 0
    wire.close()


def test_a_broker_that_was_away_and_one_that_restarts_agree_with_the_others(brokers: RunningCluster) -> None:
    topic = "away"
    wire = wire_to(brokers, 1)
    wire.create(topic, factor=3, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    brokers.run(lambda cluster: lead(cluster, 1, topic))
    writer = Writer(brokers, topic)
    writer.write(0, 200, 30)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    brokers.run(lambda cluster: cluster.stop(3))
    writer.write(200, 400, 30)
    brokers.run(hold_round)

    async def come_back(cluster: Cluster) -> None:
        await cluster.start(3)
        await cluster.wait_ready()
        await until_equal(cluster, topic)
        await lead(cluster, 3, topic)

    brokers.run(come_back)
    found = read_by_librdkafka(brokers, topic)
    assert {key: (offset, value) for offset, key, value in found} == writer.latest
    writer.write(600, 50, 30)

    async def restart(cluster: Cluster) -> None:
        await until_equal(cluster, topic)
        await hold_round(cluster)
        for node_id in (1, 3):
            await cluster.stop(node_id)
            await cluster.start(node_id)
            await cluster.wait_ready()
        await until_equal(cluster, topic)

    brokers.run(restart)
    for node_id in (1, 2, 3):
        brokers.run(lambda cluster, node_id=node_id: lead(cluster, node_id, topic))  # type: ignore[misc]
        assert read_by_librdkafka(brokers, topic) == held(writer.latest), node_id
    wire.close()


def test_a_topic_that_was_not_compacted_becomes_one_and_can_be_deleted_by_age_too(brokers: RunningCluster) -> None:
    topic = "altered"
    wire = wire_to(brokers, 1)
    wire.create(topic, factor=3)
    brokers.run(lambda cluster: lead(cluster, 1, topic))
    writer = Writer(brokers, topic)
    writer.write(0, 200, 10)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    brokers.run(hold_round)
    assert len(read_by_librdkafka(brokers, topic)) == 200
    assert alter(wire, topic, ("cleanup.policy", SET, "compact,delete"), ("retention.ms", SET, "0")) == 0
    brokers.run(hold_round)
    assert read_by_librdkafka(brokers, topic) == held(writer.latest)

    async def expire(cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            await node.broker.retention.round()
        await until_equal(cluster, topic)

    brokers.run(expire)
    assert (offset_at(wire, topic, -2)[0], offset_at(wire, topic, -1)[0]) == (200, 200)
    wire.close()
