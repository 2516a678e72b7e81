"""Divides each topic by itself, in runs of neighbouring partitions: `range`. Pure.

Of a topic with P partitions and M subscribed members, each gets P div M partitions, and the first P mod M members, in
member order, get one more. So topics with equally many partitions and the same subscribers are divided alike: the
member with partition 3 of one has partition 3 of the others. Joins between topics rely on that (co-partitioning). The
price: with many small topics the first members get all the odd ones.
"""

from collections.abc import Collection, Mapping

from barnabas_clients.topic_partition import TopicPartition

from .assignor import Assignment, RebalanceProtocol, Subscription, in_member_order

__all__ = ["RANGE"]


class _Range:
    """The assignor `range`."""

    name = "range"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, previous: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        order = in_member_order(members)
        for topic, count in sorted(partition_counts.items()):
            subscribed = [member_id for member_id in order if topic in members[member_id].topics]
            if not subscribed:
                continue
            each, odd = divmod(count, len(subscribed))
            start = 0
            for place, member_id in enumerate(subscribed):
                end = start + each + (place < odd)
                assignment[member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
                start = end
        return assignment


RANGE = _Range()
