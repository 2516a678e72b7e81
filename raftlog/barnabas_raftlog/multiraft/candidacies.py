"""Lets a few hundred of ten thousand groups stand for election at a time. Pure.

When a broker dies, or a cluster starts, thousands of groups want a leader in the same moment. An election costs a
dozen messages between the nodes; all of them together fill every node's queue with more than an election timeout's
work, and then no answer comes in time: candidates ask again, leaders that were just elected give up, and the cluster
is busy with that instead of with the elections. With a bounded number under way each is over in a few round trips, and
the next ones begin at the rate at which they can be finished, however busy the machine is.

Two nodes that go through the same groups in the same order would stand against each other in every one of them. So
there are lines: in one the groups in which this node should be the first to stand, in the next one, which has its turn
when the first is empty, those in which somebody else should: they have a leader by then, mostly. In the last one are
those of which no majority seems to be there. They have their turn as well, for that may be old news, but never more
than a quarter of all: thousands of groups that cannot have a leader keep nobody waiting that can.

A group whose turn has come holds its place until it has, or knows, a leader. If it comes to nothing, its deadline
passes once more: then it goes to the end of a line.

Limit: `STANDING_MAX` groups of a node stand at the same time.
"""

from collections.abc import Hashable
from enum import IntEnum
from typing import Generic, TypeVar

__all__ = ["STANDING_MAX", "Candidacies", "Line"]

Item = TypeVar("Item", bound=Hashable)

STANDING_MAX = 256


class Line(IntEnum):
    """The line of a group, by who should be the first to stand: this node, another one, or hardly anybody."""

    FIRST = 0
    OTHERS = 1
    HOPELESS = 2


class Candidacies(Generic[Item]):
    """Items that wait for their turn, in the order in which they came, and those whose turn it is."""

    __slots__ = ("_hopeless_count", "_lines", "_standing")

    def __init__(self) -> None:
        self._lines: tuple[dict[Item, int], ...] = tuple({} for _ in Line)  # since when
        self._standing: dict[Item, Line] = {}
        self._hopeless_count = 0  # of those that stand

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._lines))

    @property
    def has_turn(self) -> bool:
        """True if an item waits that need not."""
        return any(line and self._room(number) > 0 for number, line in zip(Line, self._lines, strict=True))

    def waits_ms(self, now_ms: int) -> int:
        """Return for how long the one that came first of all has been waiting; the hopeless do not count."""
        return now_ms - min(next(iter(line.values()), now_ms) for line in self._lines[: Line.HOPELESS])

    def wait(self, item: Item, now_ms: int, line: Line) -> None:
        """Put `item` at the end of a line, unless it is in that one or a better. If it was its turn, that is over."""
        self._leave(item)
        for number, waiting in zip(Line, self._lines, strict=True):
            if item in waiting:
                if number <= line:
                    return
                del waiting[item]
        self._lines[line][item] = now_ms

    def admit(self, count_max: int) -> list[Item]:
        """Return whose turn has come, and is until `end`: at most `count_max` of them."""
        admitted: list[Item] = []
        for number, line in zip(Line, self._lines, strict=True):
            count = min(count_max - len(admitted), self._room(number))
            taken = [item for _, item in zip(range(count), line, strict=False)]
            for item in taken:
                del line[item]
                self._standing[item] = number
                self._hopeless_count += number is Line.HOPELESS
            admitted += taken
        return admitted

    def end(self, item: Item) -> None:
        """It is not, or will not be, the turn of `item`."""
        self._leave(item)
        for line in self._lines:
            line.pop(item, None)

    def is_standing(self, item: Item) -> bool:
        return item in self._standing

    def _leave(self, item: Item) -> None:
        self._hopeless_count -= self._standing.pop(item, None) is Line.HOPELESS

    def _room(self, line: Line) -> int:
        room = STANDING_MAX - len(self._standing)
        return min(room, max(STANDING_MAX // 4, 1) - self._hopeless_count) if line is Line.HOPELESS else room
