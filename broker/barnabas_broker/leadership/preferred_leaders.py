"""Hands leaderships back to the first replica of each partition once its broker has returned.

After a broker was away, the others lead its partitions. If nothing were done, that would stay so: the returned broker
would only follow, and the next failure would hit more partitions at once. So a leader that is not the first of its
partition's replicas hands the leadership to the first one when that one's node has been live for `interval_ms` and it
has caught up. To be in sync is not enough: that one may be half a minute behind, and producers would wait until the
transfer is given up. Placement spreads the first replicas evenly, so this spreads the leaders. Kafka does the same
(`auto.leader.rebalance.enable`), through its controller and every five minutes; here each leader does it for its own
partitions, with one timer for the node, which runs only while something is not where it belongs.

A turn goes through all partitions that are hosted, `LOOKED_AT_ONCE` in each iteration of the loop.

Not here: leaders by load, and a mute for partitions whose transfers fail; a failed one is tried again at the next turn.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from barnabas_raftlog.loop_meter import LoopMeter

__all__ = ["PreferredLeaders", "Transferable"]

LOOKED_AT_ONCE = 500  # 1 to 5 us each
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
    """Owned by the loop. `partitions` yields what this node hosts, also while that changes.

    Only those that it leads are touched.
    """

    def __init__(
        self,
        node_id: int,
        partitions: Callable[[], Iterable[Transferable]],
        live_since_ms: Callable[[int], int | None],
        clock: Callable[[], int],
        interval_ms: int,
        meter: LoopMeter | None = None,
    ) -> None:
        self._meter = meter or LoopMeter()
        self._moving: Generator[None, None, bool] | None = None  # a turn that has begun
        self._node_id = node_id
        self._partitions = partitions
        self._live_since_ms = live_since_ms
        self._clock = clock
        self._interval_ms = interval_ms
        self._timer: asyncio.TimerHandle | None = None
        self._closed = self._is_asked = False

    def look_soon(self) -> None:
        """A node came back, or a leadership came here: look after one interval whether it should move."""
        if self._moving is not None:
            self._is_asked = True  # It may be about a partition that this turn has gone past.
        elif self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(
                self._interval_ms / 1000, self._meter.run, "leaderships go home", self._turn
            )

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._timer = None
        self._moving = self.move()
        self._is_asked = False
        self._move_some()

    def _move_some(self) -> None:
        assert self._moving is not None
        if self._closed:
            return
        try:
            next(self._moving)
        except StopIteration as end:
            self._moving = None
            if end.value or self._is_asked:
                self.look_soon()
        else:
            asyncio.get_running_loop().call_soon(self._meter.run, "leaderships go home", self._move_some)

    def move(self) -> Generator[None, None, bool]:
        """Hand over what is due, in steps; return whether something that should move is still here."""
        oldest_ms = self._clock() - self._interval_ms
        moved = 0
        remain = False
        for number, partition in enumerate(self._partitions(), 1):
            if not number % LOOKED_AT_ONCE:
                yield
            first = partition.replicas[0]
            if first == self._node_id or not partition.can_serve:
                continue
            since_ms = self._live_since_ms(first)
            if since_ms is None:
                continue  # When it comes back, `look_soon` is called again.
            remain = True  # Those that are moved below count, too: the transfer may fail.
            if since_ms <= oldest_ms and moved < TRANSFERS_PER_TURN and partition.has_caught_up(first):
                partition.transfer(first)
                moved += 1
        return remain
