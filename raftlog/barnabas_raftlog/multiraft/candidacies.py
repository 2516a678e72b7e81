"""Who of ten thousand groups may stand for election now: a few hundred at a time, first come, first served. Pure.

When a broker dies, or a cluster starts, thousands of groups want a leader in the same moment. An election costs a
dozen messages between the nodes; all of them together fill every node's queue with more than an election timeout's
work, and then no answer comes in time: candidates ask again, leaders that were just elected give up, and the cluster
is busy with that instead of with the elections. With a bounded number under way each is over in a few round trips, and
the next ones begin at the rate at which they can be finished, whatever the machine is busy with besides.

Two nodes that go through the same groups in the same order would stand against each other in every one of them. So
there are two lines: in one the groups in which this node should be the first to stand, in the other one, which has its
turn when the first is empty, those in which somebody else should: they have a leader by then, mostly.

A group whose turn has come holds its place until it has, or knows, a leader. If it comes to nothing, its deadline
passes once more: then it goes to the end of the line, so that groups which cannot have a leader keep nobody waiting.

Limit: `STANDING_MAX` groups of a node stand at the same time.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["STANDING_MAX", "Candidacies"]

Item = TypeVar("Item", bound=Hashable)

STANDING_MAX = 128


class Candidacies(Generic[Item]):
    """Items that wait for their turn, in the order in which they came, and those whose turn it is."""

    __slots__ = ("_first", "_others", "_standing")

    def __init__(self) -> None:
        self._first: dict[Item, int] = {}  # since when
        self._others: dict[Item, int] = {}
        self._standing: dict[Item, None] = {}

    @property
    def waiting_count(self) -> int:
        return len(self._first) + len(self._others)

    @property
    def has_turn(self) -> bool:
        """Whether somebody waits who need not."""
        return self.waiting_count > 0 and len(self._standing) < STANDING_MAX

    def waits_ms(self, now_ms: int) -> int:
        """Return for how long the one that came first of all has been waiting."""
        return now_ms - min(next(iter(line.values()), now_ms) for line in (self._first, self._others))

    def wait(self, item: Item, now_ms: int, *, is_first: bool) -> None:
        """Put `item` at the end of its line, unless it is in one. If it was its turn, that is over."""
        self._standing.pop(item, None)
        if item not in self._first and item not in self._others:
            (self._first if is_first else self._others)[item] = now_ms

    def admit(self, count_max: int) -> list[Item]:
        """Return whose turn has come, and is until `end`: at most `count_max` of them."""
        count = min(count_max, STANDING_MAX - len(self._standing))
        admitted: list[Item] = []
        for line in (self._first, self._others):
            taken = [item for _, item in zip(range(count - len(admitted)), line, strict=False)]
            for item in taken:
                del line[item]
                self._standing[item] = None
            admitted += taken
        return admitted

    def end(self, item: Item) -> None:
        """It is not, or will not be, the turn of `item`."""
        for line in (self._standing, self._first, self._others):
            line.pop(item, None)

    def is_standing(self, item: Item) -> bool:
        return item in self._standing
