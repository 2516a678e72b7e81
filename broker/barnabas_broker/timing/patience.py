"""Lets clients that ask for little go first where the loop is crowded.

Long work is done in slices, one in each turn of the loop (`turns`, `connections`), so no request waits for more than a
slice. But the turns themselves grow longer by them, and where a broker has little time left, because thousands of
clients ask for a little each, a few that ask for much have most of it. So a slice waits, if turns take more than
`CROWDED_S` on average: after one turn of the loop it is counted how many reads there were in it from clients that ask
for little. If there were some, it waits for as long as these cost in all (`READ_S`), times the square of the slices
that its client has had lately (`Connection.slices`, half of which is forgotten in each sweep). A client that asks for
much for the first time has its first slices soon, even if others wait; one that goes on and on has in the end a slice
in half a second, until turns are short again. With the slices themselves in place of their square either the first few
waited too long, or those that flood a broker too little.

Where turns are short no client waits, however much it asks for. Heavy clients take nothing from each other by this:
only those that ask for little are waited for.
"""

import asyncio
from collections.abc import Callable

from barnabas_raftlog.loop_meter import LoopMeter

__all__ = ["LITTLE", "Crowd", "Patience"]

LITTLE = 4
"""A client that has had fewer slices lately asks for little."""
CROWDED_S = 0.001_5  # three brokers on two cores with 4,500 clients: 1 to 4 ms
WEIGHT = 1 / 16  # of the latest turn in their average
READ_S = 0.000_35
"""A small request costs so much of a processor: 1 KiB until it is answered, replication included."""
PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 0.5


class Crowd:
    """Measures of one loop: the reads from clients that ask for little, and the length of its turns.

    `turn_s` is how long a turn takes on average; turns are measured while there is work in slices.
    """

    __slots__ = ("reads", "turn_s")

    def __init__(self) -> None:
        self.reads = 0
        self.turn_s = 0.0

    def note_turn(self, took_s: float) -> None:
        self.turn_s += (took_s - self.turn_s) * WEIGHT

    def pause_s(self, reads: int, slices: int) -> float:
        """Return how long a client waits that has had so many slices, after a turn with so many reads."""
        return min(reads * slices * slices * READ_S, PAUSE_S_MAX) if self.turn_s > CROWDED_S else 0.0


class Patience:
    """Calls its user, who works in slices, when the turn comes, once for each time that it was asked for."""

    def __init__(self, crowd: Crowd, meter: LoopMeter, name: str, call: Callable[[], None]) -> None:
        self._crowd = crowd
        self._meter = meter
        self._name = name
        self._call = call
        self._handle: asyncio.Handle | None = None
        self._slices = 0

    def ask(self, slices: int) -> None:
        """Have the next slice, for a client that has had so many; if several wait, for the one that has had fewest."""
        if self._handle is not None:
            if self._slices <= slices:
                return
            self._handle.cancel()
        self._slices = slices
        loop = asyncio.get_running_loop()
        self._handle = loop.call_soon(self._look, loop.time(), self._crowd.reads)

    def _look(self, asked_s: float, reads: int) -> None:
        loop = asyncio.get_running_loop()
        crowd = self._crowd
        crowd.note_turn(loop.time() - asked_s)
        pause_s = crowd.pause_s(crowd.reads - reads, self._slices)
        if pause_s < PAUSE_S_MIN:
            self._go()
        else:
            self._handle = loop.call_later(pause_s, self._go)

    def _go(self) -> None:
        self._handle = None
        self._meter.run(self._name, self._call)
