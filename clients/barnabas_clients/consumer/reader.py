"""Hands records to the application, and knows which of them it has finished with.

The application takes records in one of three ways (one at a time, in batches, many partitions at once), from one task
at a time. All three come down to `ask`. Everything here serves one rule: **records that the application was handed are
its own until it asks for more.** Asking says that it has finished with the records that it held. So

* finished offsets are committed for it, and after a crash the records in its hands are repeated, and none is lost;
* a partition is taken away (`hold`, then `wait_returned`) only if nothing of it is in the application's hands: while it
  asks, or while it holds nothing.

*One at a time* is fast because nobody keeps count. A `for` iterates over a slice of decoded records, and `settle` reads
off the iterator how far it has come.

*Waiting has an end.* The application may wait for a quiet topic as long as it likes. But if no partition at all could
be read for `timeout_s`, because brokers are gone or refuse, asking raises `DeadlineExceededError` with the reason.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterator
from operator import length_hint
from typing import NamedTuple

from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_clients.wording import shown_reason
from barnabas_raftlog.errors import BarnabasError

from .fetcher import Fetcher
from .partition_queue import PartitionQueue
from .record import ConsumerRecord

__all__ = ["Reader", "Taken"]

logger = logging.getLogger("barnabas_clients.consumer")

TELL_AFTER_S = 30.0
SLICE_RECORDS = 500
"""The number of records that are decoded ahead of a `for`. Those not handed out in the end were decoded in vain."""


class Taken(NamedTuple):
    """Records of one partition, at least one, and the offset behind them."""

    queue: PartitionQueue
    records: list[ConsumerRecord]
    next_offset: int


class Reader:
    """Stands between fetcher and application. Lives on one event loop.

    `records` iterates over the rest of the slice that is being handed out one at a time. `_held` are the partitions of
    which the application holds records.
    """

    def __init__(self, timeout_s: float, presence_s: float = 60.0) -> None:
        """Take the settings.

        A call that waits for records reports every `presence_s` that the application is still there. It raises when
        nothing could be read for `timeout_s`; if that is infinite, the log says once that there is trouble.
        """
        self.records: Iterator[ConsumerRecord] = iter(())
        self.is_asking = False
        self.asked_at_s = 0.0
        self.polls = 0
        self._records_handed = 0
        self._timeout_s = timeout_s
        self._presence_s = presence_s
        self._slice: Taken | None = None
        self._held: set[PartitionQueue] = set()
        self._holds = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._returned: asyncio.Future[None] | None = None
        self._is_closed = False
        self._trouble_since_s = math.inf
        self._told_at_s = -math.inf
        self._is_trouble_told = False

    def attach(
        self,
        fetcher: Fetcher,
        begin: Callable[[], None],
        check: Callable[[], None],
        on_asked: Callable[[], None],
        trouble: Callable[[], str],
    ) -> None:
        """Take the other parts.

        `begin` raises if asking makes no sense at all, and is called once for each call of the application. `check`
        raises an error that the application must be told before it is handed anything. `on_asked` is called at each
        turn. `trouble` says why there is nothing to read from; it is empty if there is no trouble.
        """
        self._begin = begin
        self._fetcher = fetcher
        self._check_others = check
        self._on_asked = on_asked
        self._trouble = trouble

    # Asking.

    async def next_record(self, deadline: float | None = None) -> ConsumerRecord | None:
        """Return the next record after `records` has come to its end; None if there was none until `deadline`."""
        taken = await self.ask(SLICE_RECORDS, deadline)
        if taken is None:
            return None
        self._slice = taken
        taken.queue.is_lent = True
        self.records = iter(taken.records)
        return next(self.records)

    async def ask(self, records_max: int, deadline: float | None) -> Taken | None:
        """Finish with the records handed out, and return more; None if there were none until `deadline`.

        Raises:
            BarnabasError: the next record of a partition cannot be read.
            DeadlineExceededError: nothing could be read of any partition for `timeout_s`.

        Cancellation: nothing is taken.
        """
        if self.is_asking:
            raise RuntimeError("this consumer is being read by another task already")
        self._begin()
        self.polls += 1
        loop = asyncio.get_running_loop()
        self.finish()
        self.is_asking = True
        self.asked_at_s = loop.time()
        self._tell_returned()
        try:
            while True:
                self._check()
                self._on_asked()
                try:
                    taken = None if self._holds else self._fetcher.take(records_max)
                except BarnabasError:
                    # A caller who just asks again must not keep the loop from fetching other partitions.
                    await asyncio.sleep(0)
                    raise
                if taken is not None:
                    return Taken(*taken)
                now_s = loop.time()
                if deadline is not None and now_s >= deadline:
                    return None
                await self.wait_news(self._wake_s(now_s, deadline))
        finally:
            self.is_asking = False

    def take_more(self, records_max: int) -> Taken | None:
        """Return further records that are there now, for the same answer. Raises nothing: the next `ask` does."""
        taken = None if self._holds else self._fetcher.take(records_max, is_first=False)
        return None if taken is None else Taken(*taken)

    def hand_out(self, taken: Taken) -> None:
        """Note that all of `taken` is in the application's hands now."""
        taken.queue.hand_out(taken.next_offset, taken.records[-1].leader_epoch)
        self._records_handed += len(taken.records)
        self._held.add(taken.queue)

    def wake(self) -> None:
        """Let all waiting calls look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """End all waits. Asking raises `ClientClosedError` from now on, even if decoded records are left."""
        self._is_closed = True
        self.withdraw()
        self.wake()
        self._tell_returned()

    def _check(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")
        self._check_others()

    def _wake_s(self, now_s: float, deadline: float | None) -> float:
        """Return when to look again if nothing happens."""
        wake_s = now_s + self._presence_s if deadline is None else min(deadline, now_s + self._presence_s)
        failing = self._fetcher.failing_since()
        if failing is not None:
            since_s, reason = failing
        elif reason := self._trouble():
            since_s = self._trouble_since_s = min(self._trouble_since_s, now_s)
        else:
            self._trouble_since_s = math.inf
            self._is_trouble_told = False
            return wake_s
        if self._timeout_s == math.inf:
            if now_s < since_s + TELL_AFTER_S:
                return min(since_s + TELL_AFTER_S, wake_s)
            if not self._is_trouble_told:
                self._is_trouble_told = True
                logger.warning("nothing could be read for %g s (%s); trying again", TELL_AFTER_S, shown_reason(reason))
            return wake_s
        # After it was told once, it is told again only after the same time.
        until_s = max(since_s, self._told_at_s) + self._timeout_s
        if now_s >= until_s:
            self._told_at_s = now_s
            raise DeadlineExceededError(f"nothing could be read for {self._timeout_s:g} s: {reason}")
        return min(until_s, wake_s)

    async def wait_news(self, wake_s: float) -> None:
        """Return when something has changed, or at `wake_s`."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.add(waiter)
        timer = loop.call_at(wake_s, self.wake)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            timer.cancel()

    # Records in the application's hands.

    def settle(self) -> None:
        """Bring the positions in line with how far the iteration has come."""
        if self._slice is None:
            return
        queue, records, next_offset = self._slice
        left = length_hint(self.records)
        in_hand = records[-left - 1]
        if left < len(records):
            queue.hand_out(next_offset if not left else in_hand.offset + 1, in_hand.leader_epoch)
            queue.finished = max(queue.finished, in_hand.offset)
            self._held.add(queue)

    def finish(self) -> None:
        """Note that the application has come back, and has finished with all that it was handed."""
        self.withdraw()
        for queue in self._held:
            queue.finished = queue.position
        self._held.clear()

    def withdraw(self) -> None:
        """Give decoded records that were not handed out back to their partition."""
        self.settle()
        if self._slice is not None:
            self._records_handed = self.records_handed
            queue, _, _ = self._slice
            queue.is_lent = False
            if rest := list(self.records):
                queue.give_back(rest)
                self._fetcher.make_ready(queue)
            self._slice = None
            self.records = iter(())

    def forget(self, queue: PartitionQueue) -> None:
        """Note that the application's position in a partition has changed or is gone: nothing is left to finish."""
        self.withdraw()
        self._held.discard(queue)

    @property
    def records_handed(self) -> int:
        """The number of records that the application was handed."""
        of_slice = 0 if self._slice is None else len(self._slice.records) - length_hint(self.records)
        return self._records_handed + of_slice

    @property
    def is_holding(self) -> bool:
        """True while the application holds records that it has not finished with."""
        self.settle()
        return bool(self._held) and not self.is_asking

    def handed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets behind all records that the application was handed, the one in its hands included."""
        self.settle()
        queues = self._fetcher.queues.values()
        return {queue.partition: queue.to_commit(queue.position) for queue in queues if queue.position >= 0}

    def finished_offsets(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets up to which the application has finished, if a commit would change them."""
        self.settle()
        return {
            queue.partition: queue.to_commit(queue.finished)
            for queue in self._fetcher.queues.values()
            if queue.finished >= 0
            and queue.finished != queue.committed
            and (partitions is None or queue.partition in partitions)
        }

    # Taking partitions away.

    def hold(self) -> None:
        """Hand nothing out until `release`. Calls may be nested."""
        self._holds += 1
        self.withdraw()

    def release(self) -> None:
        assert self._holds > 0
        self._holds -= 1
        self.wake()

    async def wait_returned(self, timeout_s: float) -> None:
        """Return when the application holds nothing, or when it has not asked for `timeout_s`."""
        loop = asyncio.get_running_loop()
        while self.is_holding and not self._is_closed:
            left_s = max(self.asked_at_s + timeout_s - loop.time(), 0.0)
            if not left_s:
                return
            self._returned = loop.create_future()
            timer = loop.call_later(left_s, self._tell_returned)
            try:
                await self._returned
            finally:
                timer.cancel()
                self._returned = None

    def _tell_returned(self) -> None:
        if self._returned is not None and not self._returned.done():
            self._returned.set_result(None)
