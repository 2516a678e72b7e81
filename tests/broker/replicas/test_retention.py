"""Retention on three real brokers: all replicas delete the same, and events say so.

Rounds are held by hand, so that nothing here waits for a timer.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from broker.live.requests.test_administration import offset_at
from broker.live.requests.test_alter_configs import SET, alter
from broker.partition.test_log_start import lead, partition_on, until_equal, wire_to
from broker.wire_client import Wire, batch, offsets_of

from barnabas_broker.node import Node
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Consumer, TopicPartition
from barnabas_clients.protocol.error_codes import ErrorCode

pytestmark = pytest.mark.slow
SEGMENT_BYTES = 64 << 10
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    settings = {
        "log.segment.bytes": SEGMENT_BYTES,
        "auto.leader.rebalance.enable": False,
        "log.retention.hours": 24 * 7,
        "log.retention.ms": 7 * DAY_MS,
        "log.retention.check.interval.ms": 1_000_000_000,
    }
    with RunningCluster(3, settings=settings) as cluster:
        yield cluster


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def produce(wire: Wire, topic: str, count: int, age_ms: int, *, body_bytes: int = 5_000) -> None:
    """Write batches of ten records, twelve batches a segment."""
    for _ in range(count):
        assert wire.produce(topic, batch(10, timestamp=wall_ms() - age_ms, body_bytes=body_bytes)).error_code == 0


async def worked_off(node: Node) -> None:
    """Return when the disk has done what was asked of it: a state, then a journal record, then files that go."""
    for _ in range(8):
        for worker in (node._sync_worker, node._write_worker):
            done = asyncio.get_running_loop().create_future()
            worker.submit(lambda: None, done.set_result)
            await done


async def hold_round(cluster: Cluster, topic: str) -> None:
    """Let every broker look at everything, and wait until all replicas have what came of it."""
    for node in cluster.nodes.values():
        await node.broker.retention.round()
    await until_equal(cluster, topic)
    for node in cluster.nodes.values():
        await worked_off(node)


def files_of(brokers: RunningCluster, node_id: int, topic: str) -> list[str]:
    folders = Path(brokers.cluster.configs[node_id].log_dir).glob(f"replicas/{topic}-0-*")
    return sorted(path.name for folder in folders for path in folder.glob("*.log"))


def test_old_segments_go_on_all_replicas_and_the_rest_is_read_on(brokers: RunningCluster) -> None:
    wire = wire_to(brokers, 1)
    wire.create("aged", factor=3)
    brokers.run(lambda cluster: lead(cluster, 1, "aged"))
    produce(wire, "aged", 30, 8 * DAY_MS)
    produce(wire, "aged", 30, DAY_MS)
    brokers.run(lambda cluster: hold_round(cluster, "aged"))
    start = offset_at(wire, "aged", -2)[0]
    assert 0 < start <= 300, "only whole segments of old records"
    assert wire.fetch("aged", start - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets_of(wire.fetch("aged", start).records)[0] == start
    assert offset_at(wire, "aged", wall_ms() - 2 * DAY_MS)[0] >= 300
    for node_id in (1, 2, 3):
        log = partition_on(brokers.cluster, node_id, "aged").log
        assert (log.log_start_offset, log.base_offset) == (start, start)  # type: ignore[attr-defined]
    events = [event for event in brokers.cluster.nodes[1].events.to_list() if event["kind"] == "records expired"]
    assert [event["group"] for event in events] == ["aged-0"]
    assert f"retention.ms={7 * DAY_MS}; the log starts at {start}" in events[0]["cause"]
    # A second look finds nothing more to do.
    before = partition_on(brokers.cluster, 1, "aged").log.last_index
    brokers.run(lambda cluster: hold_round(cluster, "aged"))
    assert partition_on(brokers.cluster, 1, "aged").log.last_index == before
    wire.close()


@pytest.mark.parametrize("lie", [2**63 - 1, -1, -5])
def test_a_lie_about_time_does_not_end_retention_also_after_a_restart(brokers: RunningCluster, lie: int) -> None:
    wire = wire_to(brokers, 1)
    topic = f"lied{lie}"
    wire.create(topic, factor=3, message_timestamp_after_max_ms=str(2**63 - 1))
    brokers.run(lambda cluster: lead(cluster, 1, topic))
    produce(wire, topic, 15, 8 * DAY_MS)
    for _ in range(26):  # one segment at least has nothing else
        assert wire.produce(topic, batch(10, timestamp=lie, body_bytes=5_000)).error_code == 0
    produce(wire, topic, 15, 8 * DAY_MS)
    produce(wire, topic, 15, 0)
    wire.close()
    brokers.run(lambda cluster: hold_round(cluster, topic))
    wire = wire_to(brokers, 1)
    stopped_at = offset_at(wire, topic, -2)[0]
    assert 0 < stopped_at <= 280, "the file is new"
    wire.close()

    files = list(Path(brokers.cluster.configs[1].log_dir).glob(f"replicas/{topic}-0-*/*.log"))

    async def restart(cluster: Cluster) -> None:
        await cluster.stop(1)
        for path in files:
            os.utime(path, ns=(0, (wall_ms() - 8 * DAY_MS) * 1_000_000))
        await cluster.start(1)
        await cluster.wait_ready()
        await lead(cluster, 1, topic)
        await hold_round(cluster, topic)

    brokers.run(restart)
    wire = wire_to(brokers, 1)
    assert 410 < offset_at(wire, topic, -2)[0] <= 560
    wire.close()


def test_a_topic_that_nobody_writes_to_ends_empty_and_can_be_written_to_again(brokers: RunningCluster) -> None:
    wire = wire_to(brokers, 1)
    for mode in ("fsync", "page-cache"):
        topic = f"idle-{mode}"
        wire.create(topic, factor=3, flush_mode=mode)
        brokers.run(lambda cluster, topic=topic: lead(cluster, 1, topic))  # type: ignore[misc]
        produce(wire, topic, 3, 8 * DAY_MS)
        brokers.run(lambda cluster, topic=topic: hold_round(cluster, topic))  # type: ignore[misc]
        assert (offset_at(wire, topic, -2)[0], offset_at(wire, topic, -1)[0]) == (30, 30)
        for node_id in (1, 2, 3):
            # The rest are control frames.
            assert partition_on(brokers.cluster, node_id, topic).log.size_bytes < 200
        produce(wire, topic, 1, 0)
        assert offsets_of(wire.fetch(topic, 30).records) == [30]
    wire.close()


def test_a_limit_by_size_leaves_at_least_that_much(brokers: RunningCluster) -> None:
    wire = wire_to(brokers, 1)
    limit = 2 * SEGMENT_BYTES
    wire.create("sized", factor=3, retention_bytes=str(limit), retention_ms="-1")
    brokers.run(lambda cluster: lead(cluster, 1, "sized"))
    produce(wire, "sized", 80, 100 * DAY_MS)
    brokers.run(lambda cluster: hold_round(cluster, "sized"))
    size_bytes = partition_on(brokers.cluster, 1, "sized").log.size_bytes
    assert limit <= size_bytes < limit + SEGMENT_BYTES
    wire.close()


def test_what_is_to_be_kept_for_ever_is_kept_until_that_is_altered(brokers: RunningCluster) -> None:
    wire = wire_to(brokers, 1)
    wire.create("kept", factor=3, retention_ms="-1")
    wire.create("unmanaged", factor=3, cleanup_policy="", retention_ms="1")
    for topic in ("kept", "unmanaged"):
        brokers.run(lambda cluster, topic=topic: lead(cluster, 1, topic))  # type: ignore[misc]
        produce(wire, topic, 3, 100 * DAY_MS)
        brokers.run(lambda cluster, topic=topic: hold_round(cluster, topic))  # type: ignore[misc]
        assert offset_at(wire, topic, -2)[0] == 0
    assert alter(wire, "kept", ("retention.ms", SET, str(DAY_MS))) == 0
    brokers.run(lambda cluster: hold_round(cluster, "kept"))
    assert offset_at(wire, "kept", -2)[0] == 30
    wire.close()


def test_a_slowly_written_topic_closes_its_segments_by_age_also_after_a_restart(brokers: RunningCluster) -> None:
    wire = wire_to(brokers, 1)
    wire.create("slow", factor=3, segment_ms=str(DAY_MS), retention_ms=str(3 * DAY_MS))
    brokers.run(lambda cluster: lead(cluster, 1, "slow"))
    produce(wire, "slow", 1, 4 * DAY_MS, body_bytes=70)

    async def restart(cluster: Cluster) -> None:
        await until_equal(cluster, "slow")
        await cluster.stop(2)
        await cluster.start(2)
        await cluster.wait_ready()
        for node in cluster.nodes.values():
            partition = node.partitions.topics["slow"].partitions[0]
            assert partition.settings is not None
            partition.configure(partition.settings._replace(retention_ms=-1))

    brokers.run(restart)
    brokers.run(lambda cluster: hold_round(cluster, "slow"))
    produce(wire, "slow", 1, 0, body_bytes=70)
    brokers.run(lambda cluster: until_equal(cluster, "slow"))
    for node_id in (1, 2, 3):
        spans = partition_on(brokers.cluster, node_id, "slow").log.spans()
        assert [(span.base_offset, span.end_offset) for span in spans] == [(0, 10), (10, 20)], node_id
    wire.close()


def test_a_start_outlives_its_leader_and_the_next_leader_goes_on(brokers: RunningCluster) -> None:
    wire = wire_to(brokers, 1)
    wire.create("handed", factor=3)
    brokers.run(lambda cluster: lead(cluster, 1, "handed"))
    produce(wire, "handed", 40, 8 * DAY_MS)
    produce(wire, "handed", 5, 0)
    wire.close()

    async def expire_and_leave(cluster: Cluster) -> None:
        await until_equal(cluster, "handed")
        await cluster.nodes[1].broker.retention.round()  # proposed, perhaps not committed when the leader goes
        await cluster.stop(1)
        await lead(cluster, 2, "handed")
        await hold_round(cluster, "handed")
        await cluster.start(1)
        await cluster.wait_ready()
        await until_equal(cluster, "handed")

    brokers.run(expire_and_leave)
    wire = wire_to(brokers, 2)
    start = offset_at(wire, "handed", -2)[0]
    assert 240 < start <= 400
    bases = {files_of(brokers, node_id, "handed")[0] for node_id in (2, 3)}
    assert {int(name.split(".")[0]) for name in bases} == {start}
    wire.close()


def test_consumers_find_the_new_start(brokers: RunningCluster) -> None:
    wire = wire_to(brokers, 1)
    wire.create("read", factor=3)
    brokers.run(lambda cluster: lead(cluster, 1, "read"))
    writer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(40):
        age_ms = 8 * DAY_MS if number < 30 else 0
        writer.produce("read", bytes(5_000), str(number), timestamp=wall_ms() - age_ms, partition=0)
        writer.flush(10)
    brokers.run(lambda cluster: hold_round(cluster, "read"))
    start = offset_at(wire, "read", -2)[0]
    assert 0 < start <= 30
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    # Its position is gone, so it is reset.
    reader.assign([confluent_kafka.TopicPartition("read", 0, 0)])
    theirs = [reader.poll(10) for _ in range(40 - start)]
    assert [message.offset() for message in theirs if message is not None] == list(range(start, 40))
    reader.close()

    async def ours() -> list[int]:
        async with Consumer(brokers.bootstrap, auto_offset_reset="earliest") as consumer:
            partition = TopicPartition("read", 0)
            await consumer.assign([partition])
            await consumer.seek(partition, 1)
            found: list[int] = []
            while len(found) < 40 - start:
                found += [record.offset for records in (await consumer.get_many()).values() for record in records]
            return found

    assert asyncio.run(ours()) == list(range(start, 40))
    wire.close()
