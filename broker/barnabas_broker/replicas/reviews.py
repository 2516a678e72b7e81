"""Reviews the in-sync replicas and the members of partitions that are led here.

A partition where something moved is reviewed within `REVIEW_MS`, and again for as long as a review asks for it; a
partition at rest costs nothing. The same timer serves acks=all above a majority (`min.insync.replicas` 3 of 3), because
replication progress itself makes no noise.

One review looks at the in-sync replicas (`Partition.review`), and at the members of the Raft group (`reassignment`).

All goes in pieces, each in an iteration of the loop of its own: `REVIEWED_PER_ITERATION` reviews, and
`LOOKED_PER_ITERATION` partitions that are only looked at.

Limit: one entry for each partition that is to be reviewed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from barnabas_broker.partition.partition import Partition
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.raft.messages import Fact, GroupId

from .hosted_topic import group_id_of
from .reassignment import Moves

__all__ = ["Reviews"]

REVIEW_MS = 100
REVIEWED_PER_ITERATION = 100
LOOKED_PER_ITERATION = 2_000


class Reviews:
    """Owned by `Partitions`.

    Args:
        partitions: All that is hosted; yields them also while they come and go.
        is_hosted: Whether a partition is served still, and not about to end.
        moves: Changes the members of groups.
        clock: The monotonic clock, in milliseconds.
        on_fact: Told of reviews that have failed.
        meter: Measures each piece.
    """

    def __init__(
        self,
        partitions: Iterable[Partition],
        is_hosted: Callable[[Partition], bool],
        moves: Moves,
        clock: Callable[[], int],
        on_fact: Callable[[GroupId, Fact], None],
        meter: LoopMeter,
    ) -> None:
        self._partitions = partitions
        self._is_hosted = is_hosted
        self._moves = moves
        self._clock = clock
        self._on_fact = on_fact
        self._meter = meter
        # Those still to be gone through, and what tells whether a review concerns them.
        self._looking: deque[tuple[Iterator[Partition], Callable[[Partition], bool]]] = deque()
        self._waiting: dict[Partition, None] = {}  # for the timer
        self._reviewing: dict[Partition, None] = {}  # in this iteration, or in the next ones
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False

    def review_soon(self, partition: Partition) -> None:
        self._waiting[partition] = None
        if self._timer is None and not self._is_closing:
            self._timer = asyncio.get_running_loop().call_later(
                REVIEW_MS / 1000, self._meter.run, "reviews", self._review
            )

    def review_led(self, concerned: Callable[[Partition], bool]) -> None:
        """Have the partitions reviewed that are led here and concerned; all that is hosted is gone through for that."""
        if not self._looking:
            self._soon("partitions to review", self._look_through_some)
        self._looking.append((iter(self._partitions), concerned))

    def forget(self, partition: Partition) -> None:
        """This replica ends."""
        self._waiting.pop(partition, None)

    def stop(self) -> None:
        """Begin no review any more that is not under way."""
        self._is_closing = True

    def close(self) -> None:
        """Review nothing any more."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()

    def _look_through_some(self) -> None:
        some, concerned = self._looking[0]
        for partition in (looked := list(islice(some, LOOKED_PER_ITERATION))):
            if partition.is_leader and concerned(partition):
                self.review_soon(partition)
        if len(looked) < LOOKED_PER_ITERATION:
            self._looking.popleft()
        if self._looking and not self._is_closing:
            self._soon("partitions to review", self._look_through_some)

    def _review(self) -> None:
        self._timer = None
        is_at_it = bool(self._reviewing)
        self._reviewing |= self._waiting
        self._waiting = {}
        if not is_at_it:
            self._review_some()

    def _review_some(self) -> None:
        now_ms = self._clock()

        def review(partition: Partition) -> None:
            if not self._is_hosted(partition):
                return  # It is about to end.
            is_moving = self._moves.review(partition, partition.placement, partition.observing)
            if partition.review(now_ms) or is_moving:
                self.review_soon(partition)

        some = list(islice(self._reviewing, REVIEWED_PER_ITERATION))
        for partition in some:
            del self._reviewing[partition]
        if self._reviewing and not self._is_closing:
            self._soon("reviews", self._review_some)
        call_each(some, review, self._on_failed)

    def _on_failed(self, partition: Partition, error: Exception) -> None:
        """Nobody waits for it. It is reviewed again when something moves there."""
        text = f"its replicas could not be reviewed: {type(error).__name__}: {error}"
        self._on_fact(group_id_of(partition.topic_id, partition.index), Fact("review failed", partition.term, text))

    def _soon(self, name: str, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(self._meter.run, name, call)
