"""Keeps the batches that a leader has appended and that are not committed yet. Pure.

From its append to its commit a record counts for nothing that is shown, and yet it must be reckoned with, because it
will count later without anybody doing anything more:

- *Deleting* something needs to know what is on its way. The tombstone is either written behind that, so that nothing is
  left over, or the name is left alone, because somebody has just used it.
- *Rewriting* what counts behind the end of the log leaves out every name that has a newer record under way: a replay
  would come back to the older one.

Much that commits at once is taken in a part at a time, in the same order: until then it is under way.

Limit: none of its own. Each batch was appended, and the log refuses further ones when its disk falls behind; a
coordinator counts records under way towards its own limit.
"""

from collections import deque
from collections.abc import Collection, Sequence

from .contracts import Apply, Name

__all__ = ["UnderWay"]


class UnderWay:
    """Batches by the index of their entry, each with the names of its records and what takes them in.

    Invariants: an owner (the first element of a name) is in `_counts` while a record of it is in a batch, with how many
    there are under each name; `count` is how many records there are in all.
    """

    __slots__ = ("_batches", "_counts", "count")

    def __init__(self) -> None:
        self._batches: deque[tuple[int, Sequence[Name], Apply, int]] = deque()
        self._counts: dict[object, dict[Name, int]] = {}
        self.count = 0

    def __contains__(self, name: Name) -> bool:
        """Tell whether a record of that name is under way."""
        return name in self._counts.get(name[0], ())

    def of_owner(self, owner: object) -> Collection[Name]:
        """Return the names of an owner's records that are under way, each once; a view, not to be kept."""
        return self._counts.get(owner, {}).keys()

    def add(self, index: int, names: Sequence[Name], apply: Apply, *, weight: int = 0) -> None:
        """Note a batch that was appended at `index`, behind all others; `apply` takes it in.

        `weight`: how many things it takes in, if those are more than `names`.
        """
        assert not self._batches or self._batches[-1][0] < index
        self._batches.append((index, names, apply, max(1, len(names), weight)))
        self.count += len(names)
        for name in names:
            counts = self._counts.setdefault(name[0], {})
            counts[name] = counts.get(name, 0) + 1

    def commit(self, commit_index: int, names_max: int = 1 << 62) -> int:
        """Take in, in the order of the log, what is committed up to `commit_index`, inclusive, or so many names of it.

        Return up to which index everything is taken in; less than `commit_index`: there is more. A batch that is taken
        in by parts (`Apply`) ends a turn with each of them, and is under way until its last one.
        """
        batches = self._batches
        while batches and batches[0][0] <= commit_index:
            if names_max <= 0:
                return batches[0][0] - 1
            index, names, apply, weight = batches[0]
            if apply() is True:
                return index - 1
            batches.popleft()
            names_max -= weight
            self.count -= len(names)
            for name in names:
                self._arrived(name)
        return commit_index

    def clear(self) -> None:
        """Forget all of it: nobody here will ever know the outcome."""
        self._batches.clear()
        self._counts.clear()
        self.count = 0

    def _arrived(self, name: Name) -> None:
        counts = self._counts[name[0]]
        if counts[name] > 1:
            counts[name] -= 1
            return
        del counts[name]
        if not counts:
            del self._counts[name[0]]
