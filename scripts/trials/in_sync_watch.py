"""Watches the in-sync replicas ten times a second, and the refusals for want of them.

A replica is *excused* from the moment in which a fault strikes its broker until `replica.lag.time.max.ms` and two round
trips after the mending: then it must be back. Any other that is missing from its partition's in-sync replicas is a
failure, as is a produce request that a broker refused for too few of them while nobody was excused.

A leader knows the progress of its followers only as of their last answers. Those overtake each other if records come
more often than a round trip, and a rule for in-sync replicas must be right then, too. Producers that wait for
acknowledgements pause in between, so `Steady` is one that does not.

`Excuses` is pure; `InSyncWatch` asks as any client does, for the metadata of all topics, and reads the brokers' logs. A
partition whose leader is not known at the moment has no in-sync replicas to speak of: pauses measure that.
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["Excuses", "InSync", "InSyncWatch", "Steady", "refusals"]

INTERVAL_S = 0.1
ANSWER_TIMEOUT_S = 2.0
STEADY_TOPIC = "steady"
STEADY_PARTITIONS = 3
STEADY_RECORDS_PER_S = 900
STEADY_ACKS_ALL_EVERY = 30
QUEUED_MAX = 10_000
# 2026-11-21 23:18:03,221 INFO barnabas_broker.status.events: torture-3: acks=all refused: in sync are [1], ...
_REFUSED = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \w+ barnabas_broker\.status\.events: (.*acks=all refused.*)"
)


class InSync(NamedTuple):
    """One partition, as a client was told."""

    replicas: frozenset[int]
    in_sync: frozenset[int]


class Excuses:
    """The times in which replicas may be out of sync, and the violations. Times are seconds of any one clock."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._spans: list[tuple[int, float, float]] = []
        self._open: dict[int, float] = {}
        self._missing: set[tuple[str, int]] = set()
        self.samples = 0
        self.violations: list[str] = []

    def strike(self, node_ids: Iterable[int], at_s: float) -> None:
        for node_id in node_ids:
            self._open.setdefault(node_id, at_s)

    def mend(self, node_ids: Iterable[int], at_s: float) -> None:
        for node_id in node_ids:
            if (since_s := self._open.pop(node_id, None)) is not None:
                self._spans.append((node_id, since_s, at_s + self.grace_s))

    def spare(self, node_ids: Iterable[int], at_s: float) -> None:
        """End the excuse of these without a grace: they were not struck after all."""
        for node_id in node_ids:
            if (since_s := self._open.pop(node_id, None)) is not None:
                self._spans.append((node_id, since_s, at_s))

    def excused(self, from_s: float, to_s: float) -> set[int]:
        """Return the nodes that were excused at any time between."""
        closed = {node_id for node_id, since_s, until_s in self._spans if since_s <= to_s and from_s <= until_s}
        return closed | {node_id for node_id, since_s in self._open.items() if since_s <= to_s}

    def sample(self, asked_s: float, answered_s: float, partitions: Mapping[str, InSync]) -> None:
        """Judge one answer. One replica that stays missing is one violation."""
        self.samples += 1
        excused = self.excused(asked_s, answered_s)
        missing = {
            (name, node_id)
            for name, partition in partitions.items()
            for node_id in partition.replicas - partition.in_sync - excused
        }
        for name, node_id in sorted(missing - self._missing):
            self.violations.append(f"{name}: replica {node_id} is out of sync without a fault, at {asked_s:.1f} s")
        self._missing = missing


def refusals(lines: Iterable[str]) -> list[tuple[float, str]]:
    """Return the brokers' refusals for too few replicas in sync: seconds since 1970, and the event."""
    found = (_REFUSED.match(line) for line in lines)
    # Local time, as logged.
    return [
        (datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp(), match[2])  # noqa: DTZ007
        for match in found
        if match is not None
    ]


