"""Brokers that may open few files, while a client opens connections without end."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from machines import cluster_handle

pytestmark = [pytest.mark.process, pytest.mark.slow]

OPEN_FILES = 200  # of each broker; 72 of them for connections of clients
FLOOD = 300  # connections to each broker
PARTITIONS = 6
TIMEOUT_S = 60


class NarrowCluster(cluster_handle.ClusterHandle):
    """Its brokers may not open more than `OPEN_FILES`."""

    def start(self, timeout_s: float = 60.0) -> float:
        words = ["cluster", "start", "--data", str(self.data), "--brokers", "3", "--port", str(self.port), "--detach"]
        for setting in ("log.segment.bytes=1048576", "log.journal.file.bytes=4194304"):
            words += ["--set", setting]
        command = ["bash", "-c", f'ulimit -n {OPEN_FILES} && exec "$@"', "-", str(cluster_handle.BARNABAS), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s + 10, check=False)
        assert done.returncode == 0, done.stderr
        return 0.0


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[NarrowCluster]:
    cluster = NarrowCluster(tmp_path / "cluster", cluster_handle.free_port())
    cluster.start()
    yield cluster
    cluster.stop()


class Sent:
    """Produces to all partitions; the `acknowledged` records must be there."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.errors: list[str] = []
        timeout_ms = TIMEOUT_S * 1000
        self._producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": timeout_ms, "linger.ms": 5})

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.add((message.partition() or 0, message.offset() or 0))

    def send(self, count: int) -> None:
        for number in range(count):
            self._producer.produce("t", bytes(2_000), partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(TIMEOUT_S)


def flood(ports: list[int]) -> list[socket.socket]:
    links = []
    for port in ports:
        for _ in range(FLOOD):
            link = socket.socket()
            link.setblocking(False)
            link.connect_ex(("127.0.0.1", port))
            links.append(link)
    return links


def read_back(bootstrap: str, expected: set[tuple[int, int]]) -> set[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    found: set[tuple[int, int]] = set()
    while len(found) < len(expected):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{len(found)} of {len(expected)} records are read"
        assert message.error() is None, message.error()
        found.add((message.partition() or 0, message.offset() or 0))
    consumer.close()
    return found


def test_connections_leave_files_and_other_brokers_their_descriptors(narrow: NarrowCluster) -> None:
    words = ("--partitions", PARTITIONS, "--replication-factor", 3, "--bootstrap-server", narrow.bootstrap)
    cluster_handle.run("topic", "create", "t", *words)
    sent = Sent(narrow.bootstrap)
    sent.send(600)  # Its connections are open before the others come.
    links = flood([narrow.port + number for number in range(3)])
    while not all(broker["stats"]["connections_refused"] for broker in narrow.status()["brokers"]):
        pass  # Every question takes a while; the system lets only so many in at a time.
    sent.send(6_000)  # Segments become full, and new ones are begun.
    for link in links:
        link.close()
    sent.send(600)
    assert sent.errors == []
    assert read_back(narrow.bootstrap, sent.acknowledged) == sent.acknowledged
    for broker in narrow.status()["brokers"]:
        assert broker["storage"]["failed_replicas"] == {}
        assert broker["stats"]["connections_max"] == OPEN_FILES - 128
        assert broker["stats"]["connections_refused"] > 0
    logs = [path.read_text() for path in narrow.data.glob("broker-*/broker.log")]
    for log in logs:
        assert "connections limited: 72 and not max.connections=20000" in log
        assert "WARNING barnabas_broker.server.connections: closing the connection" in log
        assert "Too many open files" not in log
        assert "Traceback" not in log


def test_a_broker_that_may_open_too_few_files_says_so(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    port = cluster_handle.free_port(1)
    lines = [
        "node.id = 1",
        'cluster.id = "c"',
        f'log.dir = "{tmp_path}/data"',
        f'listeners = "127.0.0.1:{port}"',
        f'cluster.nodes.1 = "127.0.0.1:{port + 1000}"',
    ]
    file.write_text("\n".join(lines))
    command = ["bash", "-c", 'ulimit -n 100 && exec "$@"', "-", str(cluster_handle.BARNABAS)]
    done = subprocess.run(
        [*command, "broker", "run", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ.copy(),
    )
    assert done.returncode == 1
    assert "may open 100 files, a broker needs 160 at least" in done.stderr
