"""Rules of a group: commits stay, and each partition has one owner. Pure.

*Committed offsets* are judged as a register that its writers only move forward: members start from the committed offset
and read on. So an answer must be at least the largest commit that was acknowledged before the question was asked, and
it must be one that somebody has at least tried to commit. A client that moves a group back on purpose says so
(`commit_reset`), and no commit of before is demanded any more.

An offset that was sent with a transaction is committed with it, and tried from the moment in which that was asked for.
Told to a reader before that, or after an abort, it is a read of an open or aborted transaction; told while nothing
else can have committed it, it proves that transaction committed. A reader who does not ask for a stable answer is held
to the commits outside of transactions.

*Input* of committed transactions, from where each began to the offset that it sent: no record is in two of them, and
each begins at an offset that may have been committed, so that none is in no transaction.

*Owners*: within one generation no partition is named for two members. A partition that no member has is not judged:
a generation that ends before all its members heard of it looks the same. So is everything else that has one owner in
an epoch (`Owners`): the leader of a partition, the producer of a transactional id.

Memory: for each group and partition the commits tried at or above the one that holds, and the range of each committed
transaction; the last 64 generations or epochs.
"""

from bisect import bisect_left
from typing import NamedTuple

from .events import (
    Assigned,
    CommitAcknowledged,
    CommitInvoked,
    CommittedAsked,
    CommittedFetched,
    CommittedReset,
    HistoryError,
    OffsetSent,
    OwnerSeen,
)
from .transaction_rules import Transaction, Transactions
from .violations import Report, Rule

__all__ = ["GroupRules", "Owners"]

GENERATIONS_MAX = 64
PRUNE_AT = 1024


class _Floors(NamedTuple):
    """The largest offsets that were committed, -1: none. `plain`: outside of transactions."""

    all: int = -1
    plain: int = -1


class _Range(NamedTuple):
    """Input that a committed transaction has worked off, [start, end)."""

    start: int
    end: int
    transaction: str


class _Committed:
    """The committed offset of one partition, as clients know it."""

    __slots__ = ("asked", "first_start", "floors", "ranges", "tried")

    def __init__(self) -> None:
        self.floors = _Floors()
        # By offset: who tried to commit it; None: somebody outside of transactions.
        self.tried: dict[int, set[Transaction | None]] = {}
        # By reader: the commits that held when the question was asked.
        self.asked: dict[str, _Floors] = {}
        self.ranges: list[_Range] = []
        self.first_start: int | None = None

    def on_try(self, offset: int, transaction: Transaction | None = None) -> None:
        self.tried.setdefault(offset, set()).add(transaction)

    def possible(self, offset: int) -> list[Transaction | None]:
        """Return those who may have committed this offset."""
        return [one for one in self.tried.get(offset, ()) if one is None or one.may_be_committed]

    def raise_to(self, offset: int, *, is_plain: bool) -> None:
        plain = self.floors.plain
        self.floors = _Floors(max(self.floors.all, offset), max(plain, offset) if is_plain else plain)
        if len(self.tried) > PRUNE_AT:
            least = min(floors.plain for floors in (self.floors, *self.asked.values()))
            if self.floors.plain == -1:
                least = min(floors.all for floors in (self.floors, *self.asked.values()))
            self.tried = {tried: by for tried, by in self.tried.items() if tried >= least}

    def reset_to(self, offset: int | None) -> None:
        self.floors = _Floors()
        self.asked = dict.fromkeys(self.asked, self.floors)
        self.ranges = []
        self.first_start = None
        if offset is not None:
            self.on_try(offset)


