"""Nobody waits for a follower whose disk is behind, and it catches up later."""

import asyncio

from barnabas_broker.node import Node
from barnabas_broker.testing import Cluster
from barnabas_clients import Admin, Producer
from barnabas_raftlog.raft.messages import Fact

TOPIC = "busy"
VALUE_BYTES = 10_000
COUNT = 200


def next_fact(node: Node, kind: str) -> asyncio.Future[str]:
    """Return the cause of the next fact of this kind that the links of `node` tell."""
    told = asyncio.get_running_loop().create_future()
    tell = node.links.on_fact

    def hear(fact: Fact) -> None:
        if tell is not None:
            tell(fact)
        if fact.kind == kind and not told.done():
            told.set_result(fact.cause)

    node.links.on_fact = hear
    return told


async def test_a_follower_that_is_behind_with_its_disk_is_sent_nothing_until_it_is_not() -> None:
    async with Cluster(3) as cluster, asyncio.timeout(60):
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, 1, 3)
        await cluster.wait_ready()
        partitions = {node_id: node.partitions.topics[TOPIC].partitions[0] for node_id, node in cluster.nodes.items()}
        leader_id = partitions[1].leader_id
        assert leader_id is not None
        leader = cluster.nodes[leader_id]
        slow_id = min(cluster.nodes.keys() - {leader_id})
        busy = next_fact(leader, "peer busy")
        is_busy = True
        cluster.nodes[slow_id].links.is_busy = lambda: is_busy
        assert f"node {slow_id} is behind with its disk" in await busy
        async with Producer(cluster.bootstrap) as producer:
            for delivery in [await producer.send(TOPIC, b"x" * VALUE_BYTES) for _ in range(COUNT)]:
                await delivery
        ends = {node_id: partition.log.log_end_offset for node_id, partition in partitions.items()}
        assert (ends[leader_id], ends[slow_id]) == (COUNT, 0)
        not_busy = next_fact(leader, "peer not busy")
        is_busy = False
        await not_busy
        # Without the third one nothing is acknowledged that this one does not have.
        (third_id,) = cluster.nodes.keys() - {leader_id, slow_id}
        await cluster.stop(third_id)
        async with Producer(cluster.bootstrap) as producer:
            await (await producer.send(TOPIC, b"the last"))
        assert partitions[slow_id].log.log_end_offset == COUNT + 1
        assert partitions[leader_id].term == 1, "it has led all the time"