class InSyncWatch(threading.Thread):
    """Samples until `finish`, which returns all violations. `round_trip_s`: between two brokers."""

    def __init__(self, bootstrap: str, logs: Iterable[Path], lag_max_s: float, round_trip_s: float = 0.0) -> None:
        super().__init__(name="in sync", daemon=True)
        self.excuses = Excuses(lag_max_s + 2 * round_trip_s)
        self.refused_in_faults = 0
        self._logs = list(logs)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 2_000, "log_level": 0})
        self._lock = threading.Lock()
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(INTERVAL_S):
            asked_s = time.time()
            try:
                topics = self._admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
            except KafkaException:
                continue  # The broker that was asked has just been killed.
            partitions = {
                f"{topic.topic}-{number}": InSync(frozenset(known.replicas), frozenset(known.isrs))
                for topic in topics.values()
                for number, known in topic.partitions.items()
                if known.leader > 0
            }
            with self._lock:
                self.excuses.sample(asked_s, time.time(), partitions)

    def strike(self, node_ids: Iterable[int]) -> None:
        """Note that a fault is about to strike these brokers."""
        with self._lock:
            self.excuses.strike(node_ids, time.time())

    def spare(self, node_ids: Iterable[int]) -> None:
        """Note that it has struck, and not these."""
        with self._lock:
            self.excuses.spare(node_ids, time.time())

    def mend(self, node_ids: Iterable[int]) -> None:
        """Note that these brokers serve again."""
        with self._lock:
            self.excuses.mend(node_ids, time.time())

    @contextmanager
    def fault(self, node_ids: Iterable[int]) -> Iterator[None]:
        """Excuse these brokers for as long as the block."""
        struck = list(node_ids)
        self.strike(struck)
        try:
            yield
        finally:
            self.mend(struck)

    def finish(self) -> list[str]:
        """Stop, read the logs, and return every replica and every refusal that had no excuse."""
        self._stop_asked.set()
        self.join()
        wrong = list(self.excuses.violations)
        for log in self._logs:
            with log.open(errors="replace") as lines:
                for at_s, text in refusals(lines):
                    if self.excuses.excused(at_s, at_s):
                        self.refused_in_faults += 1
                    else:
                        wrong.append(f"refused without a fault: {text}")
        return wrong

    def summary(self) -> str:
        return (
            f"in-sync replicas sampled {self.excuses.samples:,} times; "
            f"partitions refused acks=all {self.refused_in_faults} times during faults"
        )


class Steady(threading.Thread):
    """Sends a record every millisecond or so to one of three partitions, and waits for nothing.

    Nearly all go with acks=1, so that any number can be under way; every thirtieth asks for acks=all on another
    connection, and is refused if too few replicas are in sync. Nobody counts the arrivals: a fault may lose some.

    Limit: `QUEUED_MAX` records wait in each client; further ones are not sent.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="steady", daemon=True)
        self._stop_asked = threading.Event()
        common = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 0,
            "max.in.flight": 100_000,
            "retries": 0,
            "message.timeout.ms": 5_000,
            "queue.buffering.max.messages": QUEUED_MAX,
            "log_level": 0,
        }
        self._producers = (Producer({**common, "acks": 1}), Producer({**common, "acks": "all"}))
        topic = NewTopic(STEADY_TOPIC, STEADY_PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([topic], operation_timeout=30)[STEADY_TOPIC].result(60)

    def run(self) -> None:
        value = b"x" * 100
        number = 0
        due = time.monotonic()
        while not self._stop_asked.is_set():
            due = max(due + 1 / STEADY_RECORDS_PER_S, time.monotonic() - 1.0)
            while (left_s := due - time.monotonic()) > 0:
                self._producers[0].poll(left_s)
            number += 1
            producer = self._producers[number % STEADY_ACKS_ALL_EVERY == 0]
            with suppress(BufferError):
                producer.produce(STEADY_TOPIC, value, partition=number % STEADY_PARTITIONS)
            producer.poll(0)

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()
        for producer in self._producers:
            producer.purge()
