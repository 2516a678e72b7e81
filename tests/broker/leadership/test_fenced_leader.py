"""A broker that was fenced for its silence and is heard again gets clients."""

import asyncio

import pytest
from broker.wire_client import Wire, batch, produce_request

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_metadata_quorum.registration import Registration

QUESTION = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def test_a_fenced_leader_that_is_heard_is_named_and_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningCluster(3, settings={"broker.session.timeout.ms": 300}) as running:
        nodes = running.cluster.nodes
        wires = {node_id: Wire("127.0.0.1", node.port) for node_id, node in nodes.items()}
        wires[1].create("t", factor=3)
        leader_id = wires[1].ask(QUESTION, 9).topics[0].partitions[0].leader_id

        mute = nodes[leader_id].metadata._registration
        step = Registration._step

        async def silent(self: Registration) -> bool:
            if self is not mute:
                return await step(self)
            await asyncio.get_running_loop().create_future()
            return False

        monkeypatch.setattr(Registration, "_step", silent)

        async def fenced(cluster: Cluster) -> None:
            for node in cluster.nodes.values():
                await node.metadata.wait_until(lambda image: image.brokers[leader_id].fenced, 20.0)

        running.run(fenced)
        for wire in wires.values():
            answer = wire.ask(QUESTION, 9)
            partition = answer.topics[0].partitions[0]
            assert (partition.leader_id, partition.offline_replicas) == (leader_id, ())
            assert leader_id in [broker.node_id for broker in answer.brokers]
        produced = wires[leader_id].ask(produce_request("t", batch()), 9)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for wire in wires.values():
            wire.close()


def test_a_broker_that_was_stopped_is_not_named_while_it_is_still_heard() -> None:
    with RunningCluster(2) as running:
        nodes = running.cluster.nodes

        async def leave(cluster: Cluster) -> None:
            await nodes[2].metadata.finish_shutdown(20.0)
            await nodes[1].metadata.wait_until(lambda image: image.brokers[2].fenced, 20.0)

        running.run(leave)
        broker = nodes[1].broker
        assert running.run(lambda _: _is_live(running.cluster)), "its links are still there"
        assert [known.node_id for known in broker.brokers()] == [1]


async def _is_live(cluster: Cluster) -> bool:
    return cluster.nodes[1].partitions.is_live(2)
