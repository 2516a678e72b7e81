"""Apache Kafka's tools for leaders, directories, the quorum and clients' metrics, and a client that pushes some."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from broker.live.administration.test_telemetry import Received, collector
from broker.wire_client import Wire
from interop import runtimes
from interop.console_tools import Tools

from barnabas_broker.testing import RunningCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC = "tools"


@pytest.fixture(scope="module")
def received() -> Iterator[tuple[Received, int]]:
    with collector() as made:
        yield made


@pytest.fixture(scope="module")
def running(received: tuple[Received, int]) -> Iterator[RunningCluster]:
    settings: dict[str, str | int | bool] = {
        "client.metrics.otlp.endpoint": f"http://127.0.0.1:{received[1]}/v1/metrics"
    }
    with RunningCluster(3, settings=settings) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create(TOPIC, 3, 3)
        wire.close()
        yield running


@pytest.fixture(scope="module")
def tools(running: RunningCluster) -> Tools:
    return Tools(runtimes.kafka_jars(), running.bootstrap)


def test_leaders_directories_and_the_quorum_are_shown(tools: Tools) -> None:
    elected = tools.run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert "rror" not in elected
    directories = tools.run("kafka-log-dirs", "--describe", "--topic-list", TOPIC)
    assert directories.count(f'"partition":"{TOPIC}-') == 9
    status = tools.run("kafka-metadata-quorum", "describe", "--status")
    assert "CurrentVoters" in status
    replication = tools.run("kafka-metadata-quorum", "describe", "--replication")
    assert [line.split()[0] for line in replication.splitlines()[1:4]] == ["1", "2", "3"] or "Leader" in replication


def test_subscriptions_are_made_with_kafkas_tool_and_librdkafka_and_java_push(
    tools: Tools, running: RunningCluster, received: tuple[Received, int], tmp_path: Path
) -> None:
    words = ("--metrics", "org.apache.kafka.producer.", "--interval", 100, "--match", "client_id=pusher.*")
    tools.run("kafka-client-metrics", "--alter", "--name", "mine", *words)
    described = tools.run("kafka-client-metrics", "--describe", "--name", "mine")
    assert "client_id=pusher.*" in described
    assert "mine" in tools.run("kafka-client-metrics", "--list")
    producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap, "client.id": "pusher-1"})
    body = b""
    for _ in range(200):
        producer.produce(TOPIC, b"v")
        producer.flush(10)
        if not received[0].empty():
            _, _, body = received[0].get()
            break
        producer.poll(0.1)
    assert b"org.apache.kafka.producer." in body
    assert b"pusher-1" in body
    load = ("--topic", TOPIC, "--max-messages", 100, "--throughput", 100)  # for a second: ten intervals
    settings = tmp_path / "client.properties"
    settings.write_text("client.id=pusher-java\n")
    tools.run_alone("kafka-verifiable-producer", *load, "--command-config", settings)
    bodies = [received[0].get(timeout=10)[2]]
    while not received[0].empty():
        bodies.append(received[0].get()[2])
    of_java = [body for body in bodies if b"pusher-java" in body]
    assert of_java, "a client pushes at the latest when it is closed"
    assert any(b"org.apache.kafka.producer.record.send.total" in body for body in of_java)
    assert any(b"apache-kafka-java" in body for body in of_java), "who it is stands in what it pushed"
    tools.run("kafka-client-metrics", "--delete", "--name", "mine")
    assert "mine" not in tools.run("kafka-client-metrics", "--list")
