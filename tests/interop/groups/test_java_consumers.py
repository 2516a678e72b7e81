"""Consumers of other projects with `group.protocol=consumer`, and Kafka's tools, work with groups of KIP-848."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from interop import runtimes
from interop.conftest import wait_for_leaders
from interop.console_tools import ConsoleConsumer, Tools

from barnabas_clients import Admin, Consumer
from barnabas_clients.protocol.errors import GroupIdNotFoundError

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LIMIT_S = 90.0
GROUP = "java"


@pytest.fixture(scope="module")
def tools(brokers: str) -> Tools:
    return Tools(runtimes.kafka_jars(), brokers)


def until(changed: threading.Condition, holds: Callable[[], bool], what: str) -> None:
    with changed:
        assert changed.wait_for(holds, LIMIT_S), what


def send(bootstrap: str, first: int, count: int, topic: str = "t", partitions: int = 4) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(LIMIT_S) == 0


def test_two_members_share_hand_over_and_are_shown(brokers: str, tools: Tools) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic("t", 4, 3)])["t"].result(20)
    wait_for_leaders(admin, "t", 4)
    changed = threading.Condition()
    words = ("--topic", "t", "--group", GROUP, "--command-property", "group.protocol=consumer", "--from-beginning")
    members = [ConsoleConsumer(tools, changed, *words) for _ in range(2)]

    def shares() -> list[str]:
        said = tools.run("kafka-consumer-groups", "--describe", "--group", GROUP, "--members", "--verbose")
        rows = [line.split() for line in said.splitlines() if line.startswith(GROUP)]
        return sorted(row[6] for row in rows if row[5] == row[7])  # Those that are in the epoch of their target.

    try:
        until_s = time.monotonic() + LIMIT_S
        while (shared := shares()) != ["t:0,1", "t:2,3"]:
            assert time.monotonic() < until_s, shared
        send(brokers, 0, 40)
        until(changed, lambda: sum(len(member.received) for member in members) == 40, "all is read")
        assert [len(member.received) for member in members] == [20, 20]
        assert "Stable" in tools.run("kafka-consumer-groups", "--describe", "--group", GROUP, "--state")
        assert "Consumer" in tools.run("kafka-consumer-groups", "--list", "--type", "consumer", "--state")
        members[0].end()
        send(brokers, 40, 4)
        until(changed, lambda: len(members[1].received) == 24, "it goes on where the other one stopped")
    finally:
        for member in members:
            member.end()
    assert "Empty" in tools.run("kafka-consumer-groups", "--describe", "--group", GROUP, "--state")
    assert "successful" in tools.run("kafka-consumer-groups", "--delete", "--group", GROUP)


def test_members_change_their_protocol_one_by_one_and_back(brokers: str, tools: Tools) -> None:
    """Nothing is lost, and nothing is read twice: who goes has committed, and who comes goes on from there."""
    topic = group = "rolling"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, 4, 3)])[topic].result(20)
    wait_for_leaders(admin, topic, 4)
    changed = threading.Condition()
    all_members: list[ConsoleConsumer] = []

    def begin(protocol: str) -> ConsoleConsumer:
        words = ("--topic", topic, "--group", group, "--command-property", f"group.protocol={protocol}")
        member = ConsoleConsumer(tools, changed, *words, "--from-beginning")
        all_members.append(member)
        return member

    def has_read(count: int) -> bool:
        return sum(len(one.received) for one in all_members) >= count

    def until_shared(what: str) -> None:
        until_s = time.monotonic() + LIMIT_S
        while True:
            said = tools.run("kafka-consumer-groups", "--describe", "--group", group)
            owners = {row[6] for row in (line.split() for line in said.splitlines()) if row[:2] == [group, topic]}
            if len(owners) == 2 and "-" not in owners:
                return
            assert time.monotonic() < until_s, (what, said)

    producer = confluent_kafka.Producer({"bootstrap.servers": brokers, "linger.ms": 0})
    sent = 0
    members = [begin("classic"), begin("classic")]
    try:
        for protocol in ("classic", "consumer", "consumer", "classic", "classic"):
            if sent:
                members.pop(0).end()
                members.append(begin(protocol))
            until_shared(protocol)
            for number in range(sent, sent + 20):
                producer.produce(topic, b"%d" % number, partition=number % 4)
            assert producer.flush(LIMIT_S) == 0
            sent += 20
            until(changed, partial(has_read, sent), f"{sent} are read")
    finally:
        for member in members:
            member.end()
    received = [int(value) for member in all_members for _, _, value in member.received]
    assert sorted(received) == list(range(sent))


class Member(threading.Thread):
    """A member of "mixed" until `stop` is set, run by `read`. What it has read is in `received`."""

    def __init__(self, bootstrap: str, changed: threading.Condition) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.changed = changed
        self.stop = threading.Event()
        self.received: list[bytes] = []

    def take(self, values: list[bytes]) -> None:
        with self.changed:
            self.received += values
            self.changed.notify_all()

    def end(self) -> None:
        self.stop.set()
        self.join(LIMIT_S)


class Librdkafka(Member):
    def run(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "mixed", "group.protocol": "consumer"}
        member = confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})
        member.subscribe(["mixed"])
        while not self.stop.is_set():
            self.take([message.value() or b"" for message in member.consume(100, 0.1) if message.error() is None])
        member.close()


class Ours(Member):
    def run(self) -> None:
        asyncio.run(self.read())

    async def read(self) -> None:
        async with Consumer(
            self.bootstrap, topics=["mixed"], group_id="mixed", group_protocol="consumer", auto_offset_reset="earliest"
        ) as consumer:
            while not self.stop.is_set():
                for records in (await consumer.get_many(timeout_s=0.1)).values():
                    self.take([record.value or b"" for record in records])


def wait_shared(bootstrap: str, group_id: str, shares: list[int]) -> None:
    """Wait until the group is stable, and its members have so many partitions each."""

    async def ask() -> None:
        async with Admin(bootstrap) as admin, asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(GroupIdNotFoundError):
                    group = (await admin.describe_groups([group_id]))[group_id]
                    if group.state == "Stable" and [len(one.assignment or ()) for one in group.members] == shares:
                        assert all(one.assignment == one.target for one in group.members)
                        return

    asyncio.run(ask())


def test_java_librdkafka_and_ours_share_one_group(brokers: str, tools: Tools) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic("mixed", 6, 3)])["mixed"].result(20)
    wait_for_leaders(admin, "mixed", 6)
    changed = threading.Condition()
    words = ("--topic", "mixed", "--group", "mixed", "--command-property", "group.protocol=consumer")
    java = ConsoleConsumer(tools, changed, *words, "--from-beginning")
    members = [Librdkafka(brokers, changed), Ours(brokers, changed)]
    for member in members:
        member.start()
    try:
        wait_shared(brokers, "mixed", [2, 2, 2])
        send(brokers, 0, 60, "mixed", 6)
        until(
            changed,
            lambda: [len(java.received), *(len(member.received) for member in members)] == [20, 20, 20],
            "each reads its part",
        )
        members[0].end()
        wait_shared(brokers, "mixed", [3, 3])
    finally:
        for member in members:
            member.end()
        java.end()
