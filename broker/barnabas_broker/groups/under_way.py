"""What a coordinator has appended to its log and does not know to be committed yet, in the order of the log. Pure.

Between the two moments a record counts for nothing that is shown, and yet it must be reckoned with, because it will
count later without anybody doing anything more:

- *Whoever deletes* (a group, an offset that has expired) must know what is on its way. It either writes its tombstone
  behind that, so that nothing is left over, or leaves the name alone, because somebody has just used it.
- *Whoever rewrites* what counts behind the end of the log (compaction) leaves out every name that has a newer record
  under way: a replay would come back to the older one.

Limit: none of its own. Each batch was appended, and the log refuses further ones when its disk falls behind.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence

from .records import Name

__all__ = ["UnderWay"]

Apply = Callable[[], None]


class UnderWay:
    """Batches by the index of their entry, each with the names of its records and what takes them in.

    Invariant: a group is in `_counts` while a record of it is in a batch, with how many there are under each name.
    """

    __slots__ = ("_batches", "_counts")

    def __init__(self) -> None:
        self._batches: deque[tuple[int, Sequence[Name], Apply]] = deque()
        self._counts: dict[str, dict[Name, int]] = {}

    def __contains__(self, name: Name) -> bool:
        """Tell whether a record of that name is under way."""
        return name in self._counts.get(name.group_id, ())

    def of_group(self, group_id: str) -> Collection[Name]:
        """Return the names of a group's records that are under way, each once; a view, not to be kept."""
        return self._counts.get(group_id, {}).keys()

    def add(self, index: int, names: Sequence[Name], apply: Apply) -> None:
        """Note a batch that was appended at `index`, behind all others; `apply` takes it in."""
        assert not self._batches or self._batches[-1][0] < index
        self._batches.append((index, names, apply))
        for name in names:
            counts = self._counts.setdefault(name.group_id, {})
            counts[name] = counts.get(name, 0) + 1

    def commit(self, commit_index: int) -> None:
        """Take in, in the order of the log, what is committed up to `commit_index`, inclusive."""
        batches = self._batches
        while batches and batches[0][0] <= commit_index:
            _, names, apply = batches.popleft()
            for name in names:
                self._arrived(name)
            apply()

    def clear(self) -> None:
        """Note that nobody here will ever know what became of it."""
        self._batches.clear()
        self._counts.clear()

    def _arrived(self, name: Name) -> None:
        counts = self._counts[name.group_id]
        if counts[name] > 1:
            counts[name] -= 1
            return
        del counts[name]
        if not counts:
            del self._counts[name.group_id]
