"""The well-behaved of a crowd: raw connections that produce 1 KiB at a time, thousands of them in one process.

One thread, one epoll, no task for a connection. Two ways to load brokers, by lines on the standard input:

    closed SECONDS        every connection has one request under way all the time: what the machine carries
    open RATE SECONDS     requests leave at a fixed rate, whatever happens to those before, each connection in its turn

Each is answered by one line of JSON. A latency counts from when a request was due, not from when it left, so a broker
that stands still is not spared the requests that had to wait for it. Errors count as nothing that was had: nobody here
goes after a leader that has moved. `share_min` is what the connection that had least got of what it offered;
`processor` is how much of a processor this process used: near 1, it is the bottleneck.
"""

import json
import os
import select
import socket
import sys
import time
from array import array
from collections import deque
from typing import Any

from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_clients.protocol.registry import decode_response
from barnabas_raftlog.records.builder import NewRecord, build_batch

from .frames import Address, connect, frame_of
from .scene import Attack, produce

VERSION = 9
VALUE_BYTES = 900  # a request of 1 KiB
GRACE_S = 10.0  # for answers, after the last request
WARM_S = 5.0
POLL_S = 0.02


class Connection:
    """One of them: since when it waits for which answers, and what has come of the next one."""

    __slots__ = ("answered", "due", "frame", "offered", "received", "socket", "stale", "unsent")

    def __init__(self, address: Address, frame: bytes) -> None:
        self.socket = connect(address, timeout_s=30.0)
        self.socket.setblocking(False)
        self.frame = frame
        self.due: deque[float] = deque()
        self.received, self.unsent = b"", b""
        self.offered = self.answered = self.stale = 0

    def send(self, due: float) -> None:
        """Send one request more; what the socket does not take is sent with the next one.

        Raises:
            OSError: the broker has closed the connection.
        """
        self.due.append(due)
        self.offered += 1
        data = self.unsent + self.frame
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        self.unsent = data[sent:]

    def take(self) -> list[bytes]:
        """Return the answers that are here.

        Raises:
            OSError: the broker has closed the connection.
        """
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        self.received += data
        found = []
        while len(self.received) >= 4 and len(self.received) >= (end := 4 + int.from_bytes(self.received[:4], "big")):
            found.append(self.received[4:end])
            self.received = self.received[end:]
        return found


class Load:
    """All of them."""

    def __init__(self, brokers: list[Address], topic: str, count: int) -> None:
        leaders = Attack(brokers, []).leaders(topic)
        records = bytes(build_batch([NewRecord(None, bytes(VALUE_BYTES), int(time.time() * 1000))]))
        frames = [frame_of(produce(topic, records, index), VERSION, client_id="crowd") for index in leaders]
        indexes = list(leaders)
        self.all = [Connection(leaders[indexes[n % len(indexes)]], frames[n % len(frames)]) for n in range(count)]
        self._epoll = select.epoll()
        self._by_fd = {one.socket.fileno(): one for one in self.all}
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)
        self.latencies_s = array("d")
        self.errors: dict[str, int] = {}

    def closed(self, seconds: float) -> dict[str, Any]:
        """Keep one request of each connection under way, and return what came back a second."""
        now = time.monotonic()
        from_s, until = now + WARM_S, now + WARM_S + seconds
        count = 0
        for one in self.all:
            self._send(one, now)
        while (now := time.monotonic()) < until:
            for one in self._receive(POLL_S):
                count += now >= from_s
                self._send(one, now)
        self._drain()
        return {"per_s": count / seconds}

    def open(self, rate: float, seconds: float) -> dict[str, Any]:
        """Offer so many requests a second, all connections in turn, and return how they fared."""
        self.latencies_s, self.errors = array("d"), {}
        for one in self.all:
            one.offered = one.answered = 0
            one.stale = len(one.due)  # Whatever comes of these belongs to an earlier run.
        used_s, began = time.process_time(), time.monotonic()
        number, total = 0, int(rate * seconds)
        while number < total:
            due = began + number / rate
            now = time.monotonic()
            if now >= due:
                self._send(self.all[number % len(self.all)], due)
                number += 1
                if number % 16:
                    continue
            self._receive(max(0.0, min(POLL_S, due - now)))
        used_s, took_s = time.process_time() - used_s, time.monotonic() - began
        self._drain()
        shares = [one.answered / one.offered for one in self.all if one.offered]
        ranked = sorted(self.latencies_s)
        return {
            "offered": total,
            "answered": len(ranked),
            "p50_ms": _percentile_ms(ranked, 0.5),
            "p99_ms": _percentile_ms(ranked, 0.99),
            "longest_ms": _percentile_ms(ranked, 1.0),
            "share_min": min(shares, default=0.0),
            "below_95": sum(share < 0.95 for share in shares),
            "errors": self.errors,
            "processor": used_s / took_s,
        }

    def _send(self, one: Connection, due: float) -> None:
        try:
            one.send(due)
        except OSError as error:
            self._failed(type(error).__name__)

    def _receive(self, timeout_s: float) -> list[Connection]:
        """Take what has come within this time, and return who has been answered, once for each answer."""
        found: list[Connection] = []
        for fd, _ in self._epoll.poll(timeout_s):
            one = self._by_fd[fd]
            try:
                answers = one.take()
            except OSError as error:
                self._failed(type(error).__name__)
                self._epoll.unregister(fd)
                continue
            now = time.monotonic()
            for answer in answers:
                due = one.due.popleft()
                if one.stale:
                    one.stale -= 1
                    continue
                self.latencies_s.append(now - due)
                part: Any = decode_response(ProduceRequest, answer, VERSION)
                code = part.responses[0].partition_responses[0].error_code
                one.answered += not code
                if code:
                    self._failed(f"error {code}")
            found += [one] * len(answers)
        return found

    def _drain(self) -> None:
        """Wait for what is under way, for as long as that may take; what comes later is never counted."""
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and any(one.due for one in self.all):
            self._receive(POLL_S)

    def _failed(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1


def _percentile_ms(ranked: list[float], share: float) -> float:
    return round(ranked[min(len(ranked) - 1, int(len(ranked) * share))] * 1000, 2) if ranked else -1.0


def main(topic: str, count: int, ports: list[int]) -> None:
    load = Load([("127.0.0.1", port) for port in ports], topic, count)
    os.set_blocking(sys.stdin.fileno(), True)
    socket.setdefaulttimeout(None)
    print("ready", flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        found = load.closed(float(numbers[0])) if word == "closed" else load.open(*map(float, numbers))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [int(port) for port in sys.argv[3:]])
