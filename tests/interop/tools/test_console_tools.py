"""Apache Kafka's own console tools work: the Java client and its administrator.

They use the newest versions there are.

A JVM takes a second or two to start, so one test goes through what a tool can do, and all strategies rebalance at once.
"""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from interop import runtimes, workload
from interop.conftest import NewTopicMaker
from interop.console_tools import NULL, ConsoleConsumer, Tools, typed
from interop.test_confluent import Sender
from interop.workload import Place, Sample

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ASSIGNORS = {
    "RangeAssignor": (2, 4),
    "RoundRobinAssignor": (3, 3),
    "StickyAssignor": (3, 3),
    "CooperativeStickyAssignor": (3, 3),
}
# The tools speak in lines of text, tabs between the fields.
SAMPLES = (
    Sample(b"key", b"value"),
    Sample(None, b"no key"),
    Sample(b"no value", None),
    Sample(None, None, (("why", b"neither key nor value"),)),
    Sample(b"", b""),
    Sample(b"headers", b"twice the same name", (("name", b"1"), ("name", b"2"), ("empty", b""), ("null", None))),
    Sample(None, b"x"),
    Sample(b"a mebibyte", b"0123456789abcdef" * (workload.MEBIBYTE // 16)),
    Sample(b"after the large one", b"small again"),
)
READER = ("parse.key=true", "parse.headers=true", f"null.marker={NULL}")


@pytest.fixture(scope="module")
def sender(bootstrap: str) -> Sender:
    return Sender(bootstrap, linger_ms=0)


@pytest.fixture(scope="module")
def tools(bootstrap: str, sender: Sender, new_topic: NewTopicMaker) -> Tools:
    tools = Tools(runtimes.kafka_jars(), bootstrap)
    topic = new_topic()
    sender.send([(topic, 0)], Sample(None, b"value"))
    tools.make_archive(topic)
    return tools


def test_topics_are_made_described_grown_and_deleted(tools: Tools, replicas: int, name: str) -> None:
    def topics(*arguments: object) -> str:
        return tools.run("kafka-topics", *arguments, "--topic", name)

    topics("--create", "--partitions", 2, "--replication-factor", replicas, "--config", "max.message.bytes=2000000")
    topics("--alter", "--partitions", 5)
    described = topics("--describe")
    assert f"PartitionCount: 5\tReplicationFactor: {replicas}" in described
    assert "max.message.bytes=2000000" in described
    assert described.count("\tLeader: ") == 5
    topics("--delete")
    workload.wait_until(lambda: name not in tools.run("kafka-topics", "--list").split(), "the topic to be gone")


def test_a_partition_moves_to_another_broker(tools: Tools, replicas: int, name: str, tmp_path: Path) -> None:
    if replicas < 2:
        pytest.skip("needs a second broker")
    tools.run("kafka-topics", "--create", "--topic", name, "--replica-assignment", "1")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [2]}]}))

    def reassign(*arguments: object) -> str:
        return tools.run("kafka-reassign-partitions", "--reassignment-json-file", plan, *arguments)

    assert f"Successfully started partition reassignment for {name}-0" in reassign(
        "--execute", "--throttle", 50_000_000
    )
    done = f"Reassignment of partition {name}-0 is completed."
    workload.wait_until(lambda: done in reassign("--verify"), "the partition to have moved")
    assert "throttled" not in tools.run("kafka-configs", "--entity-type", "brokers", "--entity-name", 2, "--describe")
    assert "No partition reassignments found." in tools.run("kafka-reassign-partitions", "--list")
    assert "\tReplicas: 2\t" in tools.run("kafka-topics", "--describe", "--topic", name)
    tools.run("kafka-topics", "--delete", "--topic", name)


def test_every_kind_of_record_comes_back(tools: Tools, bootstrap: str, new_topic: NewTopicMaker) -> None:
    topics = {
        compression: new_topic(max_message_bytes=str(workload.BATCH_BYTES_MAX)) for compression in workload.COMPRESSIONS
    }
    reader = [word for name in READER for word in ("--reader-property", name)]
    producer = ("acks=all", "enable.idempotence=true", f"max.request.size={workload.BATCH_BYTES_MAX}")
    settings = [word for name in producer for word in ("--command-property", name)]
    lines = "".join(f"{typed(sample)}\n" for sample in SAMPLES)

    def produce(compression: str) -> None:
        words = ("--topic", topics[compression], "--compression-codec", compression)
        tools.run("kafka-console-producer", *words, *reader, *settings, given=lines)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(produce, topics))
    for topic in topics.values():
        found = workload.read_back(bootstrap, (topic, 0), len(SAMPLES))
        assert [record.sample for record in found] == list(SAMPLES)
    pattern = "|".join(topics.values())
    printed = tools.consume("--include", pattern, "--from-beginning", "--max-messages", len(SAMPLES) * len(topics))
    assert sorted((record.offset, repr(record.sample)) for record in printed) == sorted(
        (offset, repr(sample)) for offset, sample in enumerate(SAMPLES) for _ in topics
    )


