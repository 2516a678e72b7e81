"""librdkafka with `group.protocol=consumer`: members share partitions, read, commit, come and go."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas_broker.testing import RunningCluster

LIMIT_S = 30.0
POLL_S = 0.05


class Group:
    """Members of one group, polled one after the other; `read` is what all of them have read."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self.bootstrap = bootstrap
        self.group_id = group_id
        self.members: list[confluent_kafka.Consumer] = []
        self.read: list[tuple[int, int]] = []

    def join(self, topic: str, **settings: Any) -> confluent_kafka.Consumer:
        member = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group_id,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
            | {key.replace("_", "."): value for key, value in settings.items()}
        )
        member.subscribe([topic])
        self.members.append(member)
        return member

    def leave(self, member: confluent_kafka.Consumer) -> None:
        self.members.remove(member)
        member.close()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + LIMIT_S
        while not holds():
            for member in self.members:
                for message in member.consume(100, POLL_S):
                    assert message.error() is None, message.error()
                    self.read.append((message.partition(), message.offset()))
            assert time.monotonic() < until_s, what

    def shares(self) -> list[list[int]]:
        return [sorted(part.partition for part in member.assignment()) for member in self.members]

    def is_shared(self, count: int, among: int) -> bool:
        shares = self.shares()
        had = sorted(number for share in shares for number in share)
        return had == list(range(count)) and sum(map(bool, shares)) == among


@pytest.fixture
def group(brokers: RunningCluster, topic: str) -> Iterator[Group]:
    group = Group(brokers.bootstrap, topic)
    yield group
    for member in list(group.members):
        group.leave(member)


def send(group: Group, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": group.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 4)
    assert producer.flush(LIMIT_S) == 0


def test_members_share_read_commit_come_and_go(group: Group, topic: str) -> None:
    one = group.join(topic)
    group.until(lambda: group.is_shared(4, 1), "one has all")
    two = group.join(topic)
    group.until(lambda: group.is_shared(4, 2), "two share")
    send(group, topic, 40)
    group.until(lambda: len(group.read) >= 40, "all is read")
    assert sorted(group.read) == sorted((partition, offset) for partition in range(4) for offset in range(10))
    for member in (one, two):
        member.commit(asynchronous=False)
    group.leave(one)
    group.until(lambda: group.is_shared(4, 1), "one has all again")
    send(group, topic, 4)
    group.until(lambda: len(group.read) >= 44, "it goes on where the other stopped")
    assert max(group.read) == (3, 10)
    assert len(set(group.read)) == 44


def test_a_pattern_and_a_static_member(group: Group, topic: str) -> None:
    first = group.join(f"^{topic}.*", group_instance_id="i")
    group.until(lambda: group.is_shared(4, 1), "the pattern's topics")
    other = group.join(f"^{topic}.*")
    group.until(lambda: group.is_shared(4, 2), "two share")
    (had, _) = group.shares()
    group.leave(first)
    again = group.join(f"^{topic}.*", group_instance_id="i")
    group.until(lambda: sorted(part.partition for part in again.assignment()) == had, "what it had")
    assert other in group.members


def test_its_tools_see_the_group(group: Group, topic: str) -> None:
    group.join(topic)
    group.until(lambda: group.is_shared(4, 1), "one has all")
    group.members[0].commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    described = admin.describe_consumer_groups([group.group_id])[group.group_id].result(LIMIT_S)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    (member,) = described.members
    assert sorted(part.partition for part in member.assignment.topic_partitions) == [0, 1, 2, 3]
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(LIMIT_S).valid
    assert [one.type for one in listed if one.group_id == group.group_id] == [ConsumerGroupType.CONSUMER]
