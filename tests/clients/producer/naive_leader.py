"""A partition's leader that handles numbered batches in the stupidest right way: it keeps all."""

from typing import NamedTuple

from barnabas_clients.producer.sequences import SEQUENCE_MODULUS, Outcome

REMEMBERED_COUNT = 5


class Copy(NamedTuple):
    """One attempt of a batch, as it is on the wire."""

    item: int
    size: int
    producer_id: int
    epoch: int
    base_sequence: int


class NaiveLeader:
    """`log` is every batch appended. Kafka takes any first number of a producer that it does not know."""

    def __init__(self, *, takes_any_first: bool) -> None:
        self.log: list[Copy] = []
        self.takes_any_first = takes_any_first
        self.forgotten = 0

    def forget_producers(self) -> None:
        self.forgotten = len(self.log)

    def take(self, copy: Copy) -> Outcome:
        if copy.producer_id < 0:
            self.log.append(copy)
            return Outcome.APPENDED
        known = [old for old in self.log[self.forgotten :] if old.producer_id == copy.producer_id]
        if not known:
            is_first = copy.base_sequence == 0 or self.takes_any_first or self.forgotten > 0
            return self._append(copy) if is_first else Outcome.GAP
        last = known[-1]
        if copy.epoch < last.epoch:
            return Outcome.FENCED
        if copy.epoch > last.epoch:
            return self._append(copy) if copy.base_sequence == 0 else Outcome.GAP
        if copy.base_sequence == (last.base_sequence + last.size) % SEQUENCE_MODULUS:
            return self._append(copy)
        ranges = [(old.epoch, old.base_sequence, old.size) for old in known[-REMEMBERED_COUNT:]]
        return Outcome.APPENDED if (copy.epoch, copy.base_sequence, copy.size) in ranges else Outcome.GAP

    def _append(self, copy: Copy) -> Outcome:
        self.log.append(copy)
        return Outcome.APPENDED
