"""A log starts later on three brokers; one that was away can still lead."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.bad_disks import until
from broker.live.requests.test_administration import delete, offset_at
from broker.wire_client import Wire, batch, offsets_of

from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode

SEGMENT_BYTES = 64 << 10
AWAY = 3


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    settings = {"log.segment.bytes": SEGMENT_BYTES, "auto.leader.rebalance.enable": False}
    with RunningCluster(3, settings=settings) as cluster:
        yield cluster


def partition_on(cluster: Cluster, node_id: int, topic: str) -> Partition:
    return cluster.nodes[node_id].partitions.topics[topic].partitions[0]


class Committed:
    """Waits until a replica knows that an index is committed (PendingAppend)."""

    is_closed = False

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_committed(self) -> None:
        self.done.set_result(None)

    def on_failed(self, code: ErrorCode) -> None:
        self.done.set_exception(AssertionError(code))


async def until_equal(cluster: Cluster, topic: str) -> None:
    """Wait until every replica knows that everything is committed that any of them has now."""
    partitions = [partition_on(cluster, node_id, topic) for node_id in cluster.nodes]
    last_index = max(partition.log.last_index for partition in partitions)
    for partition in partitions:
        waiter = Committed()
        if partition.wait_for(last_index, waiter):
            await asyncio.wait_for(waiter.done, 20)
    assert len({(one.log.log_start_offset, one.log.log_end_offset, one.high_watermark) for one in partitions}) == 1


async def shortened_to(offset: int, log: Any, cluster: Cluster) -> None:
    """Wait until whole segments below an offset are gone, and see that others are not.

    They go when the state that was saved without them is durable.
    """
    await until(lambda: log.base_offset > offset - 250, cluster.nodes[1])
    assert log.base_offset <= offset
    assert log.size_bytes < 6 * SEGMENT_BYTES


async def lead(cluster: Cluster, node_id: int, topic: str) -> None:
    """Hand the leadership to `node_id`, and wait until everybody knows."""
    while True:
        partitions = {other: partition_on(cluster, other, topic) for other in cluster.nodes}
        nodes = cluster.nodes.values()
        leaders = {node.broker.leader_of(node.partitions.topics[topic], 0).leader_id for node in nodes}
        if leaders == {node_id} and partitions[node_id].can_serve:
            return
        for other, partition in partitions.items():
            if other != node_id and partition.is_leader:
                partition.transfer(node_id)
        await cluster.leaders_changed(1.0)  # a transfer may be refused, which changes nothing


def wire_to(cluster: RunningCluster, node_id: int) -> Wire:
    return Wire("127.0.0.1", cluster.cluster.nodes[node_id].port)


def produce(wire: Wire, topic: str, first: int, count: int) -> None:
    """Write batches `first` to `first + count` of producer 5, ten records each, twelve batches a segment."""
    for number in range(first, first + count):
        sent = batch(10, producer_id=5, epoch=0, sequence=number * 10, body_bytes=5_000)
        assert wire.produce(topic, sent).base_offset == number * 10


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
def test_a_broker_that_was_away_gets_what_is_left_and_can_lead_with_it(
    brokers: RunningCluster, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.partition.partition.GAP_MS", 0)
    topic = f"shortened-{mode}"
    wire = wire_to(brokers, 1)
    wire.create(topic, factor=3, flush_mode=mode)
    brokers.run(lambda cluster: lead(cluster, 1, topic))
    produce(wire, topic, 0, 20)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    brokers.run(lambda cluster: cluster.stop(AWAY))
    produce(wire, topic, 20, 60)
    assert delete(wire, topic, 605) == (0, 605)
    produce(wire, topic, 80, 5)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    for node_id in (1, 2):
        log = partition_on(brokers.cluster, node_id, topic).log
        brokers.run(partial(shortened_to, 605, log))
    epoch = partition_on(brokers.cluster, 1, topic).term

    async def come_back(cluster: Cluster) -> None:
        await cluster.start(AWAY)
        await cluster.wait_ready()
        await until_equal(cluster, topic)
        await lead(cluster, AWAY, topic)

    brokers.run(come_back)
    kinds = {event["kind"] for event in brokers.cluster.nodes[AWAY].events.to_list()}
    assert "snapshot installed" in kinds
    wire.close()
    wire = wire_to(brokers, AWAY)
    assert offset_at(wire, topic, -2) == (605, epoch)
    assert wire.fetch(topic, 604).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    position = 605
    found = list[int]()
    while position < 850:
        offsets = offsets_of(wire.fetch(topic, position).records)
        found += offsets
        position = offsets[-1] + 10
    assert found == list(range(600, 850, 10))
    # It knows the producer, though it never saw some of its batches.
    again = batch(10, producer_id=5, epoch=0, sequence=840, body_bytes=5_000)
    assert wire.produce(topic, again).base_offset == 840
    produce(wire, topic, 85, 1)
    gap = batch(10, producer_id=5, epoch=0, sequence=900, body_bytes=5_000)
    assert wire.produce(topic, gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    brokers.run(lambda cluster: until_equal(cluster, topic))
    wire.close()
    base_offset = partition_on(brokers.cluster, 1, topic).log.base_offset  # type: ignore[attr-defined]
    brokers.run(lambda cluster: cluster.stop(1))
    files = Path(brokers.cluster.configs[1].log_dir).glob(f"replicas/{topic}-0-*/*.log")
    assert min(int(path.name.split(".")[0]) for path in files) == base_offset > 0

    async def end(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.wait_ready()

    brokers.run(end)
