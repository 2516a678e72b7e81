"""Writes topics with committed, aborted and open transactions, and says which records each level of isolation has."""

import uuid
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["LEVELS", "PARTITIONS", "Told", "Transactional", "write_transactional"]

LEVELS = ("read_committed", "read_uncommitted")
PARTITIONS = 4
COMMITTED, ABORTED, OPEN, PLAIN = "committed", "aborted", "open", "plain"
DEADLINE_S = 30
# What becomes of the records of each round, partition by partition; a round's transaction is in all that it names.
STORY = (
    (PLAIN, (0, 1, 2)),
    (ABORTED, (0, 1, 3)),
    (COMMITTED, (0, 1)),
    (ABORTED, (0, 3)),
    (COMMITTED, (0, 2)),
    (ABORTED, (1, 2, 3)),
    (PLAIN, (0, 2)),
    (COMMITTED, (0, 1)),
)
RECORDS = 5


class Told(NamedTuple):
    """A record, and whether a level of isolation has it."""

    partition: int
    key: str
    value: str
    is_committed: bool


class Transactional(NamedTuple):
    """A topic, and what was written there.

    Partition 0 ends with a marker, 1 and 2 have an open transaction, 1 has committed records behind it, and 3 has
    nothing but what was aborted.

    `producer` has the open transaction, as long as it lives.
    """

    topic: str
    told: tuple[Told, ...]
    producer: Any

    def expected(self, level: str) -> list[tuple[int, str]]:
        """Return partition and value of each record that a level shows, in the order of partitions and offsets."""
        rows = [one for one in self.told if one.is_committed or level == "read_uncommitted"]
        return [(one.partition, one.value) for one in sorted(rows, key=lambda one: one.partition)]

    def close(self) -> None:
        """End the open transaction."""
        self.producer.abort_transaction(DEADLINE_S)


def write_transactional(bootstrap: str) -> Transactional:
    """Write a topic; what stands behind the open transaction is not committed for a reader, whatever it was."""
    topic = f"transactional-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(DEADLINE_S)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 1}
    plain = Producer(settings)
    writers = [_transactional(settings, f"{topic}-{number}") for number in range(2)]
    told: list[Told] = []

    def write(producer: Any, turn: int, outcome: str, partitions: tuple[int, ...]) -> None:
        for number in range(RECORDS):
            for partition in partitions:
                key, value = f"key {number}", f"{outcome} {turn}.{number}"
                producer.produce(topic, key=key, value=value, partition=partition)
                told.append(Told(partition, key, value, outcome in {COMMITTED, PLAIN}))
        assert producer.flush(DEADLINE_S) == 0

    for turn, (outcome, partitions) in enumerate(STORY):
        producer = plain if outcome == PLAIN else writers[turn % 2]
        if outcome != PLAIN:
            producer.begin_transaction()
        write(producer, turn, outcome, partitions)
        if outcome == COMMITTED:
            producer.commit_transaction(DEADLINE_S)
        elif outcome == ABORTED:
            producer.abort_transaction(DEADLINE_S)
    writers[0].begin_transaction()
    write(writers[0], 100, OPEN, (1, 2))
    writers[1].begin_transaction()
    behind = len(told)
    write(writers[1], 101, COMMITTED, (0, 1))
    writers[1].commit_transaction(DEADLINE_S)
    told[behind:] = [one._replace(is_committed=one.partition == 0) for one in told[behind:]]
    return Transactional(topic, tuple(told), writers[0])


def _transactional(settings: dict[str, Any], name: str) -> Any:
    producer = Producer({**settings, "transactional.id": name, "transaction.timeout.ms": 600_000})
    producer.init_transactions(DEADLINE_S)
    return producer
