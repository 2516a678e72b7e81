"""Deals all partitions of all topics out one by one, like cards: `roundrobin`. Pure.

Partitions in order of topic and number go to the members in turn. Members that do not subscribe to the topic are passed
over. With equal subscriptions no member has more than one partition more than another. With different ones the division
may be less even than possible, as in Kafka.
"""

from collections.abc import Collection, Mapping

from barnabas_clients.topic_partition import TopicPartition

from .assignor import Assignment, RebalanceProtocol, Subscription, in_member_order

__all__ = ["ROUND_ROBIN"]


class _RoundRobin:
    """The assignor `roundrobin`."""

    name = "roundrobin"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, previous: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        order = in_member_order(members)
        wanted = frozenset[str]().union(*(subscription.topics for subscription in members.values()))
        turn = 0
        for topic in sorted(wanted & partition_counts.keys()):
            for partition in range(partition_counts[topic]):
                # A member subscribes to the topic, so this ends within one round.
                while topic not in members[order[turn]].topics:
                    turn = (turn + 1) % len(order)
                assignment[order[turn]].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(order)
        return assignment


ROUND_ROBIN = _RoundRobin()
