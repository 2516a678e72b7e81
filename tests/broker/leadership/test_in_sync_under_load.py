"""Brokers some milliseconds apart stay in sync under a producer that does not pause."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from broker.wire_client import batch

from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster
from barnabas_metadata_quorum.controller.commands import AlterReassignments, NewTopic, Reassignment
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.records.header import parse_header

LAG_MS = 2_000
SETTINGS = {"replica.lag.time.max.ms": LAG_MS, "auto.leader.rebalance.enable": False}
PACE_S = 0.002  # several batches within each round trip


class Load:
    """A partition of three replicas, whoever leads it, and batches without a pause."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.count = 0
        self.seen = set[tuple[int, ...]]()

    @property
    def leader(self) -> Partition | None:
        for node in self.cluster.nodes.values():
            hosted = node.partitions.topics.get("t")
            partition = hosted.partitions.get(0) if hosted else None
            if partition is not None and partition.can_serve:
                return partition
        return None

    async def run(self) -> None:
        """Append as a produce request with acks=1 does; note who is in sync all the while."""
        while True:
            leader = self.leader
            if leader is not None:
                frame = bytearray(batch())
                try:
                    leader.append(parse_header(frame), frame)
                except NotLeaderError:
                    continue
                self.count += 1
                self.seen.add(leader.isr)
            await asyncio.sleep(PACE_S)


@asynccontextmanager
async def loaded(brokers: int) -> AsyncIterator[Load]:
    async with Cluster(brokers, settings=SETTINGS, link_delay_ms=3) as cluster:
        topic = NewTopic("t", assignments={0: (1, 2, 3)})
        await cluster.nodes[1].metadata.create_topics([topic], 10)
        load = Load(cluster)
        while load.leader is None or len(load.leader.isr) < 3:
            await cluster.nodes[1].partitions.known_leaders.leaders_changed()
        loading = asyncio.create_task(load.run())
        try:
            yield load
        finally:
            loading.cancel()
            await asyncio.wait([loading])


@pytest.mark.slow
async def test_replicas_that_keep_up_stay_in_sync_and_one_that_moves_in_becomes_one_of_them() -> None:
    async with loaded(4) as load:
        metadata = load.cluster.nodes[1].metadata
        leader = load.leader
        assert leader is not None
        until_ms = leader.host.now_ms() + LAG_MS * 3 // 2
        while leader.host.now_ms() < until_ms:
            await asyncio.sleep(PACE_S)
            assert leader.has_enough_replicas
        assert load.seen == {(1, 2, 3)}, f"{load.count} batches were appended"
        await metadata.submit(AlterReassignments((Reassignment("t", 0, (1, 2, 4)),)), 10)
        while load.leader is None or load.leader.isr != (1, 2, 4):
            await load.cluster.nodes[1].partitions.known_leaders.leaders_changed()
