"""Has a broker of the test's choice lead a partition, as far as every broker knows."""

from barnabas_broker.testing import Cluster

__all__ = ["knows", "lead"]

ATTEMPTS = 10
ATTEMPT_S = 3.0  # A leader gives a transfer up after an election timeout, and leads on.


async def lead(cluster: Cluster, topic: str, index: int, target: int) -> None:
    """Hand the partition to `target`, whoever leads it, and return when all brokers have heard of that."""
    for _ in range(ATTEMPTS):
        for node_id, node in cluster.nodes.items():
            partition = node.partitions.topics[topic].partitions.get(index)
            if partition is not None and partition.group.is_leader and node_id != target:
                partition.transfer(target)
        heard = [await knows(cluster, node_id, topic, index, target) for node_id in cluster.nodes]
        if all(heard):
            return
    raise AssertionError(f"broker {target} does not come to lead {topic}-{index}")


async def knows(cluster: Cluster, asked: int, topic: str, index: int, leader_id: int) -> bool:
    """Wait until a broker has heard who leads, for a while; tell whether it has. -1 is nobody."""
    partitions = cluster.nodes[asked].partitions
    topic_id = partitions.topics[topic].topic.topic_id

    def is_other() -> bool:
        leadership = partitions.known_leaders.leadership(topic_id, index)
        return leadership is None or leadership.leader_id != leader_id

    await partitions.known_leaders.wait_while(is_other, ATTEMPT_S)
    return not is_other()
