"""Wakes parked fetches and answers waiting appends, a few in each iteration of the loop.

A fetch may read many partitions, and one drive may commit to all of them. So fetches that are woken are collected and
looked at once per iteration, `WOKEN_PER_ITERATION` of them. Those that read committed records only stand apart
(`committed_fetches`): they gain something when the last stable offset moves, which it may long after a commit.

A partition may have ten thousand appends that wait. `TOLD_AT_ONCE` of those are told at once of what one drive brings;
the others are told in callbacks of their own, as many in each, in their order.

Limits: one entry for each request that waits, and one for each partition with fetches to be woken.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from barnabas_broker.partition.contracts import PendingAppend
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.waiters import FetchWaiters, ParkedFetch
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.multiraft.stats import MultiRaftStats

__all__ = ["WaitingRequests"]

WOKEN_PER_ITERATION = 50
TOLD_AT_ONCE = 50
TOLD_CALLBACKS = 4
"""Waiting appends that are told in one drive, or callback, and callbacks of that kind in one iteration. Measured: 20 to
60 us for an answer, most of it in the system call that sends it."""


class WaitingRequests:
    """Owned by `Partitions`. `PartitionHost` describes what partitions tell it.

    `fetches` and `committed_fetches` are the parked ones, each in the one for what it reads.
    """

    def __init__(self, drives: MultiRaftStats, meter: LoopMeter) -> None:
        self.fetches: FetchWaiters[Partition, ParkedFetch] = FetchWaiters()
        self.committed_fetches: FetchWaiters[Partition, ParkedFetch] = FetchWaiters()
        self._drives = drives
        self._meter = meter
        self._woken: dict[Partition, None] = {}  # those for which fetches are still to be woken
        self._told_drive = -1  # in which appends were told last
        self._told_left = 0  # how many more may be told in it
        self._untold: deque[tuple[PendingAppend, ErrorCode | None]] = deque()
        self._told_callbacks = 0  # that have been asked for

    def close(self) -> None:
        """Tell and wake everybody now."""
        untold, self._untold = self._untold, deque()
        call_each(untold, _tell)
        call_each([*self.fetches.take_all(), *self.committed_fetches.take_all()], _wake, _say)

    # Fetches.

    def wake(self, partition: Partition) -> None:
        is_awaited = self.fetches.changed(partition)
        if self.committed_fetches.changed(partition) or is_awaited:
            self._wake_soon(partition)

    def gained(self, partition: Partition, start_offset: int, decided_offset: int) -> None:
        # On followers there is nobody, for each append.
        if self.fetches.is_awaited(partition):
            self._tell_gain(self.fetches, partition, start_offset, partition.high_watermark)
        if self.committed_fetches.is_awaited(partition) and partition.last_stable_offset != decided_offset:
            self._tell_gain(self.committed_fetches, partition, decided_offset, partition.last_stable_offset)

    def _tell_gain(
        self, fetches: FetchWaiters[Partition, ParkedFetch], partition: Partition, start_offset: int, end_offset: int
    ) -> None:
        count = partition.bytes_between(start_offset, end_offset) if fetches.counts(partition) else 0
        if fetches.changed(partition) if count is None else fetches.gained(partition, count):
            self._wake_soon(partition)

    def _wake_soon(self, partition: Partition) -> None:
        if not self._woken:
            self._soon("fetches that are woken", self._wake_some)
        self._woken[partition] = None

    def _wake_some(self) -> None:
        """Wake some, each once: a fetch that finds too little and parks again waits for more than there was."""
        taken: list[ParkedFetch] = []
        left = WOKEN_PER_ITERATION
        while self._woken and left > 0:
            partition = next(iter(self._woken))
            fetches = self.fetches if self.fetches.is_due(partition) else self.committed_fetches
            some, count = fetches.take(partition, left)
            taken += some
            left -= max(count, 1)
            if not (self.fetches.is_due(partition) or self.committed_fetches.is_due(partition)):
                del self._woken[partition]
        if self._woken:
            self._soon("fetches that are woken", self._wake_some)
        call_each(taken, _wake, _say)

    # Appends.

    def finish(self, waiters: Sequence[PendingAppend]) -> None:
        drive = self._drives.drives
        if drive != self._told_drive:
            self._told_drive = drive
            self._told_left = TOLD_AT_ONCE
        self._told_left -= len(waiters)
        if self._told_left < 0 or self._untold:
            self._tell_soon([(waiter, None) for waiter in waiters])
        else:
            call_each(waiters, _finish)

    def fail(self, waiters: Sequence[PendingAppend], code: ErrorCode) -> None:
        self._tell_soon([(waiter, code) for waiter in waiters])

    def _tell_soon(self, waiters: Iterable[tuple[PendingAppend, ErrorCode | None]]) -> None:
        self._untold.extend(waiters)
        while self._told_callbacks < min(TOLD_CALLBACKS, -(-len(self._untold) // TOLD_AT_ONCE)):
            self._told_callbacks += 1
            self._soon("answers to producers", self._tell_some)

    def _tell_some(self) -> None:
        self._told_callbacks -= 1
        some = [self._untold.popleft() for _ in range(min(len(self._untold), TOLD_AT_ONCE))]
        self._tell_soon(())
        call_each(some, _tell)

    def _soon(self, name: str, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(self._meter.run, name, call)


def _wake(fetch: ParkedFetch) -> None:
    fetch.on_woken()


def _say(fetch: ParkedFetch, error: Exception) -> None:
    fetch.on_error(error)


def _finish(waiter: PendingAppend) -> None:
    waiter.on_committed()


def _tell(untold: tuple[PendingAppend, ErrorCode | None]) -> None:
    waiter, code = untold
    if code is None:
        waiter.on_committed()
    else:
        waiter.on_failed(code)
