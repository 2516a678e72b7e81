"""Rules of a group: commits stay, and each partition has one owner. Pure.

*Committed offsets* are judged as a register that its writers only move forward: members start from the committed offset
and read on. So an answer must be at least the largest commit that was acknowledged before the question was asked, and
it must be one that somebody has at least tried to commit. A client that moves a group back on purpose says so
(`commit_reset`), and no commit of before is demanded any more.

*Owners*: within one generation no partition is named for two members. A partition that no member has is not judged:
a generation that ends before all its members heard of it looks the same.

Memory: for each group and partition the commits tried at or above the one that holds; the last 64 generations.
"""

from .events import (
    Assigned,
    CommitAcknowledged,
    CommitInvoked,
    CommittedAsked,
    CommittedFetched,
    CommittedReset,
    HistoryError,
)
from .violations import Report, Rule

__all__ = ["GroupRules"]

GENERATIONS_MAX = 64
PRUNE_AT = 1024


class _Committed:
    """The committed offset of one partition, as clients know it. -1: none."""

    __slots__ = ("asked", "floor", "tried")

    def __init__(self) -> None:
        self.floor = -1
        self.tried: set[int] = set()
        # By reader: the commit that held when the question was asked.
        self.asked: dict[str, int] = {}

    def raise_to(self, offset: int) -> None:
        self.floor = max(self.floor, offset)
        if len(self.tried) > PRUNE_AT:
            least = min((self.floor, *self.asked.values()))
            self.tried = {tried for tried in self.tried if tried >= least}

    def reset_to(self, offset: int | None) -> None:
        self.floor = -1
        self.asked = dict.fromkeys(self.asked, -1)
        if offset is not None:
            self.tried.add(offset)


class GroupRules:
    """One group's share of the history, and the rules about it."""

    def __init__(self, name: str, report: Report) -> None:
        self.name = name
        self.commits = 0
        self._report = report
        self._committed: dict[str, _Committed] = {}
        self._owners: dict[int, dict[str, str]] = {}

    def on_commit_invoked(self, event: CommitInvoked) -> None:
        self._of(event.partition).tried.add(event.offset)

    def on_commit_acknowledged(self, event: CommitAcknowledged) -> None:
        committed = self._of(event.partition)
        if event.offset not in committed.tried and event.offset >= committed.floor:
            raise HistoryError(self._report.line, f"{self.name} never tried to commit {event.offset}")
        self.commits += 1
        committed.raise_to(event.offset)

    def on_reset(self, event: CommittedReset) -> None:
        self._of(event.partition).reset_to(event.offset)

    def on_asked(self, event: CommittedAsked) -> None:
        committed = self._of(event.partition)
        committed.asked[event.reader] = committed.floor

    def on_fetched(self, event: CommittedFetched) -> None:
        committed = self._of(event.partition)
        floor = committed.asked.pop(event.reader, committed.floor)
        subject = f"{self.name} {event.partition}"
        offset = -1 if event.offset is None else event.offset
        if offset < floor:
            told = "nothing" if event.offset is None else str(offset)
            self._report.add(Rule.COMMITTED_BACK, subject, f"{event.reader} was told {told}, {floor} was committed")
        elif offset != -1 and offset not in committed.tried:
            self._report.add(Rule.COMMITTED_BY_NOBODY, subject, f"{event.reader} was told {offset}")

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
