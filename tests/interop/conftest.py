"""Starts the brokers for third-party clients, and reports missing runtimes.

There are three Barnabas brokers, shared with the other tests of the run. `BARNABAS_INTEROP_BOOTSTRAP=host:port` drives
the same tests against something else: against Apache Kafka they say whether a test asks for what Kafka does.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from bench import systems
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from interop import console_tools, runtimes, workload

NewTopicMaker = Callable[..., str]
NOT_YET = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.OFFSET_NOT_AVAILABLE}


@pytest.fixture(scope="session", autouse=True)
def _tools_end() -> Iterator[None]:
    """End the JVM of the console tools with the last test."""
    yield
    console_tools.HOST.end()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    if given := os.environ.get("BARNABAS_INTEROP_BOOTSTRAP"):
        return given
    return str(request.getfixturevalue("cluster").bootstrap)


@pytest.fixture(scope="session")
def kafka_alone() -> Iterator[str]:
    """Apache Kafka, one node, for who compares its answers with ours: nobody changes its configurations."""
    runtimes.kafka_jars()
    with systems.kafka(synced=False, nodes=1, settings={"group.initial.rebalance.delay.ms": 0}) as peer:
        yield peer.address


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """An administrator for what a test needs but does not test."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def replicas(admin: AdminClient) -> int:
    return min(3, len(admin.list_topics(timeout=20).brokers))


@pytest.fixture
def name() -> str:
    """A name that nobody else uses, for a topic or a group."""
    return f"interop-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def new_topic(admin: AdminClient, replicas: int) -> Iterator[NewTopicMaker]:
    """Make topics of that many partitions, with leaders, that are deleted when the module is done."""
    made = []

    def make(partitions: int = 1, **configs: str) -> str:
        topic = f"interop-{uuid.uuid4().hex[:12]}"
        wanted = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(topic, partitions, replicas, config=wanted)])[topic].result(20)
        made.append(topic)
        wait_for_leaders(admin, topic, partitions)
        return topic

    yield make
    for future in admin.delete_topics(made).values() if made else ():
        future.result(20)


@pytest.fixture(scope="module")
def codec_topic(new_topic: NewTopicMaker) -> str:
    """A topic with a partition for each compression, that takes a record of 1 MiB."""
    return new_topic(len(workload.COMPRESSIONS), max_message_bytes=str(workload.BATCH_BYTES_MAX))


def wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    """Wait until every partition has a leader that answers as one: Kafka may name a broker before that knows it."""
    deadline = time.monotonic() + 20
    while not has_leaders(admin, topic, partitions):
        assert time.monotonic() < deadline, f"{topic} has no leaders"
        time.sleep(0.02)  # between two questions; nothing announces a leader to a client


def has_leaders(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    if len(found) != partitions or any(partition.leader < 0 for partition in found):
        return False
    ends = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    errors = [end.exception(20) for end in admin.list_offsets(ends, request_timeout=10).values()]
    for error in errors:
        if error is not None and error.args[0].code() not in NOT_YET:
            raise error
    return not any(errors)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skipped if "tests/interop/" in report.nodeid]
    for line in runtimes.summary(reasons):
        terminalreporter.write_line(line, yellow=True)
