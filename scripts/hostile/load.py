"""The well-behaved of a crowd: thousands of raw connections that produce, in one process.

One thread, one epoll, no task for a connection; each request is 1 KiB. Two ways to load brokers, by lines on the
standard input:

    closed SECONDS        every connection has one request under way all the time: the bound of the machine
    open RATE SECONDS     requests leave at a fixed rate, in spite of earlier ones, each connection in its turn

Each is answered by one line of JSON. A latency counts from when a request was due, not from when it left, so a broker
that stands still is not spared the requests that had to wait for it. `share_min` is the share of its offers that the
worst connection got; `processor` is the share of a processor that this process used: near 1, it is the bottleneck.

A connection that is told that its leader has moved goes after it, as clients do: a thread asks who leads now, the
connection is made anew, and its requests under way are sent again, with the time at which they were due. `followed`
counts how often. Requests with other errors count as lost.
"""

import json
import os
import select
import socket
import sys
import threading
import time
from array import array
from collections import deque
from contextlib import suppress
from typing import Any

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_clients.protocol.registry import decode_response
from barnabas_raftlog.records.builder import NewRecord, build_batch
from hostile.scenes.scene import Attack, produce

from .frames import Address, connect, frame_of

VERSION = 9
VALUE_BYTES = 900  # a request of 1 KiB
GRACE_S = 10.0  # for answers, after the last request
WARM_S = 5.0
POLL_S = 0.02
LOOK_S = 0.1  # between two questions who leads
MOVED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE}


class Connection:
    """One of them: the times of its open requests, and the bytes of the next answer so far."""

    __slots__ = (
        "address",
        "again",
        "answered",
        "due",
        "frame",
        "index",
        "offered",
        "received",
        "socket",
        "stale",
        "unsent",
    )

    def __init__(self, index: int, address: Address, frame: bytes) -> None:
        self.index = index
        self.frame = frame
        self.due: deque[float] = deque()
        self.again: list[float] = []  # due times of requests that go to the next leader
        self.offered = 0
        self.answered = 0
        self.stale = 0
        self.connect(address)

    def connect(self, address: Address) -> None:
        """Raises OSError: nobody is there."""
        self.socket = connect(address, timeout_s=30.0)
        self.socket.setblocking(False)
        self.address = address
        self.received = b""
        self.unsent = b""

    def send(self, due: float) -> None:
        """Send one request more; bytes that the socket does not take are sent with the next one.

        Raises:
            OSError: the broker has closed the connection.
        """
        self.due.append(due)
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


class Leaders:
    """The leaders of partitions (`now`), asked by a thread so that nobody waits; `looks`: the number of questions."""

    def __init__(self, brokers: list[Address], topic: str) -> None:
        self._attacks = [Attack([one], []) for one in brokers]
        self._topic = topic
        self.now = self._attacks[0].leaders(topic)
        self.looks = 0
        self._is_asked = threading.Event()
        threading.Thread(target=self._ask, daemon=True).start()

    def look(self) -> None:
        """Let the thread ask again."""
        self._is_asked.set()

    def _ask(self) -> None:
        number = 0
        while self._is_asked.wait():
            self._is_asked.clear()
            number += 1
            with suppress(OSError):  # TimeoutError, too: another broker is asked next.
                self.now = self._attacks[number % len(self._attacks)].leaders(self._topic)
            self.looks += 1