class Group:
    """One group of console consumers with one assignment strategy."""

    def __init__(self, tools: Tools, changed: threading.Condition, assignor: str, name: str, topics: list[str]) -> None:
        self.name = f"{name}-{assignor}"
        self.sizes = ASSIGNORS[assignor]
        self.members: list[ConsoleConsumer] = []
        settings = {
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}",
            "heartbeat.interval.ms": workload.HEARTBEAT_MS,
            "session.timeout.ms": workload.SESSION_MS,
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": 100,
        }
        words = [word for item in settings.items() for word in ("--command-property", "=".join(map(str, item)))]
        self._arguments = ("--group", self.name, "--include", "|".join(topics), *words)
        self._tools = tools
        self._changed = changed

    def join(self, ends: ExitStack) -> None:
        """Start one more member, which `ends` ends."""
        self.members.append(ConsoleConsumer(self._tools, self._changed, *self._arguments))
        ends.callback(self.members[-1].end)

    @property
    def count(self) -> int:
        return sum(len(member.received) for member in self.members)

    def shares(self, admin: AdminClient) -> list[frozenset[Place]]:
        """Return what the coordinator says each member owns, the smaller share first; empty while it changes."""
        described = admin.describe_consumer_groups([self.name])[self.name].result(20)
        if described.state != ConsumerGroupState.STABLE:
            return []
        parts = (member.assignment.topic_partitions for member in described.members)
        return sorted((frozenset((part.topic, part.partition) for part in found) for found in parts), key=len)


def ask_to_end(groups: list[Group]) -> None:
    for group in groups:
        for member in group.members:
            member.ask_to_end()


def test_two_members_share_and_hand_over_in_every_strategy(
    tools: Tools, admin: AdminClient, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    topics = [new_topic(3), new_topic(3)]
    changed = threading.Condition()
    places = frozenset((topic, partition) for topic in topics for partition in range(3))
    groups = [Group(tools, changed, assignor, name, topics) for assignor in ASSIGNORS]

    def send(word: str, total: int) -> None:
        for topic, partition in places:
            sender.send([(topic, partition)], Sample(None, f"{topic} {word}".encode()))
        with changed:
            arrived = changed.wait_for(lambda: all(g.count >= total for g in groups), workload.WAIT_LIMIT_S)
        assert arrived, f"{word}: {[(g.name, g.count) for g in groups]}"

    def wait_for_shares(sizes: Callable[[Group], tuple[int, ...]]) -> None:
        def settled(group: Group) -> bool:
            shares = group.shares(admin)
            # Cooperative members give first and take later: until then some partition is nobody's.
            return tuple(len(share) for share in shares) == sizes(group) and frozenset().union(*shares) == places

        for group in groups:
            workload.wait_until(lambda group=group: settled(group), f"{group.name} to settle")  # type: ignore[misc]

    with ExitStack() as ends:
        for group in groups:
            group.join(ends)
        wait_for_shares(lambda group: (6,))
        send("alone", 6)
        for group in groups:
            group.join(ends)
        # Last in, first out: all are asked before the first is waited for.
        ends.callback(ask_to_end, groups)
        wait_for_shares(lambda group: group.sizes)
        send("shared", 12)
        for group in groups:
            group.members[1].ask_to_end()  # it commits what it has, and leaves
        for group in groups:
            group.members[1].end()
        wait_for_shares(lambda group: (6,))
        send("alone again", 18)
    words = ("alone", "shared", "alone again")
    for group in groups:
        assert [len(member.received) > 0 for member in group.members] == [True, True]
        assert sorted(line for member in group.members for line in member.received) == sorted(
            (partition, offset, f"{topic} {word}".encode())
            for topic, partition in places
            for offset, word in enumerate(words)
        )


def test_groups_are_listed_described_reset_and_deleted(
    tools: Tools, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    times = [workload.FIRST_TIMESTAMP_MS + 1000 * k for k in range(10)]
    sender.send([(topic, 0)], *(Sample(None, b"%d" % k) for k in range(10)), timestamps_ms=times)

    def read(count: int, *arguments: object) -> list[int]:
        words = ("--topic", topic, "--group", name, "--max-messages", count)
        return [record.offset for record in tools.consume(*words, *arguments)]

    assert read(5, "--from-beginning") == [0, 1, 2, 3, 4]
    assert read(3) == [5, 6, 7]
    with ThreadPoolExecutor(2) as pool:
        listed = pool.submit(tools.run, "kafka-consumer-groups", "--list")
        described = pool.submit(tools.run, "kafka-consumer-groups", "--describe", "--group", name)
        state = pool.submit(tools.run, "kafka-consumer-groups", "--describe", "--state", "--group", name)
        at = times[4] + 1
        by_time = pool.submit(tools.run, "kafka-get-offsets", "--topic", topic, "--time", at)
        latest = pool.submit(tools.run, "kafka-get-offsets", "--topic", topic)
    assert name in listed.result().split()
    # group, topic, partition, current offset, log end, lag
    assert [name, topic, "0", "8", "10", "2"] in [line.split()[:6] for line in described.result().splitlines()]
    assert "Empty" in state.result()
    assert by_time.result().split() == [f"{topic}:0:5"]
    assert latest.result().split() == [f"{topic}:0:10"]

    moment = datetime.fromtimestamp(times[6] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    reset = ("--reset-offsets", "--group", name, "--topic", topic)
    assert "6" in tools.run("kafka-consumer-groups", *reset, "--to-datetime", moment, "--execute").split()
    assert read(4) == [6, 7, 8, 9]
    assert "0" in tools.run("kafka-consumer-groups", *reset, "--to-earliest", "--execute").split()
    tools.run("kafka-consumer-groups", "--delete", "--group", name)
    assert name not in tools.run("kafka-consumer-groups", "--list").split()
