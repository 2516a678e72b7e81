"""Lists moves that the broker may not have heard of yet."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

from barnabas_broker.server.handlers import alter_partition_reassignments
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas_metadata_quorum.controller.commands import RefusalReason, Refused
from broker.wire_client import Wire

from .moving import arrived, create


def listed(port: int, timeout_ms: int) -> ListPartitionReassignmentsResponse:
    wire = Wire("127.0.0.1", port)
    try:
        answer = wire.ask(ListPartitionReassignmentsRequest(timeout_ms=timeout_ms), 0)
        assert isinstance(answer, ListPartitionReassignmentsResponse)
        return answer
    finally:
        wire.close()


def test_a_move_is_listed_by_every_broker_as_soon_as_it_has_been_asked_for(six_brokers: RunningCluster) -> None:
    key = TopicPartition("heard-of", 0)

    async def run(cluster: Cluster) -> None:
        await create(cluster, key.topic, 1, 2, 3)
        await cluster.stop(6)
        async with contextlib.AsyncExitStack() as stack:
            admins = {
                node_id: await stack.enter_async_context(Admin(f"127.0.0.1:{node.port}"))
                for node_id, node in cluster.nodes.items()
            }
            for admin in admins.values():
                assert not await admin.list_partition_reassignments()  # connected now
            for asked in admins.values():
                # It cannot end while broker 6 is away.
                await asked.alter_partition_reassignments({key: (1, 2, 6)})
                found = await asyncio.gather(*(admin.list_partition_reassignments([key]) for admin in admins.values()))
                assert [moving[key].replicas for moving in found] == [(1, 2, 6, 3)] * len(admins)
                await asked.alter_partition_reassignments({key: None})
                await arrived(cluster, key.topic)
        await cluster.start(6)
        await cluster.wait_ready()

    six_brokers.run(run, 60.0)


def test_without_a_controller_nobody_says_that_nothing_moves() -> None:
    async def stop_the_others(cluster: Cluster) -> None:
        await cluster.stop(2)
        await cluster.stop(3)

    with RunningCluster(3) as brokers:
        port = brokers.cluster.nodes[1].port
        assert listed(port, 10_000) == ListPartitionReassignmentsResponse()
        brokers.run(stop_the_others)
        answer = listed(port, 200)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert answer.error_message is not None
        assert "no answer in 0.2 s" in answer.error_message
        assert listed(port, -1).error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_what_the_controller_refuses_as_a_whole_is_said_in_its_words() -> None:
    async def submit(*_: object) -> None:
        raise Refused(RefusalReason.INVALID_REQUEST, "more partitions than one command may move")

    broker: Any = SimpleNamespace(metadata=SimpleNamespace(submit=submit))
    exchange: Any = None
    moved = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
    request = AlterPartitionReassignmentsRequest(topics=[moved])
    answer = await alter_partition_reassignments.handle(broker, exchange, request)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "more partitions than one command may move",
    )