class GroupRules:
    """One group's share of the history, and the rules about it."""

    def __init__(self, name: str, report: Report, transactions: Transactions) -> None:
        self.name = name
        self.commits = 0
        self._report = report
        self._transactions = transactions
        self._committed: dict[str, _Committed] = {}
        self._owners: dict[int, dict[str, str]] = {}

    def on_commit_invoked(self, event: CommitInvoked) -> None:
        self._of(event.partition).on_try(event.offset)

    def on_commit_acknowledged(self, event: CommitAcknowledged) -> None:
        committed = self._of(event.partition)
        if event.offset not in committed.tried and event.offset >= committed.floors.all:
            raise HistoryError(self._report.line, f"{self.name} never tried to commit {event.offset}")
        self.commits += 1
        committed.raise_to(event.offset, is_plain=True)

    def on_offset_sent(self, event: OffsetSent, transaction: Transaction) -> None:
        committed = self._of(event.partition)
        committed.on_try(event.offset, transaction)
        start = event.start
        if start is not None:
            if start > event.offset:
                raise HistoryError(self._report.line, f"{transaction.name}: from {start} to {event.offset}")
            first = committed.first_start
            committed.first_start = start if first is None else min(first, start)
        transaction.when_committed(lambda: self._on_transaction_committed(event))

    def _on_transaction_committed(self, event: OffsetSent) -> None:
        committed = self._of(event.partition)
        self.commits += 1
        if event.start is not None:
            self._judge_input(committed, f"{self.name} {event.partition}", event.start, event)
        committed.raise_to(event.offset, is_plain=False)

    def _judge_input(self, committed: _Committed, subject: str, start: int, event: OffsetSent) -> None:
        if start == event.offset:
            return
        new = _Range(start, event.offset, event.transaction)
        is_first = committed.first_start is not None and start <= committed.first_start
        # Below what is committed, those who tried are not known any more.
        if not is_first and start >= committed.floors.all and not committed.possible(start):
            self._report.add(Rule.SKIPPED, subject, f"{new.transaction} begins at {start}, where nobody has ended")
        at = bisect_left(committed.ranges, new)
        for other in committed.ranges[max(0, at - 1) : at + 1]:
            if other.start < new.end and new.start < other.end:
                low, high = max(other.start, new.start), min(other.end, new.end)
                text = f"{low} to {high} by {other.transaction} and by {new.transaction}"
                self._report.add(Rule.WORKED_TWICE, subject, text)
        committed.ranges.insert(at, new)

    def on_reset(self, event: CommittedReset) -> None:
        self._of(event.partition).reset_to(event.offset)

    def on_asked(self, event: CommittedAsked) -> None:
        committed = self._of(event.partition)
        committed.asked[event.reader] = committed.floors

    def on_fetched(self, event: CommittedFetched) -> None:
        committed = self._of(event.partition)
        floors = committed.asked.pop(event.reader, committed.floors)
        floor = floors.all if event.stable else floors.plain
        subject = f"{self.name} {event.partition}"
        offset = -1 if event.offset is None else event.offset
        if offset < floor:
            told = "nothing" if event.offset is None else str(offset)
            self._report.add(Rule.COMMITTED_BACK, subject, f"{event.reader} was told {told}, {floor} was committed")
        elif offset != -1:
            self._judge_committer(committed, subject, f"{event.reader} was told {offset}", offset)

    def _judge_committer(self, committed: _Committed, subject: str, text: str, offset: int) -> None:
        """Judge who can have committed an offset that somebody was told."""
        tried = committed.tried.get(offset)
        if not tried:
            self._report.add(Rule.COMMITTED_BY_NOBODY, subject, text)
            return
        # Of several who can have committed it nothing is known. If nobody can have, all are too early or aborted.
        possible = committed.possible(offset)
        sole = possible[0] if len(possible) == 1 else None
        if not possible:
            sole = min((one for one in tried if one is not None), key=lambda one: one.number)
        if sole is not None:
            self._transactions.saw(sole, subject, text)

    def on_assigned(self, event: Assigned) -> None:
        if event.generation not in self._owners:
            if len(self._owners) >= GENERATIONS_MAX:
                oldest = min(self._owners)
                if event.generation < oldest:
                    return
                del self._owners[oldest]
            self._owners[event.generation] = {}
        owners = self._owners[event.generation]
        for partition in event.partitions:
            owner = owners.setdefault(partition, event.member)
            if owner != event.member:
                text = f"{partition} belongs to {owner} and to {event.member} in generation {event.generation}"
                self._report.add(Rule.TWO_OWNERS, self.name, text)

    def _of(self, partition: str) -> _Committed:
        return self._committed.setdefault(partition, _Committed())


class Owners:
    """What has one owner in each epoch."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._owners: dict[str, dict[int, str]] = {}

    def on_seen(self, event: OwnerSeen) -> None:
        epochs = self._owners.setdefault(event.subject, {})
        owner = epochs.setdefault(event.epoch, event.owner)
        if owner != event.owner:
            text = f"{owner} and {event.owner} in epoch {event.epoch}"
            self._report.add(Rule.TWO_IN_ONE_EPOCH, event.subject, text)
        if len(epochs) > GENERATIONS_MAX:
            del epochs[min(epochs)]
