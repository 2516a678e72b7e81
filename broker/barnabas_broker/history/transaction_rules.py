"""Rules of transactions: all of one is seen, or nothing, and only after its client has asked for the commit. Pure.

A transaction is *committed* when its client was told so, or when somebody who reads committed records has seen a part
of it while that was possible: from then on all of it must be there. It is *aborted* when its client was told so, or has
let go of it without ever asking for the commit. In between nothing is known, and both are possible, once.

*Seen* is a record that such a reader got, and an offset that a reader of a group's offsets was told and that nobody
else can have committed. *Missed* is a record that such a reader stepped over: it read beyond the place, so that the
last stable offset has passed it. Seen and aborted is an aborted read (G1a). Seen before the commit was asked for is as
bad, whatever comes later. Missed and committed is a lost write if the client was told of the commit, else the
transaction is torn. All of these are found whichever of the two is known first.

*Cycles* (G1c). A transaction depends on those whose records it has read, and so on. None may depend on itself. Who only
reads what has been committed before cannot come into a cycle, since a transaction reads before it is committed. So
cycles are looked for only where a record of an open transaction was read: a sound history costs nothing.

What the protocol allows is no violation: transactions of two producers that lie among each other in a partition
(write-write conflicts); one reader that sees less than another, later (non-repeatable reads); committed in one
partition before the other; everything for those who do not read committed records only.

Memory: some 300 bytes for a transaction, and as much again for each partition that it wrote to while its fate is open;
1,000 reads of open transactions are kept to look for cycles.
"""

import enum
from collections import Counter
from collections.abc import Callable

from .events import Begun, Ended, Ending, HistoryError
from .violations import Report, Rule

__all__ = ["Fate", "Promised", "Transaction", "Transactions"]

EARLY_READS_MAX = 1_000


class Fate(enum.Enum):
    """The knowledge about a transaction. ASKED: its commit may be, or not."""

    OPEN = enum.auto()
    ASKED = enum.auto()
    COMMITTED = enum.auto()
    ABORTED = enum.auto()


class Promised:
    """A number of records that are promised to readers, and how many of them were found."""

    __slots__ = ("found", "records")

    def __init__(self) -> None:
        self.records = self.found = 0


class Transaction:
    """What is known of one."""

    __slots__ = ("_promised", "_when_committed", "fate", "missed", "name", "number", "outcome", "reads_from", "seen")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.fate = Fate.OPEN
        self.outcome = ""  # as its client was told
        # The first evidence of either.
        self.seen = self.missed = ""
        self.reads_from: set[Transaction] = set()
        self._promised: dict[Promised, Promised] = {}
        self._when_committed: list[Callable[[], None]] = []

    @property
    def may_be_committed(self) -> bool:
        return self.fate is Fate.ASKED or self.fate is Fate.COMMITTED

    def promised_at(self, place: Promised) -> Promised:
        """Return where records for this place count: the place itself once this is committed."""
        return place if self.fate is Fate.COMMITTED else self._promised.setdefault(place, Promised())

    def when_committed(self, then: Callable[[], None]) -> None:
        self._when_committed.append(then)

    def commit(self) -> None:
        """Note that it is committed."""
        if self.fate is Fate.COMMITTED:
            return
        self.fate = Fate.COMMITTED
        for place, own in self._promised.items():
            place.records += own.records
            place.found += own.found
        for then in self._when_committed:
            then()
        self._forget()

    def abort(self) -> None:
        """Note that it is aborted."""
        self.fate = Fate.ABORTED
        self._forget()

    def _forget(self) -> None:
        self._promised = {}
        self._when_committed = []


