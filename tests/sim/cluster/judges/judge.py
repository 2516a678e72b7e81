"""Tells a run to the project's history checker, in the words of `barnabas_broker.history`.

`ClientHistory` knows the whole run and looks at each answer with this knowledge. The judge does not: it is given lines
of a history, as every recorder outside the simulator writes them, and finds broken promises by rules that know nothing
of simulations. Each line is judged when it is written, so a violation ends the run where it shows.

A commit without an answer may be taken as long as its generation lasts, even behind newer ones, as with Kafka. The
checker knows a group's offset as something that only grows; it is told that nothing is owed until the doubt is over.
"""

from hashlib import blake2b

from barnabas_broker.history import Checker, Event
from barnabas_broker.history.events import (
    Acknowledged,
    Assigned,
    CommitAcknowledged,
    CommitInvoked,
    CommittedAsked,
    CommittedFetched,
    CommittedReset,
    Consumed,
    DeclaredProducer,
    EndReached,
    Failed,
    FaultBegun,
    HighWatermarkSeen,
    Invoked,
    LogStartSeen,
    Positioned,
    Unknown,
)
from sim.cluster.world import World

__all__ = ["Judge", "Partition", "number_of"]

Partition = tuple[str, int]
OF_RECORDS = (
    Acknowledged,
    Consumed,
    DeclaredProducer,
    EndReached,
    Failed,
    HighWatermarkSeen,
    Invoked,
    LogStartSeen,
    Positioned,
    Unknown,
)


class Judge:
    """Writes a run's history. `events` are all its lines; a broken rule fails the world.

    `sees_records` False: only commits and faults are told.
    """

    def __init__(self, world: World, *, sees_records: bool = True) -> None:
        self._world = world
        self._checker = Checker()
        self._sees_records = sees_records
        self.events = list[Event]()
        self._producers = set[str]()

    def _write(self, event: Event) -> None:
        if not self._sees_records and isinstance(event, OF_RECORDS):
            return
        self.events.append(event)
        self._checker.feed(event)
        if self._checker.violations:
            self._world.violate(f"the history checker says: {self._checker.violations[0]}")

    def fault(self, kind: str, target: str) -> None:
        self._write(FaultBegun(kind=kind, target=target))

    # Producing. A value says of itself whose it is, and which: `producer-topic-partition-number`.

    def invoked(self, value: bytes, partition: Partition, *, is_idempotent: bool) -> None:
        producer, sequence = _author(value)
        if producer not in self._producers:
            self._producers.add(producer)
            self._write(DeclaredProducer(producer=producer, idempotent=is_idempotent))
        name = _name(partition)
        digest = _digest(value)
        self._write(Invoked(producer=producer, partition=name, sequence=sequence, digest=digest))

    def acknowledged(self, value: bytes, partition: Partition, offset: int) -> None:
        producer, sequence = _author(value)
        name = _name(partition)
        self._write(Acknowledged(producer=producer, partition=name, sequence=sequence, offset=offset))

    def refused(self, value: bytes, partition: Partition) -> None:
        producer, sequence = _author(value)
        self._write(Failed(producer=producer, partition=_name(partition), sequence=sequence))

    def unknown(self, value: bytes, partition: Partition) -> None:
        producer, sequence = _author(value)
        self._write(Unknown(producer=producer, partition=_name(partition), sequence=sequence))

    # Consuming.

    def positioned(self, consumer: str, partition: Partition, offset: int) -> None:
        self._write(Positioned(consumer=consumer, partition=_name(partition), offset=offset))

    def consumed(self, consumer: str, partition: Partition, offset: int, value: bytes) -> None:
        producer, sequence = _author(value)
        name = _name(partition)
        digest = _digest(value)
        self._write(
            Consumed(
                consumer=consumer, partition=name, offset=offset, producer=producer, sequence=sequence, digest=digest
            )
        )

    def ended(self, consumer: str, partition: Partition, offset: int) -> None:
        self._write(EndReached(consumer=consumer, partition=_name(partition), offset=offset))

    def high_watermark(self, observer: str, partition: Partition, offset: int) -> None:
        self._write(HighWatermarkSeen(observer=observer, partition=_name(partition), offset=offset))

    def log_start(self, partition: Partition, offset: int) -> None:
        self._write(LogStartSeen(partition=_name(partition), offset=offset))

    # Groups.

    def commit_invoked(self, group: str, partition: Partition, offset: int) -> None:
        self._write(CommitInvoked(group=group, partition=_name(partition), offset=offset))

    def commit_acknowledged(self, group: str, partition: Partition, offset: int, *, is_doubtful: bool) -> None:
        self._write(CommitAcknowledged(group=group, partition=_name(partition), offset=offset))
        if is_doubtful:
            self._write(CommittedReset(group=group, partition=_name(partition)))

    def committed_asked(self, reader: str, group: str, partition: Partition) -> None:
        self._write(CommittedAsked(reader=reader, group=group, partition=_name(partition)))

    def committed(self, reader: str, group: str, partition: Partition, offset: int) -> None:
        told = offset or None  # Nobody commits 0 here.
        self._write(CommittedFetched(reader=reader, group=group, partition=_name(partition), offset=told))

    def assigned(self, group: str, generation: int, member: str, partition: Partition) -> None:
        self._write(Assigned(group=group, generation=generation, member=member, partitions=[_name(partition)]))


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _author(value: bytes) -> tuple[str, int]:
    producer, _, rest = value.partition(b"-")
    return producer.decode(), number_of(rest)


def number_of(value: bytes) -> int:
    """Return the number of a value among its producer's."""
    return int(value.rstrip(b".").rpartition(b"-")[2])


def _digest(value: bytes) -> str:
    return blake2b(value, digest_size=8).hexdigest()
