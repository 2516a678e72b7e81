"""When the next slice of long work may come: the more slices a client has had lately, the longer others go first.

What takes long is done in slices, one in each turn of the loop (`turns`, `connections`), so nobody waits for more than
a slice. But the turns themselves grow longer by them, and where a broker has little time left, because thousands of
clients ask for a little each, a few that ask for much have most of it. So a slice waits: after one turn of the loop it
is counted how many reads there were in it from clients that ask for little. If there were none, the slice comes at
once, and whoever is alone with a long request notices nothing. If there were some, it waits for as long as these cost
in all (`READ_S`), times the slices that its client has had lately (`Connection.slices`, half of which is forgotten in
each sweep). A client that asks for much for the first time has its first slices soon, whoever else waits; one that goes
on and on has in the end a slice in half a second, as long as others have something to do all the time.

Heavy clients among themselves take nothing from each other by this: who waits for whom is a matter of those who ask for
little alone. Counted are reads and not their times, so a simulation takes the same course each time.
"""

import asyncio
from collections.abc import Callable

from barnabas_raftlog.loop_meter import LoopMeter

__all__ = ["LITTLE", "Patience", "Reads"]

LITTLE = 4
"""Who has had fewer slices lately asks for little."""
READ_S = 0.000_5
"""What a small request costs until it is answered, replication included: measured, 0.35 ms of a processor for 1 KiB."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.001, 0.5


class Reads:
    """How many reads there were from clients that ask for little."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Patience:
    """Calls the one who works in slices when it is his turn, once for each time that he asked for it."""

    def __init__(self, reads: Reads, meter: LoopMeter, name: str, call: Callable[[], None]) -> None:
        self._reads, self._meter, self._name, self._call = reads, meter, name, call
        self._handle: asyncio.Handle | None = None
        self._slices = 0

    def ask(self, slices: int) -> None:
        """Have the next slice, for somebody who has had so many; if several wait, for the one who has had least."""
        if self._handle is not None:
            if self._slices <= slices:
                return
            self._handle.cancel()
        self._slices = slices
        self._handle = asyncio.get_running_loop().call_soon(self._look, self._reads.count)

    def _look(self, count: int) -> None:
        pause_s = min((self._reads.count - count) * self._slices * READ_S, PAUSE_S_MAX)
        if pause_s < PAUSE_S_MIN:
            self._go()
        else:
            self._handle = asyncio.get_running_loop().call_later(pause_s, self._go)

    def _go(self) -> None:
        self._handle = None
        self._meter.run(self._name, self._call)
