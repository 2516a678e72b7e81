"""Remembers which producers' transactions a leader is asking the coordinator about. Pure.

A leader takes the first batch of a transaction only if the transaction coordinator knows the partition as part of it
(KIP-890). Otherwise a batch that was long under way would open a transaction that nobody ends. While the coordinator
is asked the transaction may end, and the answer be about one that is over. So whoever asks takes a guard first, and
`Partition.append` wants the same one back: a marker of the producer drops it, and so does the end of the term.

Batches that a producer has under way together share a guard. It also knows the lowest sequence among them: where a
producer is unknown, because it was forgotten, any sequence may be the next one, but none of a later batch.

Limits: `PRODUCERS_MAX` producers, with `EPOCHS_MAX` epochs each. Beyond, the guards go that were asked for first; their
batches are refused.
"""

from typing import TypeVar

__all__ = ["Verification", "Verifications"]

PRODUCERS_MAX = 10_000
EPOCHS_MAX = 4
T = TypeVar("T")


class Verification:
    """The guard of a producer's next transaction; it is itself what counts, not what is in it.

    `begins`: with version 2 of transactions, of which every epoch begins with sequence 0.
    """

    __slots__ = ("begins", "epoch", "lowest_sequence", "term")

    def __init__(self, term: int, epoch: int, lowest_sequence: int, *, begins: bool) -> None:
        self.term = term
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.begins = begins


class Verifications:
    """The guards of one partition, in one term of its leader."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[int, Verification]] = {}

    def guard(self, term: int, producer_id: int, epoch: int, base_sequence: int, *, begins: bool) -> Verification:
        """Return the guard for a batch that would begin a transaction: the one that is there, or a new one."""
        by_epoch = self._by_producer.get(producer_id)
        if by_epoch is None:
            _make_room(self._by_producer, PRODUCERS_MAX)
            by_epoch = self._by_producer[producer_id] = {}
        found = by_epoch.get(epoch)
        if found is None or found.term != term:
            _make_room(by_epoch, EPOCHS_MAX)
            found = by_epoch[epoch] = Verification(term, epoch, base_sequence, begins=begins)
        found.lowest_sequence = min(found.lowest_sequence, base_sequence)
        return found

    def holds(self, producer_id: int, epoch: int, guard: Verification | None) -> bool:
        """Tell whether `guard` is still that of the producer's next transaction."""
        return guard is not None and self._by_producer.get(producer_id, {}).get(epoch) is guard

    def drop(self, producer_id: int) -> None:
        """Forget the guards of a producer: its transaction has begun, or has ended."""
        self._by_producer.pop(producer_id, None)

    def forget(self, producer_id: int, guard: Verification) -> None:
        """Forget one guard: the coordinator has said no."""
        if self.holds(producer_id, guard.epoch, guard):
            by_epoch = self._by_producer[producer_id]
            del by_epoch[guard.epoch]
            if not by_epoch:
                del self._by_producer[producer_id]

    def clear(self) -> None:
        """Forget all: another leader's answers do not count here."""
        self._by_producer.clear()

    def __len__(self) -> int:
        return len(self._by_producer)


def _make_room(table: dict[int, T], count_max: int) -> None:
    if len(table) >= count_max:
        del table[next(iter(table))]
