"""Numbers the batches of one partition, so that they arrive once and in order. Pure.

An idempotent producer numbers its records per partition (KIP-98). The leader takes a batch only if its first number
follows the last one that it has, answers a repetition with the original's offset, and refuses a gap. So a batch may be
sent again as often as necessary, as long as it keeps its number and its predecessors are there. The rules here:

- *The pipeline* holds the batches that have a number and no outcome, in order. Each is out (on the wire) or back.
- *Pipelining* begins when this epoch's first batch has been acknowledged. Until then one batch is out at a time: a
  leader that knows nothing of a producer may accept any first number (KIP-360), and would accept the second batch after
  it has refused the first. The same holds after a long rest, in which the leader may have forgotten us.
- *After any failure* nothing new is sent until all are back. Then they go again, in order, one at a time.
- *Refused for good* (too large, say): if no attempt of the batch can have been appended, its numbers are free, and the
  next batch takes them. If others are under way behind it, they cannot have been appended either, because the leader
  saw a gap before them: they begin a new *epoch*, from number 0.
- *Given up* at its deadline, or failed for good, and perhaps appended: nobody here can know. The next batch has the
  number that follows. If the leader takes it, the batch given up had arrived. If the leader sees a gap, it had not.
- *A gap* before a batch whose predecessors were all acknowledged or given up means that the leader lacks one of them,
  and a new epoch begins. But a batch of which an attempt *can* have been appended is not repeated in it. (The
  connection broke, and a broker that stood still may yet append the bytes in its buffers, together with the
  predecessor: repeated in a new epoch, the batch would be doubled.) It is lost: its sender learns that it may have been
  written. The first batch that cannot have been appended, and all behind it, begin the new epoch.

New epochs are safe: a leader that has a batch of the new epoch refuses late ones of the old epoch. Before that it sees,
in the old epoch, the gap that made us begin anew.

Epochs count per partition. Kafka's producer raises one epoch for all its partitions. But for a producer without
transactions only the leader of a partition compares epochs, in that partition's table. Epochs are 15 bits. When they
are used up, or when a leader has seen a later one than ours, a new producer id is asked for. Then a batch that was
given up under the old one may appear late.

Without idempotence the same pipeline is one batch long, and unnumbered: order holds, and a repetition may be doubled.

Not here: when to send again (the sender pauses), and transactions.
"""

from collections import deque
from enum import Enum
from typing import Final, Generic, TypeVar

__all__ = ["EPOCH_MAX", "SEQUENCE_MODULUS", "Identity", "Outcome", "Sequences", "UnderWay", "Verdict"]

Item = TypeVar("Item")

SEQUENCE_MODULUS: Final = 1 << 31
EPOCH_MAX: Final = (1 << 15) - 1
_NONE: Final = -1


class Outcome(Enum):
    """The result of one attempt to send a batch."""

    APPENDED = "appended"
    """Appended, by this attempt or an earlier one."""
    NOT_NOW = "not now"
    """Not appended by this attempt; another may succeed."""
    UNKNOWN = "unknown"
    """It may have been appended, or may be later; another attempt tells."""
    REFUSED = "refused"
    """Not appended by this attempt, and no other will do better."""
    DOUBTFUL = "doubtful"
    """No other attempt will do better, and this one may have appended it."""
    GAP = "gap"
    """The leader lacks its predecessor, or knows nothing of this producer and expects a beginning."""
    FENCED = "fenced"
    """The leader has seen a later epoch of this producer id."""


class Verdict(Enum):
    """The fate of a batch after an outcome."""

    DELIVERED = "delivered"
    AGAIN = "again"
    FAILED = "failed"


