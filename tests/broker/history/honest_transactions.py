"""A cluster that keeps every promise to transactional clients, and what they write down about it."""

import random
from dataclasses import dataclass, field
from typing import Literal

from barnabas_broker.history import events as e

__all__ = ["INPUT", "HonestTransactions", "honest_history"]

PARTITIONS = ("t-0", "t-1")
PRODUCERS = ("p", "q")
INPUT = "in-0"
Outcome = Literal["committed", "aborted", "fenced", "timed_out", "unknown"]


@dataclass
class Txn:
    """A transaction as the cluster knows it. `told`: its client has let go of it."""

    name: str
    producer: str
    records: list[tuple[str, int]] = field(default_factory=list)
    waiting: list[tuple[str, int, int]] = field(default_factory=list)  # partition, sequence, offset; not acknowledged
    decided: bool | None = None
    markers_due: set[str] = field(default_factory=set)
    offset: int | None = None


class HonestTransactions:
    """Logs of records and markers; each step is something that a client or the coordinator does."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.history: list[e.Event] = [
            e.DeclaredConsumer(consumer=name, read_committed=True) for name in ("c", "d", "audit")
        ]
        # Producer, sequence, transaction; None: a marker.
        self.logs: dict[str, list[tuple[str, int, Txn] | None]] = {name: [] for name in PARTITIONS}
        self.sequences: dict[tuple[str, str], int] = {}
        self.open: dict[str, Txn] = {}
        self.ending: list[Txn] = []  # decided, markers on their way
        self.positions: dict[tuple[str, str], int] = {}
        self.committed: int | None = None
        self.count = 0

    def begin(self, producer: str) -> None:
        self.count += 1
        txn = self.open[producer] = Txn(f"{producer}{self.count}", producer)
        self.history.append(e.Begun(transaction=txn.name))

    def send(self, txn: Txn, partition: str) -> None:
        producer = txn.producer
        sequence = self.sequences.get((producer, partition), 0)
        self.sequences[producer, partition] = sequence + 1
        self.history.append(e.Invoked(producer=producer, partition=partition, sequence=sequence, transaction=txn.name))
        if self.chance.random() < 0.95:
            txn.waiting.append((partition, sequence, len(self.logs[partition])))
            txn.records.append((partition, len(self.logs[partition])))
            txn.markers_due.add(partition)
            self.logs[partition].append((producer, sequence, txn))
        else:
            self.history.append(e.Unknown(producer=producer, partition=partition, sequence=sequence))
            self.abort(txn, asked=False)

    def settle(self, txn: Txn, *, surely: bool) -> None:
        for partition, sequence, offset in txn.waiting:
            known = surely or self.chance.random() < 0.7
            told = None if self.chance.random() < 0.1 else offset
            self.history.append(
                e.Acknowledged(producer=txn.producer, partition=partition, sequence=sequence, offset=told)
                if known
                else e.Unknown(producer=txn.producer, partition=partition, sequence=sequence)
            )
        txn.waiting.clear()

    def send_offset(self, txn: Txn) -> None:
        """One works at a time, and begins where the one before has ended."""
        if txn.offset is not None or any(one.offset is not None for one in [*self.open.values(), *self.ending]):
            return
        txn.offset = (self.committed or 0) + self.chance.randint(0, 3)
        self.history.append(
            e.OffsetSent(transaction=txn.name, group="g", partition=INPUT, start=self.committed or 0, offset=txn.offset)
        )

    def commit(self, txn: Txn) -> None:
        self.settle(txn, surely=True)
        self.history.append(e.Ending(transaction=txn.name, commit=True))
        done = self.chance.random() < 0.8
        kept: tuple[Outcome, ...] = ("committed", "committed", "unknown", "fenced")
        outcome = self.chance.choice(kept if done else ("unknown", "aborted"))
        self.decide(txn, outcome, committed=done)

    def abort(self, txn: Txn, *, asked: bool) -> None:
        self.settle(txn, surely=False)
        if asked:
            self.history.append(e.Ending(transaction=txn.name, commit=False))
        lost: tuple[Outcome, ...] = ("timed_out", "fenced", "unknown")
        outcome = self.chance.choice(("aborted", "unknown") if asked else lost)
        self.decide(txn, outcome, committed=False)

    def decide(self, txn: Txn, outcome: Outcome, *, committed: bool) -> None:
        del self.open[txn.producer]
        txn.decided = committed
        self.ending.append(txn)
        if self.chance.random() < 0.3:
            self.write_markers(1)
            self.consume("c", self.chance.choice(PARTITIONS))
        self.history.append(e.Ended(transaction=txn.name, outcome=outcome))

    def write_markers(self, count: int) -> None:
        for _ in range(count):
            if not self.ending:
                return
            txn = self.chance.choice(self.ending)
            if txn.markers_due:
                partition = txn.markers_due.pop()
                self.logs[partition].append(None)
            if not txn.markers_due:
                self.ending.remove(txn)
                if txn.offset is not None and txn.decided:
                    self.committed = txn.offset

    def stable_end(self, partition: str) -> int:
        log = self.logs[partition]
        undone = [at for at, entry in enumerate(log) if entry is not None and partition in entry[2].markers_due]
        return min([len(log), *undone])

    def go_to(self, consumer: str, partition: str, offset: int) -> None:
        self.positions[consumer, partition] = offset
        self.history.append(e.Positioned(consumer=consumer, partition=partition, offset=offset))

    def consume(self, consumer: str, partition: str, count: int = 6) -> None:
        reads_committed = not consumer.startswith("u")
        log = self.logs[partition]
        end = self.stable_end(partition) if reads_committed else len(log)
        if (consumer, partition) not in self.positions or (len(consumer) == 1 and self.chance.random() < 0.05):
            self.go_to(consumer, partition, self.chance.randint(0, end))
        start = self.positions[consumer, partition]
        for at in range(start, min(end, start + count)):
            entry = log[at]
            if entry is not None and (entry[2].decided or not reads_committed):
                producer, sequence, _ = entry
                self.history.append(
                    e.Consumed(consumer=consumer, partition=partition, offset=at, producer=producer, sequence=sequence)
                )
            self.positions[consumer, partition] = at + 1
        if self.positions[consumer, partition] == end:
            self.history.append(e.EndReached(consumer=consumer, partition=partition, offset=end))

    def ask_committed(self) -> None:
        self.history.append(e.CommittedAsked(reader="r", group="g", partition=INPUT))
        if any(txn.offset is not None for txn in [*self.open.values(), *self.ending]):
            return  # not stable
        self.history.append(e.CommittedFetched(reader="r", group="g", partition=INPUT, offset=self.committed))

    def step(self) -> None:
        what = self.chance.random()
        producer = self.chance.choice(PRODUCERS)
        txn = self.open.get(producer)
        if what < 0.55:
            if txn is None:
                if not any(one.producer == producer for one in self.ending):
                    self.begin(producer)
            elif what < 0.35:
                self.send(txn, self.chance.choice(PARTITIONS))
            elif what < 0.42:
                self.send_offset(txn)
            elif what < 0.51:
                self.commit(txn)
            else:
                self.abort(txn, asked=what < 0.53)
        elif what < 0.7:
            self.write_markers(1)
        elif what < 0.95:
            self.consume(self.chance.choice("cdu"), self.chance.choice(PARTITIONS))
        else:
            self.ask_committed()

    def finish(self) -> list[e.Event]:
        for txn in list(self.open.values()):
            self.commit(txn)
        self.write_markers(1_000)
        for consumer in ("u-audit", "audit"):
            for partition in PARTITIONS:
                self.go_to(consumer, partition, 0)
                while self.positions[consumer, partition] < len(self.logs[partition]):
                    self.consume(consumer, partition, 1 << 20)
        self.ask_committed()
        return self.history


def honest_history(seed: int, steps: int = 150) -> list[e.Event]:
    cluster = HonestTransactions(seed)
    for _ in range(steps):
        cluster.step()
    return cluster.finish()
