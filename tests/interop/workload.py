"""The work for every client, in a form that three Python clients share.

A client is wrapped once (`GroupClient`: poll, assignment, commit, close) and each wrapped consumer lives in a thread of
its own (`Member`), which polls without pause, as a service would. A test waits by condition and deadline: the threads
report after each poll, and `Group.wait_until` looks again whenever one of them did.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import confluent_kafka
from machines.background import Background

POLL_S = 0.1
WAIT_LIMIT_S = 60.0
HEARTBEAT_MS = 200  # a member learns of a rebalance by its heartbeat: often, so that tests are quick
SESSION_MS = 30_000
MEBIBYTE = 1 << 20
# Room for a record of 1 MiB with its headers, its batch, and the little that a codec adds to what it cannot compress.
BATCH_BYTES_MAX = 2 * MEBIBYTE
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_700_000_000_000

Place = tuple[str, int]  # topic and partition
Headers = tuple[tuple[str, bytes | None], ...]


class Sample(NamedTuple):
    """One record as it is sent, and as it must come back."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Received(NamedTuple):
    """One record as a client returned it."""

    place: Place
    offset: int
    timestamp_ms: int
    sample: Sample


def _noise(size: int) -> bytes:
    """Return bytes that no codec makes smaller, the same in every run."""
    state = 0x9E3779B97F4A7C15
    words = []
    for _ in range(-(-size // 8)):
        state = (state ^ state << 13) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 7
        state = (state ^ state << 17) & 0xFFFFFFFFFFFFFFFF
        words.append(state.to_bytes(8, "little"))
    return b"".join(words)[:size]


SAMPLES = (
    Sample(b"key", b"value"),
    Sample(None, b"no key"),
    Sample(b"no value", None),
    Sample(b"", b""),
    Sample(
        b"headers", b"twice the same name", (("name", b"1"), ("name", b"2"), ("empty", b""), ("\N{SNOWMAN}", b"\0"))
    ),
    Sample(None, b"x"),
    *(Sample(b"%d" % size, _noise(size)) for size in (100, 10_000, 100_000)),
    Sample(b"compressible", b"again and again " * 10_000),
    Sample(b"a mebibyte", _noise(MEBIBYTE)),
    Sample(b"after the large one", b"small again"),
)
# Possible in the protocol, but not in every client.
NEITHER = Sample(None, None, (("why", b"neither key nor value"),))
NULL_HEADER = Sample(b"null header", b"value", (("null", None),))


class GroupClient(Protocol):
    """A consumer of one third-party client, as `Member` drives it, always from the same thread."""

    def poll(self, timeout_s: float) -> list[Received]: ...
    def assignment(self) -> frozenset[Place]: ...
    def commit(self) -> None:
        """Commit the positions after what `poll` returned, and wait for the answer."""

    def close(self) -> None:
        """Leave the group and let go of everything."""


class Member(Background):
    """One member of a group: polls in its thread until told to stop, and does in between what it is asked."""

    def __init__(self, name: str, join: Callable[[], GroupClient], changed: threading.Condition) -> None:
        super().__init__(name)
        self.assignment: frozenset[Place] = frozenset()
        self.received: list[Received] = []
        self.commits_done = 0
        self._join = join
        self._changed = changed
        self._commits_asked = 0
        self._stop_asked = threading.Event()

    def run(self) -> None:
        super().run()
        with self._changed:
            self._changed.notify_all()

    def work(self) -> None:
        client = self._join()
        try:
            while not self._stop_asked.is_set():
                self._turn(client)
        finally:
            client.close()

    def _turn(self, client: GroupClient) -> None:
        records = client.poll(POLL_S)
        assignment = client.assignment()
        asked = self._commits_asked
        if self.commits_done < asked:
            client.commit()
        with self._changed:
            self.received += records
            self.assignment = assignment
            self.commits_done = asked
            self._changed.notify_all()

    def ask_to_commit(self) -> None:
        self._commits_asked += 1

    @property
    def has_committed(self) -> bool:
        return self.commits_done == self._commits_asked

    def stop(self) -> None:
        self._stop_asked.set()


class Group:
    """The members of one group, and a way to wait for what becomes of them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self.members:
            member.stop()
        for member in self.members:
            member.join(WAIT_LIMIT_S)
        if error is None:
            assert not any(member.is_alive() for member in self.members), "a client did not close"
            assert not [member.failure for member in self.members if member.failure]

    def add(self, join: Callable[[], GroupClient]) -> Member:
        member = Member(f"member-{len(self.members) + 1}", join, self.changed)
        self.members.append(member)
        member.start()
        return member

    def leave(self, member: Member) -> None:
        member.stop()
        member.join(WAIT_LIMIT_S)
        assert not member.is_alive(), "a client did not close"
        assert member.failure is None, member.failure

    def commit(self, *members: Member) -> None:
        for member in members:
            member.ask_to_commit()
        self.wait_until(lambda: all(member.has_committed for member in members), "the commits")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for `condition`, looking again whenever a member did something; fail at the deadline."""
        deadline = time.monotonic() + WAIT_LIMIT_S
        with self.changed:
            while not condition():
                for member in self.members:
                    member.check()
                left = deadline - time.monotonic()
                assert left > 0, f"waited {WAIT_LIMIT_S:.0f} s for {what}: {self._state()}"
                self.changed.wait(left)

    def _state(self) -> str:
        return "; ".join(f"{m.name}: {sorted(m.assignment)}, {len(m.received)} records" for m in self.members)


def rebalance_between_two(
    join: Callable[[], GroupClient],
    produce: Callable[[Collection[Place], bytes], None],
    places: frozenset[Place],
    sizes: Sequence[int],
) -> None:
    """One member has everything, a second comes and goes; each record is seen once, by the owner of its partition.

    `sizes` is how many partitions each of the two has, the smaller first: an assignment strategy shows itself in it.
    """
    with Group() as group:
        first = group.add(join)
        group.wait_until(lambda: first.assignment == places, "the first member to own everything")
        produce(places, b"alone")
        group.wait_until(lambda: len(first.received) >= len(places), "what was sent to one member")
        # A new owner begins at the offsets committed now. Without them it would begin again.
        group.commit(first)

        second = group.add(join)
        group.wait_until(lambda: _is_split(places, first, second), "both to own a part")
        assert sorted((len(first.assignment), len(second.assignment))) == list(sizes)
        produce(places, b"shared")
        group.wait_until(
            lambda: len(first.received) + len(second.received) >= 2 * len(places), "what was sent to two members"
        )
        assert {record.place for record in second.received} == second.assignment
        group.commit(first, second)

        group.leave(second)
        group.wait_until(lambda: first.assignment == places, "the first member to own everything again")
        produce(places, b"alone again")
        group.wait_until(
            lambda: len(first.received) + len(second.received) >= 3 * len(places), "what was sent after one had left"
        )
        group.commit(first)
    seen = sorted((record.place, record.offset, record.sample.value) for record in first.received + second.received)
    words = (b"alone", b"shared", b"alone again")
    assert seen == sorted((place, offset, word) for place in places for offset, word in enumerate(words))


def restart_from_the_commit(
    join: Callable[[], GroupClient], produce: Callable[[Collection[Place], bytes], None], place: Place
) -> None:
    """A member reads and commits, reads on without a commit, and is gone: the next begins right after the commit."""
    with Group() as group:
        first = group.add(join)
        for _ in range(5):
            produce([place], b"committed")
        group.wait_until(lambda: len(first.received) >= 5, "what is to be committed")
        group.commit(first)
        for _ in range(3):
            produce([place], b"not committed")
        group.wait_until(lambda: len(first.received) >= 8, "what is not to be committed")
        group.leave(first)

        second = group.add(join)
        group.wait_until(lambda: len(second.received) >= 3, "what was not committed")
    assert [record.offset for record in first.received] == list(range(8))
    assert [(record.offset, record.sample.value) for record in second.received] == [
        (offset, b"not committed") for offset in (5, 6, 7)
    ]


def reset_to_both_ends(
    join: Callable[[str], GroupClient], produce: Callable[[Collection[Place], bytes], None], place: Place
) -> None:
    """Without a commit a group begins where `auto.offset.reset` says: at the first record, or at what comes now.

    Nothing tells from outside when a member has asked for the end, so new records are sent until one arrives: what it
    then has must be new, and without a gap from the first on. `join` gets the reset policy and makes a group of it.
    """
    for _ in range(3):
        produce([place], b"old")
    with Group() as group:
        earliest = group.add(lambda: join("earliest"))
        group.wait_until(lambda: len(earliest.received) >= 3, "the old records")
        assert [record.offset for record in earliest.received] == [0, 1, 2]

        latest = group.add(lambda: join("latest"))
        group.wait_until(lambda: latest.assignment == {place}, "the second group's member to own the partition")
        deadline = time.monotonic() + WAIT_LIMIT_S
        while not latest.received and time.monotonic() < deadline:
            produce([place], b"new")
            with group.changed:
                group.changed.wait(POLL_S)
        assert latest.received
        assert {record.sample.value for record in latest.received} == {b"new"}
        begin = latest.received[0].offset
        assert [record.offset for record in latest.received] == [begin + k for k in range(len(latest.received))]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Ask again until it is so: what a client cannot be told of.

    Such is a change of topics: a broker of Apache Kafka may answer from what it knew a moment before.
    """
    deadline = time.monotonic() + WAIT_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_LIMIT_S:.0f} s for {what}"
        time.sleep(POLL_S)


def _is_split(places: frozenset[Place], first: Member, second: Member) -> bool:
    mine = first.assignment
    theirs = second.assignment
    return bool(mine) and bool(theirs) and mine | theirs == places and not mine & theirs


def read_back(bootstrap: str, place: Place, count: int) -> list[Received]:
    """Read the first `count` records of a partition with librdkafka, so that what one client wrote another reads."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reads-back", "enable.auto.commit": False}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(*place, 0)])
        found: list[Received] = []
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), POLL_S):
                assert message.error() is None, message.error()
                found.append(received(message))
        return found
    finally:
        consumer.close()


def received(message: confluent_kafka.Message) -> Received:
    """Return a librdkafka message in the common form."""
    return Received(
        (message.topic(), message.partition()),
        message.offset(),
        message.timestamp()[1],
        Sample(message.key(), message.value(), tuple(message.headers() or ())),
    )