class Load:
    """All of them."""

    def __init__(self, brokers: list[Address], topic: str, count: int) -> None:
        self._leaders = Leaders(brokers, topic)
        leaders = self._leaders.now
        records = bytes(build_batch([NewRecord(None, bytes(VALUE_BYTES), int(time.time() * 1000))]))
        frames = [frame_of(produce(topic, records, index), VERSION, client_id="crowd") for index in leaders]
        indexes = list(leaders)
        places = [(indexes[n % len(indexes)], frames[n % len(frames)]) for n in range(count)]
        self.all = [Connection(index, leaders[index], frame) for index, frame in places]
        self._astray: dict[Connection, int] = {}  # those whose leader has moved: the look in which they were told
        self._look_at = 0.0
        self.followed = 0
        self._epoll = select.epoll()
        self._by_fd = {one.socket.fileno(): one for one in self.all}
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)
        self.latencies_s = array("d")
        self.errors: dict[str, int] = {}

    def close(self) -> None:
        for one in self.all:
            one.socket.close()
        self._epoll.close()

    def closed(self, seconds: float) -> dict[str, Any]:
        """Keep one request of each connection under way, and return the answers a second."""
        now = time.monotonic()
        from_s = now + WARM_S
        until = now + WARM_S + seconds
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
        """Offer so many requests a second, all connections in turn, and return their fates."""
        self.latencies_s = array("d")
        self.errors = {}
        self.followed = 0
        for one in self.all:
            one.offered = 0
            one.answered = 0
            one.again.clear()
            one.stale = len(one.due)  # These belong to an earlier run.
        used_s = time.process_time()
        began = time.monotonic()
        number = 0
        total = int(rate * seconds)
        while number < total:
            due = began + number / rate
            now = time.monotonic()
            if now >= due:
                self._send(self.all[number % len(self.all)], due)
                number += 1
                if number % 16:
                    continue
            self._receive(max(0.0, min(POLL_S, due - now)))
        used_s = time.process_time() - used_s
        took_s = time.monotonic() - began
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
            "followed": self.followed,
            "processor": used_s / took_s,
        }

    def _send(self, one: Connection, due: float) -> None:
        one.offered += 1
        if one in self._astray:
            one.again.append(due)
            return
        try:
            one.send(due)
        except OSError as error:
            self._failed(type(error).__name__)

    def _receive(self, timeout_s: float) -> list[Connection]:
        """Take the answers of this time, and return their connections, one for each answer."""
        if self._astray and time.monotonic() >= self._look_at:
            self._follow()
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
            found += [one] * sum([self._is_answered(one, answer, now) for answer in answers])
        return found

    def _is_answered(self, one: Connection, answer: bytes, now: float) -> bool:
        """Count one answer; False if the request goes to another leader."""
        due = one.due.popleft()
        part: Any = decode_response(ProduceRequest, answer, VERSION)
        code = part.responses[0].partition_responses[0].error_code
        if code in MOVED and not one.stale:
            one.again.append(due)
            self._astray.setdefault(one, self._leaders.looks)
            return False
        if one.stale:
            one.stale -= 1
            return True
        self.latencies_s.append(now - due)
        one.answered += not code
        if code:
            self._failed(f"error {code}")
        return True

    def _follow(self) -> None:
        """Send requests to former leaders again, as far as the new ones are known."""
        self._look_at = time.monotonic() + LOOK_S
        looks = self._leaders.looks  # First: its findings may be newer than that.
        leaders = self._leaders.now
        # A look that had begun already may have found the former leader.
        ready = [one for one, look in self._astray.items() if leaders[one.index] != one.address or looks >= look + 2]
        for one in ready:
            del self._astray[one]
            self.followed += 1
            try:
                if leaders[one.index] != one.address:
                    self._move(one, leaders[one.index])
                again = sorted(one.again)
                one.again = []
                for due in again:
                    one.send(due)
            except OSError as error:
                self._failed(type(error).__name__)
        if self._astray:
            self._leaders.look()

    def _move(self, one: Connection, address: Address) -> None:
        """Let a connection be one to another broker, where everything under way is to be sent again."""
        fd = one.socket.fileno()
        del self._by_fd[fd]
        self._epoll.unregister(fd)
        one.socket.close()
        one.again += list(one.due)[one.stale :]
        one.due.clear()
        one.stale = 0
        one.connect(address)
        self._by_fd[one.socket.fileno()] = one
        self._epoll.register(one.socket.fileno(), select.EPOLLIN)

    def _drain(self) -> None:
        """Wait for the requests under way, as long as they may take; later answers are never counted."""
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and any(one.due or one.again for one in self.all):
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
