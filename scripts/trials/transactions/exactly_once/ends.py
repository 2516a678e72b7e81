"""Tells apart two kinds of deviations: those that Kafka's first protocol of transactions allows, and all others. Pure.

In that protocol a producer keeps its epoch from one transaction to the next, so that a request that ends one is not to
be told from a request that ends the next. A client that has had no answer asks again, of another broker perhaps. If
the first request was only late, it may end the *next* transaction, in the middle: as Jepsen has found, that one is
torn, lost, or seen although it was aborted.

So a deviation is *Jepsen's pattern* if all of this holds by the history: it concerns a transaction that follows another
one in the same life of its producer, without a new epoch between them; that one's end was asked for; and while it was
not answered a broker was struck, so that the request may have been sent again.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from barnabas_broker.history import Event, Violation
from barnabas_broker.history import events as e

__all__ = ["BROKER_FAULTS", "Ends", "life_of", "worker_of"]

BROKER_FAULTS = ("broker killed", "power cut")
_SOURCE = re.compile(r"^(\S+-\d+@\d+) ")


def life_of(transaction: str) -> str:
    """Return the life of a process that made a transaction, of its name `worker.life/number`."""
    return transaction.rpartition("/")[0]


def worker_of(transaction: str) -> str:
    """Return the transactional id of a transaction, of its name."""
    return transaction.partition(".")[0]


class Ends:
    """What a history says of transactions and their ends, event by event.

    Memory: a few hundred bytes a transaction, and a number for each of its records.
    """

    def __init__(self) -> None:
        self._before: dict[str, str] = {}  # its predecessor in the same life
        self._last: dict[str, str] = {}  # by life
        self._asked: set[str] = set()  # whose end is asked for and not answered
        self._repeated: set[str] = set()  # whose end may have been asked for twice
        self._faults: set[tuple[str, str]] = set()  # going on
        self._of_record: dict[tuple[str, str, int], str] = {}  # partition, producer, sequence
        self._of_source: defaultdict[str, set[str]] = defaultdict(set)

    def feed(self, event: Event) -> None:
        match event:
            case e.Begun(transaction=name):
                life = life_of(name)
                if life in self._last:
                    self._before[name] = self._last[life]
                self._last[life] = name
            case e.Ending(transaction=name):
                self._asked.add(name)
                if self._faults:
                    self._repeated.add(name)
            case e.Ended(transaction=name):
                self._asked.discard(name)
            case e.FaultBegun(kind=kind, target=target) if kind in BROKER_FAULTS:
                self._faults.add((kind, target))
                self._repeated |= self._asked
            case e.FaultEnded(kind=kind, target=target):
                self._faults.discard((kind, target))
            case e.Invoked(transaction=str(name)):
                self._of_record[event.partition, event.producer, event.sequence] = name
            case e.Consumed(transaction=str(name)):
                self._of_source[f"{event.partition}@{event.offset}"].add(name)
            case _:
                pass

    def follows_a_repeated_end(self, transaction: str) -> bool:
        """Say whether a late end of the transaction before may have ended this one."""
        return self._before.get(transaction) in self._repeated

    def may_be_late_end(self, violation: Violation) -> bool:
        """Say whether this is Jepsen's pattern."""
        return any(map(self.follows_a_repeated_end, self._named(violation)))

    def may_be_late_end_of(self, mismatch: str) -> bool:
        """Say whether this is Jepsen's pattern: a line of `audits.mismatches`, which begins with the input's place."""
        found = _SOURCE.match(mismatch)
        return found is not None and any(map(self.follows_a_repeated_end, self._of_source.get(found[1], ())))

    def _named(self, violation: Violation) -> Iterable[str]:
        """Return the transactions that a violation is about."""
        words = [violation.subject, *re.split(r"[\s,;]+", violation.text)]
        for name in words:
            if name in self._before:
                yield name
        for producer, sequence in pairwise(words):
            if sequence.isdigit():
                name = self._of_record.get((violation.subject, producer, int(sequence)), "")
                if name:
                    yield name
