"""Records that no majority has: no API may show them, as they may vanish.

The journals of both followers are held up, so what they are sent is in their logs and not durable: they say that they
live, but acknowledge nothing. With `acks=1` the leader then has a tail that is not committed, in memory and, where
memory is small, on disk.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from broker.live.test_three_brokers import Wires, all_in_sync, leader_of
from broker.wire_client import Wire, batch, fetch_request, offsets_of

from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Consumer, OffsetSpec, TopicPartition
from barnabas_clients.cluster.cluster import Cluster as Connections
from barnabas_clients.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_spark.options.reads import parse_read_options
from barnabas_spark.reading.snapshot import take_snapshot

RACKS = ("red", "green", "blue")
COMMITTED = 3  # records, of one batch each
LATE = 9_000  # the timestamp of everything after them


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, racks=RACKS, settings={"log.tail.cache.bytes": 1 << 20}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def wires(brokers: RunningCluster) -> Iterator[Wires]:
    wires = Wires(brokers)
    yield wires
    wires.close()


class Tail(NamedTuple):
    """A topic whose first `COMMITTED` records are committed and whose others are not; `end`: of the leader's log."""

    topic: str
    leader_id: int
    leader: Wire
    end: int


def replica(brokers: RunningCluster, node_id: int, topic: str) -> Partition:
    return brokers.cluster.nodes[node_id].partitions.topics[topic].partitions[0]


async def turn(_: Cluster) -> None:
    """One question and answer through the loop, that is all."""


@contextmanager
def held_up(brokers: RunningCluster, node_ids: list[int]) -> Iterator[None]:
    """Let the journals of these brokers write nothing."""
    queues = [brokers.cluster.nodes[node_id].storage._commits for node_id in node_ids]

    async def hold(_: Cluster) -> None:
        for queue in queues:
            queue._held = True

    async def go_on(_: Cluster) -> None:
        for queue in queues:
            queue.resume()

    brokers.run(hold)
    try:
        yield
    finally:
        brokers.run(go_on)


@contextmanager
def uncommitted(brokers: RunningCluster, wires: Wires, topic: str, *, batches: int, body_bytes: int) -> Iterator[Tail]:
    wires[1].create(topic, factor=3, min_insync_replicas="1")
    leader_id = leader_of(wires[1], topic)
    wire = wires[leader_id]
    brokers.run(lambda cluster: all_in_sync(cluster, topic))
    for number in range(COMMITTED):
        assert wire.produce(topic, batch(timestamp=1_000 * (number + 1))).error_code == ErrorCode.NONE
    others = [node_id for node_id in brokers.cluster.nodes if node_id != leader_id]
    while any(replica(brokers, node_id, topic).high_watermark < COMMITTED for node_id in others):
        brokers.run(turn)
    end = COMMITTED + batches
    with held_up(brokers, others):
        for number in range(batches):
            row = wire.produce(topic, batch(timestamp=LATE + number, body_bytes=body_bytes), acks=1)
            assert (row.error_code, row.base_offset) == (ErrorCode.NONE, COMMITTED + number)
        while any(replica(brokers, node_id, topic).log.log_end_offset < end for node_id in others):
            brokers.run(turn)
        led = replica(brokers, leader_id, topic)
        assert (led.can_serve, led.high_watermark, led.log.log_end_offset) == (True, COMMITTED, end)
        yield Tail(topic, leader_id, wire, end)
        assert (led.can_serve, led.high_watermark) == (True, COMMITTED), "it was so all the time"


@pytest.fixture(scope="module", params=["in memory", "on disk"])
def tail(request: pytest.FixtureRequest, brokers: RunningCluster, wires: Wires) -> Iterator[Tail]:
    """All of it in memory; or more of it than memory is for, so that also some of it is read from disk.

    There, a batch that is not committed would fit into a first answer (`cold_window`).
    """
    topic = request.param.replace(" ", "-")
    is_on_disk = request.param == "on disk"
    size = {"batches": 80, "body_bytes": 50_000} if is_on_disk else {"batches": 4, "body_bytes": 20}
    with uncommitted(brokers, wires, topic, **size) as tail:
        log = replica(brokers, tail.leader_id, topic).log
        while is_on_disk and log.read(COMMITTED + 1, tail.end, 1) is not None:
            brokers.run(turn)
        assert is_on_disk or log.read(0, tail.end, 1) is not None
        yield tail
        # Also when it could be read at once, who asks for it waits; and it is there once it is committed.
        waiting = fetch_request(topic, COMMITTED, max_wait_ms=30_000)
        tail.leader.send(waiting, 12)
    found = tail.leader.receive(waiting, 12).responses[0].partitions[0]
    assert offsets_of(found.records)[:1] == [COMMITTED]


