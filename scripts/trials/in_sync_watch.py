"""Watches the in-sync replicas ten times a second, and the refusals for want of them.

A replica is *excused* from the moment in which a fault strikes its broker until `replica.lag.time.max.ms` and two round
trips after the mending: then it must be back. Any other that is missing from its partition's in-sync replicas is a
failure, as is a produce request that a broker refused for too few of them while nobody was excused.

All are excused while the computer gives one of the brokers no processor (`machines/processors.py`), and as long after
that: a broker that cannot run is silent, and what the others then see of it, or it of them, is true.

A leader knows the progress of its followers only as of their last answers. Those overtake each other if records come
more often than a round trip, and a rule for in-sync replicas must be right then, too. Producers that wait for
acknowledgements pause in between, so `Steady` is one that does not.

`Excuses` is pure; `InSyncWatch` asks as any client does, for the metadata of all topics, and reads the brokers' logs. A
partition whose leader is not known at the moment has no in-sync replicas to speak of: pauses measure that.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from machines.processors import Waits, waited_s

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


class Missing:
    """A replica that is out of sync without a fault, from one answer to another."""

    def __init__(self, name: str, node_id: int, first_s: float) -> None:
        self.name = name
        self.node_id = node_id
        self.first_s = first_s
        self.last_s: float | None = None

    def __str__(self) -> str:
        return f"{self.name}: replica {self.node_id} is out of sync without a fault, at {self.first_s:.1f} s"


class Excuses:
    """The times in which replicas may be out of sync, and the violations. Times are seconds of any one clock."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._spans: list[tuple[int, float, float]] = []
        self._open: dict[int, float] = {}
        self._missing: dict[tuple[str, int], Missing] = {}
        self._found: list[Missing] = []
        self._starved: list[tuple[float, float]] = []
        self.samples = 0

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
        """Return the nodes that were struck, and excused for it, at any time between."""
        closed = {node_id for node_id, since_s, until_s in self._spans if since_s <= to_s and from_s <= until_s}
        return closed | {node_id for node_id, since_s in self._open.items() if since_s <= to_s}

    def sample(self, asked_s: float, answered_s: float, partitions: Mapping[str, InSync]) -> None:
        """Take in one answer. One replica that stays missing is one violation."""
        self.samples += 1
        excused = self.excused(asked_s, answered_s)
        missing = {
            (name, node_id)
            for name, partition in partitions.items()
            for node_id in partition.replicas - partition.in_sync - excused
        }
        self._missing = {place: self._missing.get(place) or Missing(*place, asked_s) for place in sorted(missing)}
        for found in self._missing.values():
            if found.last_s is None:
                self._found.append(found)
            found.last_s = answered_s

    def starve(self, spans: Iterable[tuple[float, float]]) -> None:
        """Note when brokers had no processor; this takes the place of what was noted before."""
        self._starved = [(since_s, until_s + self.grace_s) for since_s, until_s in spans]

    def is_starved(self, from_s: float, to_s: float) -> bool:
        """Tell whether brokers had no processor, or have had it for less than the grace, for all of that time."""
        is_within = False
        for since_s, until_s in self._starved:  # in the order of time
            if since_s <= from_s <= until_s:
                from_s, is_within = until_s, True
        return is_within and from_s >= to_s

    @property
    def violations(self) -> list[str]:
        return [str(one) for one in self._found if not self.is_starved(one.first_s, one.last_s or one.first_s)]


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
    """Samples until `finish`, which returns all violations.

    Args:
        bootstrap: Where the brokers are.
        logs: What they log, where refusals are found.
        pids: Returns the processes of those that run.
        lag_max_s: Their `replica.lag.time.max.ms`.
        round_trip_s: Between two of them.
    """

    def __init__(
        self,
        bootstrap: str,
        logs: Iterable[Path],
        pids: Callable[[], Iterable[int]],
        lag_max_s: float,
        round_trip_s: float = 0.0,
    ) -> None:
        super().__init__(name="in sync", daemon=True)
        self.excuses = Excuses(lag_max_s + 2 * round_trip_s)
        self.refused_in_faults = 0
        self._logs = list(logs)
        self._pids = pids
        self._waits = Waits()
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 2_000, "log_level": 0})
        self._lock = threading.Lock()
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(INTERVAL_S):
            asked_s = time.time()
            waits = ((pid, waited_s(pid)) for pid in self._pids())
            self._waits.sample(asked_s, ((pid, waited) for pid, waited in waits if waited is not None))
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
        self.excuses.starve(self._waits.spans)
        wrong = self.excuses.violations
        for log in self._logs:
            with log.open(errors="replace") as lines:
                for at_s, text in refusals(lines):
                    if self.excuses.excused(at_s, at_s) or self.excuses.is_starved(at_s, at_s):
                        self.refused_in_faults += 1
                    else:
                        wrong.append(f"refused without a fault: {text}")
        return wrong

    def summary(self) -> str:
        return (
            f"in-sync replicas sampled {self.excuses.samples:,} times; "
            f"partitions refused acks=all {self.refused_in_faults} times during faults; "
            f"brokers without a processor {len(self._waits.spans)} times"
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
