"""Remembers where the journal has the entries of one replica, in few bytes each. Pure.

A journal that was never checkpointed may hold ten million entries of a node's replicas, and recovery must remember the
place of each until it knows whether the segment files have it. So the places are kept as columns: 12 bytes an entry,
that is 1.2 % of a journal of 1 KiB batches, and 11 % of one of the smallest batches that there are.

Entries of one term that stand in one journal file follow each other by one; together they are a *run*. A truncation
trims runs from the right, a dropped prefix from the left. Runs are in the order of the journal, which is the order of
the indexes too, unless something is damaged: that is found when they are read (`after`), because a truncation that
comes later may explain it.

An entry that the journal only says to be in its segment file has no place to remember; it is in a run of such entries.
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["STORED", "JournalEntries", "Location"]


STORED = 0  # no journal file has this sequence number


class Location(NamedTuple):
    """An entry of the journal: its term, and where its frame is; `STORED` as `sequence`: in the segment file."""

    term: int
    sequence: int
    position: int
    size_bytes: int


class _Run:
    """The entries from `first_index` on, all of `term` and in file `sequence`."""

    __slots__ = ("first_index", "positions", "sequence", "sizes", "term")

    def __init__(self, first_index: int, term: int, sequence: int) -> None:
        self.first_index = first_index
        self.term = term
        self.sequence = sequence
        self.positions = array("Q")
        self.sizes = array("I")

    @property
    def end_index(self) -> int:
        return self.first_index + len(self.sizes)


class JournalEntries:
    """The entries of one replica. Owned by its `ReplicaPlan`."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def put(self, index: int, term: int, sequence: int, position: int, size_bytes: int) -> None:
        """Note the next entry that the journal has."""
        runs = self._runs
        run = runs[-1] if runs else None
        if run is None or run.term != term or run.sequence != sequence or run.end_index != index:
            run = _Run(index, term, sequence)
            runs.append(run)
        run.positions.append(position)
        run.sizes.append(size_bytes)

    @property
    def first_index(self) -> int | None:
        """The first entry; None if there is none."""
        return self._runs[0].first_index if self._runs else None

    @property
    def last_term(self) -> int:
        """The highest term of an entry; 0 if there is none."""
        return max((run.term for run in self._runs), default=0)

    @property
    def last_stored(self) -> int:
        """The last entry whose frame is surely in its segment file; 0 if there is none."""
        return max((run.end_index - 1 for run in self._runs if run.sequence == STORED), default=0)

    def clear(self) -> None:
        self._runs.clear()

    def truncate_from(self, index: int) -> None:
        """Forget the entries at and after `index`."""
        for run in self._runs:
            kept = max(0, index - run.first_index)
            del run.positions[kept:]
            del run.sizes[kept:]
        self._runs = [run for run in self._runs if run.sizes]

    def drop_up_to(self, index: int) -> None:
        """Forget the entries at and before `index`."""
        for run in self._runs:
            gone = min(max(0, index + 1 - run.first_index), len(run.sizes))
            del run.positions[:gone]
            del run.sizes[:gone]
            run.first_index += gone
        self._runs = [run for run in self._runs if run.sizes]

    def after(self, index: int) -> Iterator[tuple[int, Location]]:
        """Yield the entries that follow `index`, in order; all of them are looked at before the first is given.

        Raises:
            ValueError: one is missing, or there are two. The journal promised them, so this is damage.
        """
        runs = [run for run in self._runs if run.end_index > index + 1]
        expected = index + 1
        for run in runs:
            first = max(run.first_index, index + 1)
            if first > expected:
                raise ValueError(f"the journal has entry {first} but not entry {expected}")
            if first < expected:
                raise ValueError(f"the journal has entry {first} twice")
            expected = run.end_index
        return self._each(runs, index + 1)

    @staticmethod
    def _each(runs: list[_Run], index: int) -> Iterator[tuple[int, Location]]:
        for run in runs:
            start = max(0, index - run.first_index)
            for place in range(start, len(run.sizes)):
                location = Location(run.term, run.sequence, run.positions[place], run.sizes[place])
                yield run.first_index + place, location
