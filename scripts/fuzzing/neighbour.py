"""A well-behaved client beside the hostile ones, which notices their effect on others.

It is a process of its own. It produces with acknowledgements, consumes in a group, and asks for the API versions
without a pause. At the end it reads everything once more and compares. Of each pause it notes how long the thread of
the broker's loop was running meanwhile: the rest is the machine's, which had others to run.
"""

import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.registry import encode_request

__all__ = ["GROUP", "TOPIC", "Neighbour", "Noticed", "neighbour"]

TOPIC = "quiet-neighbour"
GROUP = "quiet-neighbours"
RECORDS_PER_S = 100
BEAT_S = 0.02
BEAT_LIMIT_S = 30.0
READ_LIMIT_S = 60.0
QUESTION = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "neighbour"))


class Noticed(NamedTuple):
    """The neighbour's report at the end; `trouble` is empty if nobody has harmed it.

    `pause_s` is the longest time of an answer; `busy_s` is the time for which the broker's loop was running in the
    longest pause by this measure.
    """

    acked: int
    consumed: int
    beats: int
    pause_s: float
    busy_s: float
    trouble: list[str]


class Neighbour:
    """The other end of its process."""

    def __init__(self, pipe: "Connection") -> None:
        self._pipe = pipe

    def finish(self) -> Noticed:
        """Let it stop, read everything, and report."""
        self._pipe.send("stop")
        if not self._pipe.poll(2 * READ_LIMIT_S):
            return Noticed(
                acked=0, consumed=0, beats=0, pause_s=0.0, busy_s=0.0, trouble=["the neighbour does not come to an end"]
            )
        found: Noticed = self._pipe.recv()
        return found


@contextmanager
def neighbour(bootstrap: str, pid: int) -> Iterator[Neighbour]:
    """Let a neighbour live beside the caller; its topic must exist. `pid`: of the first broker."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_live, args=(bootstrap, pid, theirs), name="neighbour", daemon=True)
    process.start()
    try:
        ours.recv()  # It has begun.
        yield Neighbour(ours)
    finally:
        process.join(5)
        if process.is_alive():
            process.kill()


class _Heart(threading.Thread):
    """Asks a broker for its API versions, again and again on one connection."""

    def __init__(self, address: tuple[str, int], pid: int) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._ran = Path(f"/proc/{pid}/schedstat")
        self.stopping = threading.Event()
        self.beats = 0
        self.pause_s = 0.0
        self.busy_s = 0.0
        self.trouble: list[str] = []

    def run(self) -> None:
        try:
            with socket.create_connection(self._address, timeout=BEAT_LIMIT_S) as sock:
                while not self.stopping.wait(BEAT_S):
                    self._beat(sock)
        except OSError as error:
            self.trouble.append(f"the heartbeat's connection: {type(error).__name__}: {error}")

    def _beat(self, sock: socket.socket) -> None:
        start = time.monotonic()
        ran_s = self._ran_s()
        sock.sendall(QUESTION)
        _exactly(sock, int.from_bytes(_exactly(sock, 4), "big"))
        self.beats += 1
        self.pause_s = max(self.pause_s, time.monotonic() - start)
        self.busy_s = max(self.busy_s, self._ran_s() - ran_s)

    def _ran_s(self) -> float:
        """Return how long the broker's first thread has been running, which is that of its loop."""
        return int(self._ran.read_text(encoding="ascii").split()[0]) / 1e9


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise ConnectionResetError("closed by the broker")
        data += chunk
    return data


class _Producing:
    """Records whose value says their number; `acked` has the offset of each that was acknowledged."""

    def __init__(self, bootstrap: str, trouble: list[str]) -> None:
        self.acked: dict[int, bytes] = {}
        self._trouble = trouble
        self._number = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})

    def turn(self) -> None:
        value = b"%d:%s" % (self._number, b"neighbour" * 10)
        self._number += 1
        self._producer.produce(
            TOPIC, value, partition=0, on_delivery=lambda error, message: self._delivered(error, message, value)
        )
        self._producer.poll(1 / RECORDS_PER_S)

    def _delivered(self, error: KafkaError | None, message: Message, value: bytes) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            self._trouble.append(f"produce: {error}")
        elif offset in self.acked:
            self._trouble.append(f"offset {offset} was given out twice")
        else:
            self.acked[offset] = value

    def finish(self) -> None:
        if left := self._producer.flush(READ_LIMIT_S):
            self._trouble.append(f"{left} records are unanswered")


def _consumer(bootstrap: str, group: str, *, commits: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": commits,
            "auto.commit.interval.ms": 1_000,
        }
    )


def _consume(consumer: Consumer, bound_s: float) -> Iterator[tuple[int, bytes]]:
    """Yield what is there; end when nothing comes for `bound_s`."""
    while (message := consumer.poll(bound_s)) is not None:
        offset = message.offset()
        value = message.value()
        if message.error() is None and offset is not None and value is not None:
            yield offset, value


def _audit(bootstrap: str, acked: dict[int, bytes], trouble: list[str]) -> int:
    """Read everything once more; return how many records there are."""
    consumer = _consumer(bootstrap, f"{GROUP}-audit", commits=False)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + READ_LIMIT_S
    while acked and max(acked) not in found and time.monotonic() < deadline:
        found.update(_consume(consumer, 1.0))
    consumer.close()
    wrong = [offset for offset, value in acked.items() if found.get(offset) != value]
    if wrong:
        trouble.append(f"{len(wrong)} of {len(acked)} acknowledged records are missing or changed, first {min(wrong)}")
    return len(found)


def _live(bootstrap: str, pid: int, pipe: "Connection") -> None:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    trouble: list[str] = []
    heart = _Heart((host, int(port)), pid)
    producing = _Producing(bootstrap, trouble)
    consumer = _consumer(bootstrap, GROUP, commits=True)
    consumer.subscribe([TOPIC])
    seen: dict[int, bytes] = {}
    heart.start()
    pipe.send("begun")
    while not pipe.poll():
        producing.turn()
        seen.update(_consume(consumer, 0.0))
    heart.stopping.set()
    heart.join(BEAT_LIMIT_S)
    producing.finish()
    consumer.close()
    _audit(bootstrap, producing.acked, trouble)
    wrong = [offset for offset, value in seen.items() if producing.acked.get(offset, value) != value]
    if wrong or not seen:
        trouble.append(f"consumed {len(seen)} records, {len(wrong)} of them other than what was acknowledged")
    if not heart.beats or heart.is_alive():
        trouble.append("the heartbeat stands still")
    noticed = (len(producing.acked), len(seen), heart.beats, heart.pause_s, heart.busy_s, trouble + heart.trouble)
    pipe.send(Noticed(*noticed))