def fetched(wire: Wire, topic: str, offset: int, rack: str = "", **fields: Any) -> Any:
    request = fetch_request(topic, offset, partition_max_bytes=8 << 20, **fields)
    request.rack_id = rack
    return wire.ask(request, 12).responses[0].partitions[0]


def test_a_fetch_ends_where_the_committed_part_does(tail: Tail) -> None:
    for offset in range(COMMITTED):
        found = fetched(tail.leader, tail.topic, offset)
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, COMMITTED, COMMITTED)
        assert offsets_of(found.records) == list(range(offset, COMMITTED))
    for offset in range(COMMITTED, tail.end + 1):
        found = fetched(tail.leader, tail.topic, offset)
        assert (found.error_code, found.high_watermark, bytes(found.records)) == (0, COMMITTED, b"")


def test_a_fetch_from_a_follower_ends_there_too(brokers: RunningCluster, wires: Wires, tail: Tail) -> None:
    for node_id in brokers.cluster.nodes.keys() - {tail.leader_id}:
        found = fetched(wires[node_id], tail.topic, 0, RACKS[node_id - 1])
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, COMMITTED, COMMITTED)
        assert offsets_of(found.records) == list(range(COMMITTED))
        for offset in range(COMMITTED + 1, tail.end + 1):
            found = fetched(wires[node_id], tail.topic, offset, RACKS[node_id - 1])
            assert (found.error_code, found.high_watermark, bytes(found.records)) == (0, COMMITTED, b"")
            # It does not judge there: what it has may not be what is committed, and the leader may know better.
            newer = fetched(wires[node_id], tail.topic, offset, RACKS[node_id - 1], last_fetched_epoch=1_000)
            assert newer.diverging_epoch.end_offset == -1


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [
        (OffsetSpec.LATEST, COMMITTED, -1),
        (OffsetSpec.EARLIEST, 0, -1),
        (OffsetSpec.MAX_TIMESTAMP, COMMITTED - 1, 1_000 * COMMITTED),
        (2_000, 1, 2_000),
        (LATE, -1, -1),
        (LATE + 3, -1, -1),
    ],
)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_offsets_are_listed_of_the_committed_part(
    tail: Tail, timestamp: int, offset: int, found_timestamp: int, isolation_level: int
) -> None:
    asked = ListOffsetsTopic(name=tail.topic, partitions=[ListOffsetsPartition(timestamp=timestamp)])
    answer = tail.leader.ask(ListOffsetsRequest(topics=[asked], isolation_level=isolation_level), 8)
    row = answer.topics[0].partitions[0]
    assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.NONE, offset, found_timestamp)


def test_an_epoch_ends_where_the_committed_part_does(brokers: RunningCluster, tail: Tail) -> None:
    term = replica(brokers, tail.leader_id, tail.topic).term
    asked = OffsetForLeaderTopic(topic=tail.topic, partitions=[OffsetForLeaderPartition(leader_epoch=term)])
    row = tail.leader.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4).topics[0].partitions[0]
    assert (row.error_code, row.leader_epoch, row.end_offset) == (ErrorCode.NONE, term, COMMITTED)


def test_log_directories_tell_how_much_is_not_committed(wires: Wires, brokers: RunningCluster, tail: Tail) -> None:
    asked = DescribableLogDirTopic(topic=tail.topic, partitions=[0])
    for node_id in brokers.cluster.nodes:
        answer = wires[node_id].ask(DescribeLogDirsRequest(topics=[asked]), 4)
        (row,) = answer.results[0].topics[0].partitions
        assert row.offset_lag == tail.end - COMMITTED


def test_clients_and_spark_see_the_end_of_the_committed_part(brokers: RunningCluster, tail: Tail) -> None:
    key = TopicPartition(tail.topic, 0)
    options = parse_read_options({"kafka.bootstrap.servers": brokers.cluster.bootstrap, "subscribe": tail.topic})

    async def ends() -> list[int]:
        async with Consumer(brokers.cluster.bootstrap) as consumer, Connections(brokers.cluster.bootstrap) as cluster:
            snapshot = await take_snapshot(cluster, options)
            return [(await consumer.end_offsets([key]))[key], snapshot.partitions[tail.topic, 0].high_watermark]

    assert asyncio.run(ends()) == [COMMITTED, COMMITTED]
