"""Sends bytes that nobody should to every port of a broker; its other client is unharmed."""

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from machines import cluster_handle

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC = "undisturbed"


class Bystander(threading.Thread):
    """Produces all the time; every record must be acknowledged, in order, and without an error."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.acked = 0
        self.errors = list[str]()
        self._stop_asked = threading.Event()
        self._moved = threading.Condition()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "error_cb": lambda error: self.errors.append(str(error)),
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None or message.offset() != self.acked:
            self.errors.append(f"{error} at offset {message.offset()}, {self.acked} was due")
        with self._moved:
            self.acked += 1
            self._moved.notify_all()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=self._delivered)
            self._producer.poll(0.002)
        self._producer.flush(30)

    def wait_for_more(self, count: int) -> None:
        with self._moved:
            wanted = self.acked + count
            assert self._moved.wait_for(lambda: self.acked >= wanted, timeout=30), "the bystander is stuck"

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()


@pytest.fixture(scope="module")
def bystander(cluster: cluster_handle.ClusterHandle) -> Iterator[Bystander]:
    words = ("--partitions", 1, "--replication-factor", 3, "--bootstrap-server", cluster.bootstrap)
    cluster_handle.run("topic", "create", TOPIC, *words)
    client = Bystander(cluster.bootstrap)
    client.start()
    client.wait_for_more(1)
    before = cluster.pids()
    yield client
    client.finish()
    cluster_handle.run("topic", "delete", TOPIC, "--bootstrap-server", cluster.bootstrap)
    assert not client.errors
    assert cluster.pids() == before, "a broker was restarted"


def answer_to(port: int, data: bytes) -> tuple[bytes, str]:
    """Send `data`; return all bytes until the broker closes the connection, and our own address."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as link:
        host, own_port = link.getsockname()
        link.sendall(data)
        received = bytearray()
        try:
            while chunk := link.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass  # Closed with our bytes unread: closed all the same.
        return bytes(received), f"{host}:{own_port}"


class Logs:
    """The lines that brokers have logged since this was made: earlier users may have had the same ports."""

    def __init__(self, cluster: cluster_handle.ClusterHandle) -> None:
        self._begins = {path: path.stat().st_size for path in cluster.data.glob("broker-*/broker.log")}

    def lines(self, containing: str) -> list[str]:
        found = list[str]()
        for path, begin in self._begins.items():
            added = path.read_bytes()[begin:].decode()
            found += [line for line in added.splitlines() if containing in line]
        return found


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhi", api_key, version, 7) + b"\x00\x04evil"


BAD_FRAMES = {
    "a length of 2 GiB": struct.pack(">i", 2**31 - 1) + b"x" * 100,
    "a negative length": struct.pack(">i", -5) + b"x" * 100,
    "a length of zero": struct.pack(">i", 0) + frame(b""),
    "an unknown API": frame(header(9999, 0) + b"\x00" * 20),
    "a negative API": frame(header(-1, 0) + b"\x00" * 20),
    "an unknown version of Metadata": frame(header(3, 99) + b"\x00" * 20),
    "an unknown version of Produce": frame(header(0, 77) + b"\x00" * 20),
    "a truncated Metadata request": frame(header(3, 12) + b"\x00\x05"),
    "an array that lies about its length": frame(header(3, 1) + struct.pack(">i", 2**31 - 1)),
    "a string that lies about its length": frame(header(3, 1) + struct.pack(">ih", 1, 32767) + b"abc"),
    "a varint without end": frame(header(3, 12) + b"\x00" + b"\xff" * 30),
}
FOREIGN = {  # protocol: the first bytes of its clients
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(500),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_frame_closes_only_its_own_connection(
    cluster: cluster_handle.ClusterHandle, bystander: Bystander, name: str
) -> None:
    logs = Logs(cluster)
    answer, address = answer_to(cluster.port, BAD_FRAMES[name])
    assert answer == b""
    bystander.wait_for_more(5)
    assert len(logs.lines(f"closing the connection from {address}: ")) == 1, "closed with a logged reason"


@pytest.mark.parametrize("protocol", FOREIGN)
def test_who_speaks_another_protocol_is_told_of_in_words(
    cluster: cluster_handle.ClusterHandle, bystander: Bystander, protocol: str
) -> None:
    logs = Logs(cluster)
    answer, address = answer_to(cluster.port, FOREIGN[protocol])
    assert answer == b""
    (line,) = logs.lines(address)
    assert line.endswith(f"closing the connection from {address}: it speaks {protocol}, and this port does not")
    bystander.wait_for_more(5)


def test_unknown_version_of_api_versions_is_answered_as_kafka_does(cluster: cluster_handle.ClusterHandle) -> None:
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=15) as link:
        link.sendall(frame(header(18, 99) + b"\x00" * 4))
        size = struct.unpack(">i", link.recv(4, socket.MSG_WAITALL))[0]
        body = link.recv(size, socket.MSG_WAITALL)
    correlation_id, error_code, count = struct.unpack_from(">ihi", body)
    assert (correlation_id, error_code) == (7, 35)
    assert count > 0


def test_garbage_between_nodes_is_closed_and_harms_nobody(
    cluster: cluster_handle.ClusterHandle, bystander: Bystander
) -> None:
    rng = random.Random(7)
    port = cluster.port + cluster_handle.BROKER_PORT_SPACING
    logs = Logs(cluster)
    for _ in range(20):
        answer_to(port, struct.pack(">I", 2**32 - 1) + rng.randbytes(2000))
    assert logs.lines("connection with 127.0.0.1"), "closed with a logged reason"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        for size in (0, 1, 20, 100, 1200, 9000):
            for _ in range(50):
                datagrams.sendto(rng.randbytes(size), ("127.0.0.1", port))
    bystander.wait_for_more(50)


def test_a_thousand_half_open_connections_harm_nobody(
    cluster: cluster_handle.ClusterHandle, bystander: Bystander
) -> None:
    links = []
    try:
        for number in range(1000):
            link = socket.create_connection(("127.0.0.1", cluster.port), timeout=15)
            link.sendall(b"\x00\x00"[: number % 3])  # a part of a length, or nothing
            links.append(link)
        bystander.wait_for_more(50)
    finally:
        for link in links:
            link.close()


def test_random_requests_never_stop_a_broker(cluster: cluster_handle.ClusterHandle, bystander: Bystander) -> None:
    rng = random.Random(11)
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", cluster.port), timeout=15) as link:
            body = header(rng.choice((0, 1, 2, 3, 18, 19, 20, 22, 23, 60)), rng.randrange(14))
            link.sendall(frame(body + rng.randbytes(rng.randrange(200))))
    bystander.wait_for_more(20)