class Transactions:
    """All transactions of a history, by name and by number."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._by_name: dict[str, Transaction] = {}
        self._by_number: list[Transaction] = []
        self._outcomes: Counter[str] = Counter()
        # Writer and reader of what was read before the writer's commit was asked for.
        self._early_reads: list[tuple[Transaction, Transaction]] = []

    def __getitem__(self, number: int) -> Transaction:
        return self._by_number[number]

    def outcomes(self) -> dict[str, int]:
        if still_open := len(self._by_number) - self._outcomes.total():
            return {**self._outcomes, "open": still_open}
        return dict(self._outcomes)

    def at_work(self, name: str) -> Transaction:
        """Return the transaction with this name, in which something is being done.

        Raises:
            HistoryError: there is none, or its client has asked for its commit, or said that it is over.
        """
        transaction = self._going(name)
        if transaction.fate is not Fate.OPEN:
            raise HistoryError(self._report.line, f"transaction {name} is being committed")
        return transaction

    def on_begun(self, event: Begun) -> None:
        name = event.transaction
        if name in self._by_name:
            raise HistoryError(self._report.line, f"transaction {name} begins again")
        transaction = self._by_name[name] = Transaction(len(self._by_number), name)
        self._by_number.append(transaction)

    def on_ending(self, event: Ending) -> None:
        transaction = self._going(event.transaction)
        if event.commit and transaction.fate is Fate.OPEN:
            transaction.fate = Fate.ASKED

    def on_ended(self, event: Ended) -> None:
        transaction = self._going(event.transaction)
        if event.outcome == "committed" and not transaction.may_be_committed:
            raise HistoryError(self._report.line, f"transaction {event.transaction}: nobody has asked for its commit")
        transaction.outcome = event.outcome
        self._outcomes[event.outcome] += 1
        if event.outcome == "committed":
            if transaction.missed:
                self._report.add(Rule.LOST, transaction.name, transaction.missed)
            self._commit(transaction)
        elif event.outcome == "aborted" or transaction.fate is Fate.OPEN:
            if transaction.seen:
                self._report.add(Rule.ABORTED_READ, transaction.name, transaction.seen)
            transaction.abort()

    def saw(self, transaction: Transaction, subject: str, text: str, reader: Transaction | None = None) -> None:
        """Judge that somebody who reads what is committed has seen something of this one; `reader` has used it."""
        if reader is not None and reader is not transaction:
            self._depends(reader, transaction)
        first = not transaction.seen
        transaction.seen = transaction.seen or f"{subject}: {text}"
        of = f"{text}, of {transaction.name}"
        if transaction.fate is Fate.OPEN:
            self._report.add(Rule.OPEN_READ, subject, of)
        elif transaction.fate is Fate.ABORTED:
            self._report.add(Rule.ABORTED_READ, subject, of)
        elif first and transaction.missed and transaction.outcome != "committed":
            self._report.add(Rule.TORN, transaction.name, f"{transaction.seen}; but {transaction.missed}")
        if transaction.may_be_committed:
            self._commit(transaction)

    def missed(self, transaction: Transaction, subject: str, text: str) -> None:
        """Judge that somebody who reads what is committed has read beyond a record of this one without getting it."""
        first = not transaction.missed
        transaction.missed = transaction.missed or f"{subject}: {text}"
        if transaction.fate is Fate.COMMITTED:
            if transaction.outcome == "committed":
                self._report.add(Rule.LOST, subject, text)
            elif first:
                self._report.add(Rule.TORN, transaction.name, f"{transaction.seen}; but {transaction.missed}")

    def _going(self, name: str) -> Transaction:
        transaction = self._by_name.get(name)
        if transaction is None:
            raise HistoryError(self._report.line, f"transaction {name} has not begun")
        if transaction.outcome:
            raise HistoryError(self._report.line, f"transaction {name} is over: {transaction.outcome}")
        return transaction

    def _commit(self, transaction: Transaction) -> None:
        transaction.commit()
        if self._early_reads:
            self._find_cycles()

    def _depends(self, reader: Transaction, writer: Transaction) -> None:
        is_new = writer not in reader.reads_from
        reader.reads_from.add(writer)
        if is_new and not writer.may_be_committed and len(self._early_reads) < EARLY_READS_MAX:
            self._early_reads.append((writer, reader))

    def _find_cycles(self) -> None:
        """Report each early read whose writer depends on its reader, all on the way committed."""
        going = []
        for writer, reader in self._early_reads:
            way = _way(writer, reader)
            if way and reader.fate is Fate.COMMITTED:
                names = " read from ".join(one.name for one in (reader, *way))
                self._report.add(Rule.CYCLE, reader.name, names)
            elif Fate.ABORTED not in {writer.fate, reader.fate}:
                going.append((writer, reader))
        self._early_reads = going


def _way(start: Transaction, goal: Transaction) -> list[Transaction]:
    """Return committed transactions from `start` to `goal`, each of which has read from the next; empty: none."""
    came_from: dict[Transaction, Transaction | None] = {start: None}
    waiting = [start]
    while waiting:
        one = waiting.pop()
        if one.fate is not Fate.COMMITTED:
            continue
        if one is goal:
            way: list[Transaction] = []
            step: Transaction | None = one
            while step is not None:
                way.append(step)
                step = came_from[step]
            return way[::-1]
        for other in one.reads_from:
            if other not in came_from:
                came_from[other] = one
                waiting.append(other)
    return []
