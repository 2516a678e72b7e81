"""A broker that was away gets whole segments, and can lead with them."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.live.requests.test_administration import delete, offset_at
from broker.partition.test_log_start import SEGMENT_BYTES, lead, partition_on, until_equal, wire_to
from broker.wire_client import Wire, batch, offsets_of

from barnabas_broker.node import Node
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_raftlog.catch_up import receiving as catch_up
from barnabas_raftlog.catch_up import sending
from barnabas_raftlog.catch_up.receiving import CatchUp
from barnabas_raftlog.log.transfer.manifest import SegmentFile
from barnabas_raftlog.raft.messages import GroupId

AWAY = 3
CHUNK_BYTES = 8 << 10
AHEAD = 3
BATCHES = 110  # of ten records, twelve of them a segment
START = 605
pytestmark = pytest.mark.slow


AGAIN_BYTES_MAX = (1 + AHEAD) * CHUNK_BYTES
"""The cost of an interruption: the batch that was cut off in the middle, and those asked for behind it."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    settings = {"log.segment.bytes": SEGMENT_BYTES, "auto.leader.rebalance.enable": False}
    with RunningCluster(3, settings=settings) as cluster:
        yield cluster


class Reads:
    """Every chunk that broker `AWAY` asks for: counted, in small pieces, and something may happen at one of them.

    `flip`: the chunks (by number) in which a bit changes behind the checksum that protects them on their way.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.bytes = self.at = 0
        self.flip: set[int] = set()
        self.happens: Callable[[Node], Any] | None = None
        self.cluster: Cluster
        self.is_there = asyncio.Event()
        reading = CatchUp._read

        async def read(
            fetcher: CatchUp, group_id: GroupId, source: int, manifest_id: int, file: SegmentFile, *part: int
        ) -> memoryview:
            self.count += 1
            number = self.count
            if number == self.at and self.happens is not None:
                self.is_there.set()
                self.happens(self.cluster.nodes[AWAY])
                await asyncio.sleep(0)
            data = await reading(fetcher, group_id, source, manifest_id, file, *part)
            self.bytes += len(data)
            if number in self.flip:
                data = memoryview(bytearray(data))
                data[len(data) // 2] ^= 8
            return data

        monkeypatch.setattr(CatchUp, "_read", read)
        monkeypatch.setattr(sending, "CHUNK_BYTES_MAX", CHUNK_BYTES)
        monkeypatch.setattr(sending, "READS_AHEAD_MAX", AHEAD)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, brokers: RunningCluster) -> Reads:
    made = Reads(monkeypatch)
    made.cluster = brokers.cluster
    return made


def produce(wire: Wire, topic: str, first: int, count: int) -> None:
    """Write batches `first` to `first + count` of producer 5."""
    for number in range(first, first + count):
        sent = batch(10, producer_id=5, epoch=0, sequence=number * 10, body_bytes=5_000)
        assert wire.produce(topic, sent).base_offset == number * 10


def leave_behind(brokers: RunningCluster, topic: str, mode: str = "fsync") -> tuple[Wire, int]:
    """Let broker `AWAY` miss where the log starts now, and the segments after that; return how many batches it has."""
    wire = wire_to(brokers, 1)
    wire.create(topic, factor=3, flush_mode=mode)
    brokers.run(lambda cluster: lead(cluster, 1, topic))
    produce(wire, topic, 0, 20)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    brokers.run(lambda cluster: cluster.stop(AWAY))
    produce(wire, topic, 20, BATCHES - 20)
    assert delete(wire, topic, START) == (0, START)
    # Segments below go when the disks of both have got so far; the log goes on meanwhile.
    end = BATCHES
    while min(partition_on(brokers.cluster, node_id, topic).log.first_index for node_id in (1, 2)) < 40:
        produce(wire, topic, end, 1)
        end += 1
    return wire, end


def expect_all(brokers: RunningCluster, topic: str, wire: Wire, end: int) -> None:
    """Broker `AWAY` leads with everything, and knows the producer."""

    async def take_over(cluster: Cluster) -> None:
        await until_equal(cluster, topic)
        await lead(cluster, AWAY, topic)

    brokers.run(take_over)
    wire.close()
    wire = wire_to(brokers, AWAY)
    assert offset_at(wire, topic, -2)[0] == START
    position = START
    found = list[int]()
    while position < end * 10:
        offsets = offsets_of(wire.fetch(topic, position).records)
        found += offsets
        position = offsets[-1] + 10
    assert found == list(range(600, end * 10, 10))
    again = batch(10, producer_id=5, epoch=0, sequence=(end - 1) * 10, body_bytes=5_000)
    assert wire.produce(topic, again).base_offset == (end - 1) * 10, "a repetition is recognised"
    produce(wire, topic, end, 1)
    brokers.run(lambda cluster: until_equal(cluster, topic))
    wire.close()
    for config in brokers.cluster.configs.values():
        left = [path.name for path in Path(config.log_dir).glob(f"replicas/{topic}-0-*/*") if path.is_dir()]
        assert not left, "a transfer that is over leaves nothing behind"


def said(brokers: RunningCluster, topic: str, kind: str) -> list[str]:
    events = brokers.cluster.nodes[AWAY].events.to_list()
    return [event["cause"] for event in events if event["kind"] == kind and event["group"] == f"{topic}-0"]


async def come_back(cluster: Cluster) -> None:
    await cluster.start(AWAY)
    await cluster.wait_ready()


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
def test_a_broker_that_was_away_gets_segments_while_the_load_goes_on(
    brokers: RunningCluster, reads: Reads, mode: str
) -> None:
    topic = f"behind-{mode}"
    wire, end = leave_behind(brokers, topic, mode)

    async def under_load(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(come_back(cluster), loop.run_in_executor(None, produce, wire, topic, end, 30))

    brokers.run(under_load)
    expect_all(brokers, topic, wire, end + 30)
    assert reads.bytes >= 4 * SEGMENT_BYTES // 2
    assert len(said(brokers, topic, "catch-up finished")) == 1
    status = brokers.cluster.nodes[AWAY].catch_up.status()
    assert (status["transfers"], status["finished"]) == ([], 1)


def test_after_a_lost_connection_only_what_is_missing_is_sent(brokers: RunningCluster, reads: Reads) -> None:
    topic = "cut"
    wire, end = leave_behind(brokers, topic)

    def cut(node: Node) -> None:
        outgoing = node.links._peers[1].outgoing
        assert outgoing is not None
        outgoing.abort("cut by a test")

    reads.at = 13
    reads.happens = cut
    brokers.run(come_back)
    expect_all(brokers, topic, wire, end)
    assert len(said(brokers, topic, "catch-up interrupted")) == 1
    total = int(said(brokers, topic, "catch-up finished")[0].split()[2])
    assert total <= reads.bytes <= total + AGAIN_BYTES_MAX


def test_a_new_leader_goes_on_where_the_old_one_stopped(brokers: RunningCluster, reads: Reads) -> None:
    topic = "succeeded"
    wire, end = leave_behind(brokers, topic)
    reads.at = 13
    reads.happens = lambda node: None

    async def scenario(cluster: Cluster) -> None:
        reads.is_there = asyncio.Event()
        stopped = asyncio.Event()
        reads.happens = lambda node: setattr(node.catch_up._throttle, "take", lambda _: stopped.wait())
        await cluster.start(AWAY)
        await asyncio.wait_for(reads.is_there.wait(), 20)
        await cluster.stop(1)
        stopped.set()
        await until_equal(cluster, topic)
        await cluster.start(1)
        await cluster.wait_ready()

    brokers.run(scenario)
    expect_all(brokers, topic, wire, end)
    total = int(said(brokers, topic, "catch-up finished")[0].split()[2])
    assert total <= reads.bytes <= total + AGAIN_BYTES_MAX


def test_a_follower_that_starts_again_goes_on_where_it_was(brokers: RunningCluster, reads: Reads) -> None:
    topic = "restarted"
    wire, end = leave_behind(brokers, topic)

    async def scenario(cluster: Cluster) -> None:
        reads.is_there = asyncio.Event()
        reads.at = 13
        reads.happens = lambda node: setattr(node.catch_up._throttle, "take", lambda _: asyncio.Event().wait())
        await cluster.start(AWAY)
        await asyncio.wait_for(reads.is_there.wait(), 20)
        await cluster.stop(AWAY)
        await come_back(cluster)

    brokers.run(scenario)
    expect_all(brokers, topic, wire, end)
    total = int(said(brokers, topic, "catch-up finished")[0].split()[2])
    assert total <= reads.bytes <= total + AGAIN_BYTES_MAX


def test_a_flipped_bit_in_what_was_received_costs_a_batch_and_what_came_with_it(
    brokers: RunningCluster, reads: Reads
) -> None:
    topic = "flipped"
    wire, end = leave_behind(brokers, topic)
    reads.flip = {3, 14}
    brokers.run(come_back)
    expect_all(brokers, topic, wire, end)
    assert len(said(brokers, topic, "catch-up damaged")) == 2
    total = int(said(brokers, topic, "catch-up finished")[0].split()[2])
    assert total < reads.bytes <= total + 2 * AGAIN_BYTES_MAX


def test_what_the_leader_has_damaged_is_mended_there_and_fetched(
    brokers: RunningCluster, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "RETRY_MS", 100)
    topic = "rotten"
    wire, end = leave_behind(brokers, topic)
    partition = partition_on(brokers.cluster, 1, topic)
    path = Path(partition.log.segments[1].log.path)  # type: ignore[attr-defined]
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)
    brokers.run(come_back)
    expect_all(brokers, topic, wire, end)
    assert len(said(brokers, topic, "catch-up damaged")) >= 3
    events = brokers.cluster.nodes[1].events.to_list()
    assert "segment repaired" in {event["kind"] for event in events}


def test_a_topic_that_is_deleted_takes_its_transfer_with_it(brokers: RunningCluster, reads: Reads) -> None:
    topic = "deleted"
    wire, _ = leave_behind(brokers, topic)

    async def scenario(cluster: Cluster) -> None:
        reads.is_there = asyncio.Event()
        reads.at = 13
        reads.happens = lambda node: setattr(node.catch_up._throttle, "take", lambda _: asyncio.Event().wait())
        node = await cluster.start(AWAY)
        await asyncio.wait_for(reads.is_there.wait(), 20)
        assert len(node.catch_up.status()["transfers"]) == 1
        loop = asyncio.get_running_loop()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
        await loop.run_in_executor(None, wire.ask, request, 6)
        await node.metadata.wait_until(lambda image: image.topic_named(topic) is None, 10)
        await cluster.wait_ready()
        assert not node.catch_up.status()["transfers"]
        assert not node.catch_up._running

    brokers.run(scenario)
    wire.close()
    brokers.run(lambda cluster: cluster.stop(AWAY))
    assert not list(Path(brokers.cluster.configs[AWAY].log_dir).glob(f"replicas/{topic}-*"))
    brokers.run(come_back)
