"""Keeps the offsets that transactions have written, until a marker ends each transaction. Pure.

A producer that reads, transforms and writes has the positions of its consumer stored as part of its transaction
(TxnOffsetCommit). Their records are in the offsets partition like any other, in batches of the producer's id; they are
*staged*. A marker in the same partition ends the transaction: if it commits, what is staged becomes the group's
offsets, else it is forgotten.

*Which one counts* is decided by the order of the log:

- The record that was written last counts, as in Kafka: of those of one transaction as of those of two, whichever marker
  comes first. So when a transaction commits, what others staged before it under the same name will not count.
- An ordinary commit behind a staged record is newer (`supersede`), also if the marker comes later still.
- A name stays pending until every transaction that has written it has ended, also if a newer record is in force: as
  Kafka has it, somebody may be between the two.
- A tombstone takes along what is staged under its name (`drop`).

A transaction of which nothing is left here is as good as ended: its marker would change nothing.

*A part at a time.* The end of a transaction with very many offsets is taken in by parts (`pop`). What is left in
between is still staged, so whoever stops half-way takes in the marker once more, and finds the rest.

Limit: none of its own; staged offsets count towards that of all groups of a node (`room`), and whoever stages them sees
to it that few producers have a name pending at once (`groups.staging`).
"""

from collections.abc import Collection, Iterable, Mapping

from .offsets import size_of
from .records import CommittedOffset, OffsetKey
from .room import STAGED_BYTES, TRANSACTION_BYTES

__all__ = ["StagedOffsets"]

Place = tuple[str, int]
Staged = dict[OffsetKey, CommittedOffset | None]
"""None: something newer was committed, and this will not count."""


class _Transaction:
    """What one producer has staged since its last marker. `first_offset`: where its oldest batch stands in the log."""

    __slots__ = ("first_offset", "offsets")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.offsets: Staged = {}


class StagedOffsets:
    """Staged offsets by producer, and who has staged something by group and place.

    Invariants: no transaction, group or place is there without anything in it; transactions stand in the order of their
    first offsets, and the producers of a place in that of their last records there; `count` says how many offsets are
    staged, and `size_bytes` is the sum of `size_of` over those that may count.
    """

    __slots__ = ("_groups", "_transactions", "count", "size_bytes")

    def __init__(self) -> None:
        self._transactions: dict[int, _Transaction] = {}
        self._groups: dict[str, dict[Place, tuple[int, ...]]] = {}
        self.count = self.size_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory that they take (`room`)."""
        return len(self._transactions) * TRANSACTION_BYTES + self.count * STAGED_BYTES + self.size_bytes

    @property
    def first_offset(self) -> int | None:
        """Where the oldest transaction begins in the log; None: there is none."""
        return next((one.first_offset for one in self._transactions.values()), None)

    def growth(self, producer_id: int, key: OffsetKey, value: CommittedOffset) -> int:
        """Return by how much more memory is held when that is staged; negative if it is less than before."""
        if producer_id not in self._transactions:
            return TRANSACTION_BYTES + STAGED_BYTES + size_of(key, value)
        if producer_id not in self.producers_of(key):
            return STAGED_BYTES + size_of(key, value)
        old = self.get(producer_id, key)
        return size_of(key, value) - (0 if old is None else size_of(key, old))

    def get(self, producer_id: int, key: OffsetKey) -> CommittedOffset | None:
        """Return what a producer has staged there, if that may count."""
        transaction = self._transactions.get(producer_id)
        return None if transaction is None else transaction.offsets.get(key)

    def of_producer(self, producer_id: int) -> Mapping[OffsetKey, CommittedOffset | None]:
        """Return what a producer has staged; None for what will not count. A view, not to be kept."""
        transaction = self._transactions.get(producer_id)
        return {} if transaction is None else transaction.offsets

    def producer_ids(self) -> Iterable[int]:
        """Return the producers that have something staged, the oldest transaction first; a view."""
        return self._transactions.keys()

    def producers_of(self, key: OffsetKey) -> Collection[int]:
        """Return the producers that have something staged under that name, in the order of their last records."""
        return self._groups.get(key.group_id, {}).get((key.topic, key.partition), ())

    def group_ids(self) -> Iterable[str]:
        """Return the groups for which something is staged; a view."""
        return self._groups.keys()

    def of_group(self, group_id: str) -> Collection[Place]:
        """Return the places (topic, partition) of a group under which something is staged; a view, not to be kept."""
        return self._groups.get(group_id, {}).keys()

    def stage(self, producer_id: int, key: OffsetKey, value: CommittedOffset, offset: int) -> None:
        """Take in a committed record of a producer's transaction, whose batch stands at `offset` in the log."""
        transaction = self._transactions.get(producer_id)
        if transaction is None:
            transaction = self._transactions[producer_id] = _Transaction(offset)
        offsets = transaction.offsets
        places = self._groups.setdefault(key.group_id, {})
        place = (key.topic, key.partition)
        others = places.get(place, ())
        if key in offsets:
            self._weigh(key, offsets[key], -1)
            others = _without(others, producer_id)
        else:
            self.count += 1
        places[place] = (*others, producer_id)
        offsets[key] = value
        self._weigh(key, value, 1)

    def supersede(self, key: OffsetKey) -> None:
        """Note that something newer was committed under that name outside of any transaction."""
        self._supersede(key, self.producers_of(key))

    def _supersede(self, key: OffsetKey, producer_ids: Iterable[int]) -> None:
        for producer_id in producer_ids:
            offsets = self._transactions[producer_id].offsets
            self._weigh(key, offsets[key], -1)
            offsets[key] = None

    def drop(self, key: OffsetKey) -> None:
        """Forget everything that is staged under that name."""
        for producer_id in self.producers_of(key):
            transaction = self._transactions[producer_id]
            self._weigh(key, transaction.offsets.pop(key), -1)
            self.count -= 1
            if not transaction.offsets:
                del self._transactions[producer_id]
        places = self._groups.get(key.group_id)
        if places is not None:
            places.pop((key.topic, key.partition), None)
            if not places:
                del self._groups[key.group_id]

    def pop(
        self, producer_id: int, count_max: int, *, is_commit: bool
    ) -> list[tuple[OffsetKey, CommittedOffset | None]]:
        """Take so many of a producer's staged offsets out, and return them; none: it has none.

        `is_commit`: those that may count do so from now on, and nothing that others wrote before them.
        """
        transaction = self._transactions.get(producer_id)
        popped: list[tuple[OffsetKey, CommittedOffset | None]] = []
        if transaction is None:
            return popped
        offsets = transaction.offsets
        while offsets and len(popped) < count_max:
            key, value = offsets.popitem()
            popped.append((key, value))
            if is_commit and value is not None:
                producers = self._groups[key.group_id][key.topic, key.partition]
                self._supersede(key, producers[: producers.index(producer_id)])
            self._weigh(key, value, -1)
            self._leave(producer_id, key)
        self.count -= len(popped)
        if not offsets:
            del self._transactions[producer_id]
        return popped

    def _leave(self, producer_id: int, key: OffsetKey) -> None:
        places = self._groups[key.group_id]
        place = (key.topic, key.partition)
        others = _without(places[place], producer_id)
        if others:
            places[place] = others
            return
        del places[place]
        if not places:
            del self._groups[key.group_id]

    def _weigh(self, key: OffsetKey, value: CommittedOffset | None, sign: int) -> None:
        if value is not None:
            self.size_bytes += sign * size_of(key, value)


def _without(producers: tuple[int, ...], producer_id: int) -> tuple[int, ...]:
    return tuple(one for one in producers if one != producer_id)
