"""What the workers in Python share: their job, and the lines that they write."""

import json
import os
import sys
import time
from typing import NamedTuple

from barnabas_broker.history import Event, encode
from barnabas_broker.history import events as e

__all__ = ["Diary", "Job", "Taken", "read_job"]


class Job(NamedTuple):
    """What a worker is told; `programs.py` explains it."""

    bootstrap: str
    input: str
    output: str
    group: str
    history: str
    began_ms: int
    name: str
    life: str
    careless: bool = False
    """Commit the offsets behind the transaction, not in it: the control."""


class Taken(NamedTuple):
    """A record of the input."""

    partition: int
    offset: int
    value: bytes


def read_job() -> Job:
    return Job(**json.loads(sys.stdin.readline()))


class Diary:
    """The lines of one life."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._file = os.open(job.history, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._transactions = 0
        self._name = ""
        self._sequences: dict[int, int] = {}
        self._on_its_way: set[int] = set()
        self.tell(e.DeclaredConsumer(consumer=job.life, read_committed=True))

    def tell(self, event: Event) -> None:
        os.write(self._file, b"\n" + encode(event))

    def begin_anywhere(self, *partitions: int) -> None:
        """Note that these partitions, or all of them, are read from another place from now on."""
        self._on_its_way.difference_update(partitions or set(self._on_its_way))

    def begin(self) -> None:
        self._transactions += 1
        self._name = f"{self._job.life}/{self._transactions}"
        self.tell(e.Begun(transaction=self._name, at_ms=self._now_ms()))

    def take(self, record: Taken) -> tuple[int, bytes]:
        """Tell that a record is worked off; return the sequence number and the value of the one that comes out."""
        job = self._job
        if record.partition not in self._on_its_way:
            self._on_its_way.add(record.partition)
            where = f"{job.input}-{record.partition}"
            self.tell(e.Positioned(consumer=job.life, partition=where, offset=record.offset))
        producer, sequence, _ = record.value.split(b" ", 2)
        self.tell(
            e.Consumed(
                consumer=job.life,
                partition=f"{job.input}-{record.partition}",
                offset=record.offset,
                producer=producer.decode(),
                sequence=int(sequence),
                transaction=self._name,
            )
        )
        number = self._sequences.get(record.partition, 0)
        self._sequences[record.partition] = number + 1
        place = f"{job.output}-{record.partition}"
        self.tell(e.Invoked(producer=job.life, partition=place, sequence=number, transaction=self._name))
        return number, f"{job.life} {number} from {job.input}-{record.partition}@{record.offset}".encode()

    def acknowledge(self, partition: int, number: int, offset: int | None) -> None:
        place = f"{self._job.output}-{partition}"
        self.tell(e.Acknowledged(producer=self._job.life, partition=place, sequence=number, offset=offset))

    def send_offset(self, partition: int, start: int, offset: int) -> None:
        where = f"{self._job.input}-{partition}"
        name, group = self._name, self._job.group
        self.tell(e.OffsetSent(transaction=name, group=group, partition=where, start=start, offset=offset))

    def ask_for_end(self, *, commit: bool) -> None:
        self.tell(e.Ending(transaction=self._name, commit=commit, at_ms=self._now_ms()))

    def end(self, outcome: str) -> None:
        self.tell(e.Ended(transaction=self._name, outcome=outcome, at_ms=self._now_ms()))  # type: ignore[arg-type]

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 - self._job.began_ms
