"""Leaderships go home: to the first replica of each partition, some time after its broker has come back.

After a broker was away the others lead what it led. Left alone that stays so, the returned broker only follows, and
the next failure hits more partitions at once. So a leader that is not the first of its partition's replicas hands the
leadership to the first one when that one's node has been live for `interval_ms` and it has caught up. To be in sync is
not enough: that one may be half a minute behind, and producers would wait until the transfer is given up. Placement
spreads the first replicas evenly, so this spreads the leaders. Kafka does the same (`auto.leader.rebalance.enable`),
through its controller and every five minutes; here each leader does it for its own partitions, with one timer for the
node, which runs only while something is not where it belongs.

Not here: leaders by load, and a mute for partitions whose transfers fail; a failed one is tried again at the next turn.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

__all__ = ["PreferredLeaders", "Transferable"]

TRANSFERS_PER_TURN = 200
"""Each costs its partition's producers a round trip or two; a broker of thousands of partitions takes several turns."""


class Transferable(Protocol):
    """The part of a partition that is used here."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def can_serve(self) -> bool: ...
    def has_caught_up(self, node_id: int) -> bool: ...
    def transfer(self, node_id: int) -> None: ...


class PreferredLeaders:
    """Owned by the loop. `partitions` yields what this node hosts; only those that it leads are touched."""

    def __init__(
        self,
        node_id: int,
        partitions: Callable[[], Iterable[Transferable]],
        live_since_ms: Callable[[int], int | None],
        clock: Callable[[], int],
        interval_ms: int,
    ) -> None:
        self._node_id, self._partitions, self._live_since_ms = node_id, partitions, live_since_ms
        self._clock, self._interval_ms = clock, interval_ms
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def look_soon(self) -> None:
        """A node came back, or a leadership came here: look after one interval whether it should move."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._interval_ms / 1000, self._turn)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._timer = None
        if self.move() and not self._closed:
            self.look_soon()

    def move(self) -> bool:
        """Hand over what is due; return whether something that should move is still here."""
        oldest_ms, moved, remain = self._clock() - self._interval_ms, 0, False
        for partition in self._partitions():
            first = partition.replicas[0]
            if first == self._node_id or not partition.can_serve:
                continue
            since_ms = self._live_since_ms(first)
            if since_ms is None:
                continue  # When it comes back, `look_soon` is called again.
            remain = True  # Also what is moved below: the transfer may fail.
            if since_ms <= oldest_ms and moved < TRANSFERS_PER_TURN and partition.has_caught_up(first):
                partition.transfer(first)
                moved += 1
        return remain
