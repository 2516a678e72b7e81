"""Other people's consumers in groups of KIP-848, in which the coordinator assigns, and in classic ones.

librdkafka's classic groups, and those of clients that know no other, have files of their own.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from interop import workload
from interop.conftest import wait_for_leaders
from interop.workload import GroupClient, Place

from .programs import Consumer, Program, franz_go, java

pytestmark = [pytest.mark.interop, pytest.mark.slow]

Join = Callable[..., GroupClient]
SIZES = {
    ("librdkafka", "consumer"): (3, 3),
    ("java", "consumer"): (3, 3),
    ("franz-go", "consumer"): (3, 3),
    ("java", "classic"): (2, 4),  # its assignor of choice is range
    ("franz-go", "classic"): (3, 3),
}
"""Each client and protocol, and how two members share two topics of three partitions."""
BY_THE_COORDINATOR = [client for client, protocol in SIZES if protocol == "consumer"]


class Librdkafka:
    """A librdkafka consumer of KIP-848 (GroupClient)."""

    def __init__(self, bootstrap: str, group: str, topics: Collection[str], pattern: str = "") -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe([f"^{pattern}"] if pattern else list(topics))

    def poll(self, timeout_s: float) -> list[workload.Received]:
        messages = self._consumer.consume(500, timeout_s)
        for message in messages:
            assert message.error() is None, message.error()
        return [workload.received(message) for message in messages]

    def assignment(self) -> frozenset[Place]:
        return frozenset((part.topic, part.partition) for part in self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Sender:
    """Sends values, and waits for the acknowledgements."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def __call__(self, places: Collection[Place], value: bytes) -> None:
        for topic, partition in places:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(workload.WAIT_LIMIT_S) == 0


@pytest.fixture(scope="module")
def send(brokers: str) -> Sender:
    return Sender(brokers)


@pytest.fixture(scope="module")
def programs(brokers: str) -> Iterator[Callable[[str], Program]]:
    """Return the program of a client, started when somebody asks for it."""
    running: dict[str, Program] = {}

    def program(client: str) -> Program:
        if client not in running:
            running[client] = {"java": java, "franz-go": franz_go}[client](brokers)
        return running[client]

    yield program
    for one in running.values():
        one.end()


@pytest.fixture
def join(brokers: str, programs: Callable[[str], Program]) -> Callable[[str, str], Join]:
    """Return what makes a member of that client's, in groups of that protocol."""

    def member(client: str, protocol: str) -> Join:
        if client == "librdkafka":
            return partial(Librdkafka, brokers)
        return partial(Consumer, programs(client), protocol)

    return member


@pytest.fixture
def topics(brokers: str, name: str) -> list[str]:
    """Two topics of three partitions, with leaders."""
    admin = AdminClient({"bootstrap.servers": brokers})
    made = [f"{name}-{k}" for k in range(2)]
    for future in admin.create_topics([NewTopic(topic, 3, 1) for topic in made]).values():
        future.result(20)
    for topic in made:
        wait_for_leaders(admin, topic, 3)
    return made


@pytest.mark.parametrize(("client", "protocol"), SIZES)
def test_two_members_share_and_hand_over(
    join: Any, send: Sender, topics: list[str], name: str, client: str, protocol: str
) -> None:
    places = frozenset((topic, partition) for topic in topics for partition in range(3))
    member = partial(join(client, protocol), name, topics)
    workload.rebalance_between_two(member, send, places, SIZES[client, protocol])


@pytest.mark.parametrize(("client", "protocol"), SIZES)
def test_a_group_begins_again_at_its_commit(
    join: Any, send: Sender, topics: list[str], name: str, client: str, protocol: str
) -> None:
    workload.restart_from_the_commit(partial(join(client, protocol), name, topics[:1]), send, (topics[0], 0))


@pytest.mark.parametrize("client", BY_THE_COORDINATOR)
def test_a_pattern_brings_the_topics_that_match(
    join: Any, send: Sender, topics: list[str], name: str, client: str
) -> None:
    places = frozenset((topic, partition) for topic in topics for partition in range(3))
    with workload.Group() as group:
        member = group.add(partial(join(client, "consumer"), name, (), f"{name}-[01]"))
        group.wait_until(lambda: member.assignment == places, "all that matches")
        send(places, b"v")
        group.wait_until(lambda: len(member.received) == len(places), "all records")


def test_members_of_three_clients_share_one_group(join: Any, send: Sender, topics: list[str], name: str) -> None:
    places = frozenset((topic, partition) for topic in topics for partition in range(3))
    with workload.Group() as group:
        members = [group.add(partial(join(client, "consumer"), name, topics)) for client in BY_THE_COORDINATOR]
        group.wait_until(
            lambda: (
                [len(member.assignment) for member in members] == [2, 2, 2]
                and frozenset().union(*(member.assignment for member in members)) == places
            ),
            "each to have its share",
        )
        send(places, b"v")
        group.wait_until(lambda: all(len(member.received) == 2 for member in members), "all records")
        assert {record.place for member in members for record in member.received} == places