class Identity:
    """The producer id that new epochs begin with; `producer_id` is -1 while there is none. Shared by all partitions."""

    __slots__ = ("epoch", "producer_id")

    def __init__(self, producer_id: int = _NONE, epoch: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch


class UnderWay(Generic[Item]):
    """One numbered batch; owned by the `Sequences` that numbered it.

    `may_be_appended`: by any attempt so far. `is_after_gap`: the batch before it will never be in the log.
    """

    __slots__ = (
        "base_sequence",
        "count",
        "epoch",
        "is_after_gap",
        "is_given_up",
        "is_out",
        "item",
        "may_be_appended",
        "producer_id",
    )

    def __init__(self, item: Item, count: int, producer_id: int, epoch: int, base_sequence: int) -> None:
        self.item = item
        self.count = count
        self.producer_id = producer_id
        self.epoch = epoch
        self.base_sequence = base_sequence
        self.is_out = True
        self.is_given_up = False
        self.may_be_appended = False
        self.is_after_gap = False


class Sequences(Generic[Item]):
    """The numbering of one partition; without an `identity` nothing is numbered.

    Invariants of the pipeline: all have the same epoch; each begins where the one before it ends, unless one between
    them was given up or refused; the last ends at `next_sequence`; at most `in_flight_max` are out.
    """

    __slots__ = (
        "_ends_in_gap",
        "_identity",
        "_in_flight_max",
        "_is_proven",
        "_restart",
        "epoch",
        "next_sequence",
        "pipeline",
        "producer_id",
    )

    def __init__(self, identity: Identity | None, in_flight_max: int) -> None:
        assert in_flight_max > 0
        self._identity = identity
        self._in_flight_max = in_flight_max
        # A batch of this epoch was acknowledged.
        self._is_proven = False
        # The head of the pipeline, or the next batch, begins a new epoch.
        self._restart = identity is not None
        # The batch behind the pipeline begins a new epoch, when the pipeline has been resolved in this one.
        self._ends_in_gap = False
        self.producer_id = _NONE
        self.epoch = _NONE
        self.next_sequence = _NONE
        self.pipeline: deque[UnderWay[Item]] = deque()

    # Sending.

    def may_begin(self) -> bool:
        """Say whether a new batch may be numbered and sent now."""
        if not self.pipeline:
            return self._has_identity()
        return (
            self._is_proven
            and not self._restart
            and not self._ends_in_gap
            and len(self.pipeline) < self._in_flight_max
            and all(batch.is_out and not batch.is_after_gap for batch in self.pipeline)
        )

    def begin(self, item: Item, count: int) -> UnderWay[Item]:
        """Number a new batch of `count` records, which counts as out."""
        assert self.may_begin()
        if self._restart or self._ends_in_gap:
            self._begin_epoch()
        batch = UnderWay(item, count, self.producer_id, self.epoch, self.next_sequence)
        if self._identity is not None:
            self.next_sequence = (self.next_sequence + count) % SEQUENCE_MODULUS
        self.pipeline.append(batch)
        return batch

    def rest(self) -> None:
        """Begin with one batch at a time again: after a long rest, the leader may have forgotten this producer."""
        assert not self.pipeline
        self._is_proven = False

    def take_lost(self) -> list[UnderWay[Item]]:
        """Take out the batches that may neither be repeated nor counted as written. Call it before `next_again`."""
        lost: list[UnderWay[Item]] = []
        if self._restart and self._all_are_back():
            while self.pipeline and self.pipeline[0].may_be_appended:
                lost.append(self.pipeline.popleft())
        return lost

    def next_again(self) -> UnderWay[Item] | None:
        """Return the batch that is to be sent again now, if there is one. `sent_again` reports that it was."""
        if not self.pipeline or not self._all_are_back():
            return None
        head = self.pipeline[0]
        if head.is_after_gap and not self._restart:
            # All attempts of these came too early. The leader refuses those that are still on their way.
            for batch in self.pipeline:
                batch.may_be_appended = False
            self._want_epoch()
        return head if self._has_identity() else None

    def sent_again(self, batch: UnderWay[Item]) -> None:
        """Number the batch of `next_again` for its next attempt; it counts as out."""
        assert batch is self.pipeline[0]
        if self._restart:
            self._begin_epoch()
        batch.is_out = True

    # Outcomes.

    def on_outcome(self, batch: UnderWay[Item], outcome: Outcome) -> Verdict:
        """Record how an attempt ended. A batch that was given up is DELIVERED or FAILED, never sent again."""
        assert batch.is_out
        batch.is_out = False
        if outcome is Outcome.APPENDED:
            self.pipeline.remove(batch)
            self._is_proven = self._identity is not None
            return Verdict.DELIVERED
        if outcome is Outcome.UNKNOWN or outcome is Outcome.DOUBTFUL:
            batch.may_be_appended = True
        is_lost = outcome is Outcome.GAP or outcome is Outcome.FENCED
        is_final = outcome is Outcome.REFUSED or outcome is Outcome.DOUBTFUL
        if is_final or batch.is_given_up or (is_lost and self._identity is None):
            self._remove(batch)
            return Verdict.FAILED
        if is_lost and batch is self.pipeline[0] and not batch.is_after_gap:
            self._want_epoch(is_fenced=outcome is Outcome.FENCED)
        return Verdict.AGAIN

    def give_up(self, batch: UnderWay[Item]) -> None:
        """Do not send this batch again. If it is out, its outcome is still awaited."""
        batch.is_given_up = True
        if not batch.is_out:
            self._remove(batch)

    def split(self, batch: UnderWay[Item], parts: list[tuple[Item, int]]) -> list[UnderWay[Item]]:
        """Replace a batch that is back by parts of it, and return these."""
        assert not batch.is_out
        assert sum(count for _, count in parts) == batch.count
        position = self.pipeline.index(batch)
        del self.pipeline[position]
        sequence = batch.base_sequence
        is_after_gap = batch.is_after_gap
        numbered = []
        for item, count in parts:
            part = UnderWay(item, count, batch.producer_id, batch.epoch, sequence)
            part.is_out = False
            part.may_be_appended = batch.may_be_appended
            part.is_after_gap = is_after_gap
            self.pipeline.insert(position, part)
            numbered.append(part)
            position += 1
            is_after_gap = False
            if self._identity is not None:
                sequence = (sequence + count) % SEQUENCE_MODULUS
        return numbered

    # Inside.

    def _all_are_back(self) -> bool:
        return not any(batch.is_out for batch in self.pipeline)

    def _has_identity(self) -> bool:
        needs_epoch = self._restart or self._ends_in_gap
        return self._identity is None or not needs_epoch or self._identity.producer_id != _NONE

    def _remove(self, batch: UnderWay[Item]) -> None:
        """Take out a batch that will not be sent again and is not known to be in the log."""
        position = self.pipeline.index(batch)
        del self.pipeline[position]
        if self._identity is None or (batch.may_be_appended and not batch.is_after_gap):
            return
        if position < len(self.pipeline):
            self.pipeline[position].is_after_gap = True
        elif not batch.is_after_gap and (batch.base_sequence + batch.count) % SEQUENCE_MODULUS == self.next_sequence:
            self.next_sequence = batch.base_sequence
        else:
            # A number may be reused only if no batch that carried it, or a later one, can still arrive.
            self._ends_in_gap = True
            self._renew_identity()

    def _want_epoch(self, *, is_fenced: bool = False) -> None:
        self._restart = True
        self._renew_identity(is_used_up=is_fenced)

    def _renew_identity(self, *, is_used_up: bool = False) -> None:
        """Ask for a new producer id, if this one has no further epoch here."""
        assert self._identity is not None
        if (is_used_up or self.epoch >= EPOCH_MAX) and self._identity.producer_id == self.producer_id:
            self._identity.producer_id = _NONE

    def _begin_epoch(self) -> None:
        """Number the pipeline anew, from 0. None of its batches is out, or can have been appended."""
        assert self._identity is not None
        assert self._identity.producer_id != _NONE
        if self._identity.producer_id == self.producer_id:
            self.epoch += 1
        else:
            self.producer_id = self._identity.producer_id
            self.epoch = self._identity.epoch
        assert 0 <= self.epoch <= EPOCH_MAX
        self._restart = self._ends_in_gap = self._is_proven = False
        sequence = 0
        for batch in self.pipeline:
            batch.producer_id = self.producer_id
            batch.epoch = self.epoch
            batch.base_sequence = sequence
            batch.may_be_appended = batch.is_after_gap = False
            sequence = (sequence + batch.count) % SEQUENCE_MODULUS
        self.next_sequence = sequence
