"""Transactions in a compacted topic: every replica, however it was compacted, gives the same committed rows.

The records of a feeder here have one of a few keys. While transactions are open, aborted and taken over, segments are
sealed and compacted on each replica for itself. At the end each replica is read by itself, whoever leads: of every key
the newest committed record must be there, and nothing that was aborted. `spent` looks into their files.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from barnabas_broker.history import Event
from barnabas_broker.history import events as e
from sim.cluster.judges.history import Partition
from sim.cluster.transactions.clients import RECORDS_A_TRANSACTION, Feeder
from sim.cluster.transactions.reader import CommittedReader
from sim.cluster.transactions.telling import Telling, key_of, name_of
from sim.cluster.world import SECOND

from .side import Side, Surroundings
from .spent import compare_markers

__all__ = ["Kept"]

FEEDERS = 2
KEYS = 5
DELETE_RETENTION_MS = 1_500
READING_US = 60 * SECOND
NOBODYS_RACK = "nobody's"


class _Row(NamedTuple):
    """A record that was acknowledged."""

    place: str
    offset: int
    key: bytes | None


class _KeyedFeeder(Feeder):
    """Gives each record one of a few keys, by turns."""

    async def fill(self, telling: Telling, transaction: str) -> None:
        rng = self.client.rng
        for _ in range(rng.randrange(1, RECORDS_A_TRANSACTION)):
            await telling.send(transaction, rng.choice(self.partitions), keys=KEYS)


class _KeptReader(CommittedReader):
    """Reads one partition of the leader or, if `node_id` is given, of that broker alone."""

    has_holes = True

    def __init__(self, around: Surroundings, partition: Partition, node_id: int = 0) -> None:
        rack = NOBODYS_RACK if node_id else ""
        super().__init__(around.new_client(), around.history, around.availability, partition, around.ledger, rack)
        self.node_id = node_id
        self.keys = dict[int, bytes | None]()

    async def _fetch(self) -> None:
        self._replica = self.node_id or None
        await super()._fetch()

    def on_record(self, offset: int, key: bytes | None, value: bytes) -> None:
        super().on_record(offset, key, value)
        self.keys[offset] = key


class Kept(Side):
    """The part of a run that has a compacted topic."""

    topic = "kept"

    def __init__(self, around: Surroundings, segment_ms: int) -> None:
        super().__init__(around, 1)
        self.configs = {
            "segment.ms": str(segment_ms),
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": str(DELETE_RETENTION_MS),
        }
        self._named = dict[tuple[str, str, int], str]()  # the transaction of a record: producer, partition, number
        self._acknowledged = dict[str, list[_Row]]()  # by transaction
        self._committed = list[_Row]()

    def begin(self) -> None:
        around = self.around
        around.ledger.listeners.append(self._on_event)
        for partition in self.partitions:
            around.ledger.tell(e.DeclaredPartition(partition=name_of(partition), dense=False, compacted=True))
        self.feed(_KeyedFeeder, FEEDERS)

    def reader(self, partition: Partition) -> CommittedReader:
        return _KeptReader(self.around, partition)

    def _on_event(self, event: Event) -> None:
        """Note which records are committed, and where."""
        match event:
            case e.Invoked(transaction=str(name), partition=place) if place.startswith(f"{self.topic}-"):
                self._named[event.producer, place, event.sequence] = name
            case e.Acknowledged(partition=place, offset=int(offset)) if place.startswith(f"{self.topic}-"):
                name = self._named.pop((event.producer, place, event.sequence))
                self._acknowledged.setdefault(name, []).append(_Row(place, offset, key_of(event.sequence, KEYS)))
            case e.Ended(transaction=name, outcome="committed"):
                self._committed += self._acknowledged.pop(name, ())
            case _:
                pass

    def judge(self, first: Sequence[CommittedReader], last: Sequence[CommittedReader]) -> None:
        readers = [one for one in (*first, *last) if isinstance(one, _KeptReader)]
        for partition in self.partitions:
            world = self.around.world
            machines = self.around.machines.values()
            files = [compare_markers(world, machine, partition, DELETE_RETENTION_MS) for machine in machines]
            world.counts["replicas compacted differently"] += any(_differ(a, b) for a, b in combinations(files, 2))
            replicas = self._read_replicas(partition)
            self._compare(partition, [one for one in readers if one.partition == partition], replicas)

    def _read_replicas(self, partition: Partition) -> list[_KeptReader]:
        """Read each replica by itself, to the end of the log."""
        world = self.around.world
        led = self.around.led(partition)
        assert led is not None, f"nobody leads {partition}"
        end = led.high_watermark
        members = sorted(set(led.isr) - {led.placement.witness})
        readers = [_KeptReader(self.around, partition, node_id) for node_id in members]
        for reader in readers:
            reader.client.start(reader.run())
        ended = world.run_until(world.now_us + READING_US, lambda: all(one.position >= end for one in readers))
        assert ended, f"{partition}: replicas lack {end}: {[(one.node_id, one.position) for one in readers]}"
        world.counts["replicas compared"] += len(readers)
        return readers

    def _compare(self, partition: Partition, live: list[_KeptReader], replicas: list[_KeptReader]) -> None:
        """Of every key the newest committed record is there, by each replica, and nothing that nobody else has read."""
        newest = dict[bytes | None, int]()
        for place, offset, key in self._committed:
            if place == name_of(partition):
                newest[key] = max(offset, newest.get(key, 0))
        for reader in (*live, *replicas):
            for offset, key in reader.keys.items():
                newest[key] = max(offset, newest.get(key, 0))
        for reader in replicas:
            lacking = {key: offset for key, offset in newest.items() if offset not in reader.found}
            assert not lacking, f"{partition} of node {reader.node_id} lacks the newest of its keys: {lacking}"


def _differ(one: dict[int, int], other: dict[int, int]) -> bool:
    """Tell whether two replicas have kept other records of the batches that both have."""
    return any(one[offset] != other[offset] for offset in one.keys() & other.keys())
