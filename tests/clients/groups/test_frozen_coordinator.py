"""A real coordinator is stopped: another takes over, and nobody loses anything.

No connection tells of the stop.
"""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from machines import cluster_handle

from barnabas_clients.admin import topics as admin
from barnabas_clients.assignors.built_in import COOPERATIVE_STICKY
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.groups.coordinator import Coordinator, fetch_offsets
from barnabas_clients.groups.session import GroupSettings
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .fake_coordinator import TOPIC, Recorder
from .settled_session import SettledSession

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster() as handle:
        yield handle


async def coordinator_of(cluster: Cluster, group_id: str) -> int:
    coordinator = Coordinator(cluster, group_id)
    return await coordinator.retry("the coordinator", TIMEOUT_S, coordinator.find)


@pytest.mark.process
@pytest.mark.slow
async def test_a_group_goes_on_while_its_coordinator_is_frozen(brokers: cluster_handle.ClusterHandle) -> None:
    handlers = Recorder(), Recorder()
    async with Cluster(brokers.bootstrap) as one, Cluster(brokers.bootstrap) as two:
        await admin.create_topic(one, TOPIC, 2, 3, timeout_s=TIMEOUT_S)
        settings = GroupSettings("g", heartbeat_interval_s=0.2, assignors=(COOPERATIVE_STICKY,))
        sessions = [
            SettledSession(cluster, settings, handler) for cluster, handler in zip((one, two), handlers, strict=True)
        ]
        try:
            for session in sessions:
                session.start()
            for session, handler in zip(sessions, handlers, strict=True):
                await session.wait_stable(TIMEOUT_S)
                await handler.holds(1)
                await session.wait_stable(TIMEOUT_S)
                await session.commit(dict.fromkeys(handler.mine, OffsetAndMetadata(1)), TIMEOUT_S)
            told = [list(handler.log) for handler in handlers]
            node_id = await coordinator_of(one, "g")
            pid = (await asyncio.to_thread(brokers.pids))[node_id]
            os.kill(pid, signal.SIGSTOP)
            try:
                # All at once: a join, heartbeats and commits have stood in line at the same broker.
                async with asyncio.TaskGroup() as tasks:
                    for session, handler in zip(sessions, handlers, strict=True):
                        position = dict.fromkeys(handler.mine, OffsetAndMetadata(2))
                        tasks.create_task(session.commit(position, TIMEOUT_S))
                assert await coordinator_of(two, "g") != node_id
                assert [handler.log for handler in handlers] == told
            finally:
                os.kill(pid, signal.SIGCONT)
            stored = await fetch_offsets(Coordinator(one, "g"), None, TIMEOUT_S)
            assert stored == {TopicPartition(TOPIC, number): OffsetAndMetadata(2) for number in range(2)}
        finally:
            for session in sessions:
                await session.close(TIMEOUT_S)
