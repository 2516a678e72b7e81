"""Numbers the batches of one partition for a producer in transactions. Pure.

A producer without transactions raises the epoch of a partition by itself (sequences.py). Here the coordinator gives
epochs, since they say to which transaction a batch belongs. So the rules are simpler, and harder:

- Numbers begin at 0 when the producer has a new id or epoch. What is left of the epoch before is awaited first.
- A batch that fails costs the transaction, and nothing is numbered in its epoch any more: the first protocol asks for
  another one after such a failure, the second with every transaction. So no number is ever used twice.
- A gap before a batch whose predecessors were all acknowledged means that the leader lacks one of them, or has
  forgotten this producer. To number anew would put half of a transaction into the log. So the batch fails.

In the second protocol even the first batches of an epoch are pipelined: leaders that speak it take only number 0 of a
producer that is new to them.
"""

from typing import TypeVar

from .sequences import Identity, Outcome, Sequences, UnderWay, Verdict

__all__ = ["TransactionIdentity", "TransactionNumbers"]

Item = TypeVar("Item")

_LOST = frozenset({Outcome.GAP, Outcome.FENCED})


class TransactionIdentity(Identity):
    """The producer id and the epoch of the present transaction. Shared by all partitions.

    `is_second`: the leaders speak the second protocol of transactions (transactions/state_machine.py).
    """

    __slots__ = ("is_second",)

    def __init__(self) -> None:
        super().__init__()
        self.is_second = False


class TransactionNumbers(Sequences[Item]):
    """The numbering of one partition. Invariant of the pipeline: it is of one epoch, and without gaps."""

    __slots__ = ("_owner",)

    def __init__(self, owner: TransactionIdentity, in_flight_max: int) -> None:
        super().__init__(owner, in_flight_max)
        self._owner = owner

    def may_begin(self) -> bool:
        """Say whether a new batch may be numbered and sent now."""
        if (self._owner.producer_id, self._owner.epoch) != (self.producer_id, self.epoch):
            self._restart = True
        return super().may_begin()

    def on_outcome(self, batch: UnderWay[Item], outcome: Outcome) -> Verdict:
        """Record how an attempt ended. What waits behind a batch that is back has seen a gap before it is there."""
        if outcome in _LOST and (batch is self.pipeline[0] or outcome is Outcome.FENCED):
            outcome = Outcome.DOUBTFUL if batch.may_be_appended else Outcome.REFUSED
        return super().on_outcome(batch, outcome)

    def _remove(self, batch: UnderWay[Item]) -> None:
        self.pipeline.remove(batch)

    def _begin_epoch(self) -> None:
        assert not self.pipeline
        self.producer_id = self._owner.producer_id
        self.epoch = self._owner.epoch
        self._restart = False
        self._is_proven = self._owner.is_second
        self.next_sequence = 0
