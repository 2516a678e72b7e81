"""Queues of waiting requests: produces until an index commits, fetches until a partition moves. Pure.

A broker with a thousand idle consumers holds a thousand parked requests; they must cost nothing until something
happens, and then only the ones concerned may cost anything. So there is no task and no timer per request (for their
deadlines see `timing.deadlines`): commit waiters are a queue in index order (an index that commits takes a prefix of
it), fetch waiters are heaps, one for each partition, of the bytes that they lack.

A waiter is any object; identity decides, not equality. Limits: every waiter is an unanswered request, and those are
bounded per connection and in bytes over the node where requests are read.

Not here: what a woken request does. A commit waiter may be answered; a fetch that wakes reads again, and may find
that it has still not enough, and parks again.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

__all__ = ["CommitWaiters", "FetchWaiters", "ParkedFetch"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

SWEPT_MIN = 4  # waits on one partition
NEVER = 1 << 62  # bytes


class CommitWaiters(Generic[T]):
    """The waiters of one partition, by the index that each waits for.

    Indexes mostly arrive in order, because a leader assigns them so; only a duplicate waits for an older one.
    """

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: list[tuple[int, T]] = []  # an empty deque takes 760 bytes, in thousands of partitions

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, index: int, waiter: T) -> None:
        """Let `waiter` wait until `index` is committed."""
        queue = self._queue
        if not queue or queue[-1][0] <= index:
            queue.append((index, waiter))
            return
        position = len(queue)
        while position and queue[position - 1][0] > index:
            position -= 1
        queue.insert(position, (index, waiter))

    def take_committed(self, commit_index: int) -> list[T]:
        """Remove and return those that waited for an index up to `commit_index` (inclusive), in index order."""
        queue = self._queue
        count = 0
        while count < len(queue) and queue[count][0] <= commit_index:
            count += 1
        taken = [waiter for _, waiter in queue[:count]]
        del queue[:count]
        return taken

    def take_from(self, index: int) -> list[T]:
        """Remove and return those that wait for `index` or a later one: those entries are gone."""
        queue = self._queue
        taken = []
        while queue and queue[-1][0] >= index:
            taken.append(queue.pop()[1])
        taken.reverse()
        return taken

    def take_all(self) -> list[T]:
        """Remove and return everybody, in index order."""
        taken = [waiter for _, waiter in self._queue]
        self._queue.clear()
        return taken

    def sweep(self, has_given_up: Callable[[T], bool]) -> None:
        """Forget all that have given up. Takes time in proportion to the queue, so it is for many of them at once."""
        self._queue = [pair for pair in self._queue if not has_given_up(pair[1])]


class ParkedFetch(Protocol):
    """A fetch that waits for something to read."""

    def on_woken(self) -> None:
        """One of its partitions has moved; it is not parked any more."""

    def on_error(self, error: Exception) -> None:
        """It was woken and has failed: it says so to its client."""


class _Wait(Generic[T]):
    """One parking of a waiter; None when that is over. It is looked at when `left_bytes` have been told of."""

    __slots__ = ("left_bytes", "step_bytes", "waiter")

    def __init__(self, waiter: T | None) -> None:
        self.waiter = waiter
        self.left_bytes = 0
        self.step_bytes = 0


class _Parked(Generic[T]):
    """The waits on one key. Those that are over are swept out when they may outnumber the rest.

    `heap` holds (`gained_bytes` at which it is told of something, sequence, wait, weight). Empty lists are None: there
    may be thousands of these.
    """

    __slots__ = ("due", "eager", "gained_bytes", "heap", "swept_at")

    def __init__(self) -> None:
        self.gained_bytes = 0
        self.eager: list[_Wait[T]] = []  # for whom anything is enough
        self.heap: list[tuple[int, int, _Wait[T], int]] | None = None
        self.due: list[_Wait[T]] | None = None
        self.swept_at = SWEPT_MIN

    def sweep(self) -> None:
        self.eager = [wait for wait in self.eager if wait.waiter is not None]
        heap = [entry for entry in self.heap or () if entry[2].waiter is not None]
        heapq.heapify(heap)
        self.heap = heap or None
        self.swept_at = max(SWEPT_MIN, 2 * (len(self.eager) + len(heap)))

    def move_to_due(self, waits: list[_Wait[T]]) -> None:
        if self.due is not None:
            self.due += waits
        elif waits:
            self.due = waits

    @property
    def has_reached_somebody(self) -> bool:
        return self.heap is not None and self.heap[0][0] <= self.gained_bytes


class FetchWaiters(Generic[K, T]):
    """Parked fetches by the partitions that they read, and by how much is missing to what they wait for.

    *One partition*: a waiter that lacks so many bytes is looked at when it has gained as many, and not before.

    *Several*, k of them: a waiter that was looked at whenever one had gained a k-th of the missing bytes might be
    looked at k times for each halving of these. So each partition tells of every 2k-th that it has gained, which costs
    a step in a heap. At most half of the missing bytes are not told of; when the rest has been told of, the waiter is
    looked at. So the missing bytes halve from one look to the next, and no `min_bytes` can cause more than about 31
    looks.

    To forget a waiter takes one step, however many partitions it is parked on: they find out later.
    """

    __slots__ = ("_by_key", "_sequence", "_waits")

    def __init__(self) -> None:
        self._by_key: dict[K, _Parked[T]] = {}
        self._waits: dict[T, _Wait[T]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, waiter: T) -> bool:
        return waiter in self._waits

    def park(
        self,
        waiter: T,
        keys: Iterable[K],
        missing_bytes: int = 1,
        *,
        eager: Iterable[K] = (),
        full: Iterable[K] = (),
    ) -> None:
        """Let `waiter` wait until `keys` have gained `missing_bytes`, one that is given twice counting twice.

        It does not wait longer than until anything at all happens to one of `eager`, or a change to one of `full`:
        their gains are of no use to it.
        """
        assert waiter not in self._waits
        self._waits[waiter] = wait = _Wait(waiter)
        if missing_bytes <= 1:
            self._await_anything(wait, keys)
        else:
            weights: dict[K, int] = {}
            for key in keys:
                weights[key] = weights.get(key, 0) + 1
            count = sum(weights.values())
            wait.step_bytes = missing_bytes // (2 * count) + 1 if count > 1 else missing_bytes
            wait.left_bytes = missing_bytes - count * (wait.step_bytes - 1)
            for key, weight in weights.items():
                self._count(key, wait, wait.step_bytes, weight)
        self._await_anything(wait, eager)
        for key in dict.fromkeys(full):
            self._count(key, wait, NEVER, 1)

    def is_awaited(self, key: K) -> bool:
        """Tell whether anybody waits for `key`, or is due for it."""
        return key in self._by_key

    def counts(self, key: K) -> bool:
        """Tell whether anybody waits for a number of bytes in `key`."""
        parked = self._by_key.get(key)
        return parked is not None and parked.heap is not None

    def gained(self, key: K, count: int) -> bool:
        """Note that `key` has gained so many bytes, perhaps none; tell whether somebody is to be taken for it."""
        parked = self._by_key.get(key)
        if parked is None:
            return False
        parked.gained_bytes += count
        if parked.eager:
            parked.move_to_due(parked.eager)
            parked.eager = []
            return True
        return self.is_due(key)

    def changed(self, key: K) -> bool:
        """Note that everybody who waits for `key` is to be taken; tell whether there is somebody."""
        parked = self._by_key.get(key)
        if parked is None:
            return False
        parked.move_to_due(parked.eager)
        parked.move_to_due([entry[2] for entry in parked.heap or ()])
        parked.eager = []
        parked.heap = None
        return True

    def is_due(self, key: K) -> bool:
        """Tell whether `take` has something to do for `key`."""
        parked = self._by_key.get(key)
        if parked is None:
            return False
        return parked.due is not None or (parked.heap is not None and parked.has_reached_somebody)

    def take(self, key: K, count_max: int) -> tuple[list[T], int]:
        """Remove and return those who are due for `key`, at most so many; also, how many were looked up for that.

        A waiter that is parked again is not due for gains before that.
        """
        parked = self._by_key.get(key)
        if parked is None:
            return [], 0
        waits, parked.due = parked.due or [], None
        if len(waits) > count_max:
            waits, parked.due = waits[:count_max], waits[count_max:]
        count = len(waits)
        while parked.heap is not None and count < count_max and parked.has_reached_somebody:
            count += 1
            if (wait := self._tell(key, parked)) is not None:
                waits.append(wait)
        if parked.due is None and parked.heap is None and not parked.eager:
            del self._by_key[key]
        return [waiter for wait in waits if (waiter := self._end(wait)) is not None], count

    def _tell(self, key: K, parked: _Parked[T]) -> _Wait[T] | None:
        """Tell the first in the heap what was gained; return it if that is enough."""
        heap = parked.heap
        assert heap is not None
        at_bytes, _, wait, weight = heapq.heappop(heap)
        parked.heap = heap or None
        if wait.waiter is None:
            return None
        wait.left_bytes -= (parked.gained_bytes - at_bytes + wait.step_bytes) * weight
        if wait.left_bytes <= 0:
            return wait
        self._count(key, wait, wait.step_bytes, weight)
        return None

    def take_all(self) -> list[T]:
        """Remove and return everybody."""
        waiters = list(self._waits)
        self._waits.clear()
        self._by_key.clear()
        return waiters

    def discard(self, waiter: T) -> bool:
        """Forget `waiter`; tell whether it was waiting."""
        wait = self._waits.get(waiter)
        return wait is not None and self._end(wait) is not None

    def _end(self, wait: _Wait[T]) -> T | None:
        """End a wait; return the waiter, if it had not ended yet."""
        waiter, wait.waiter = wait.waiter, None
        if waiter is not None:
            del self._waits[waiter]
        return waiter

    def _await_anything(self, wait: _Wait[T], keys: Iterable[K]) -> None:
        for key in keys:
            self._parked(key).eager.append(wait)

    def _parked(self, key: K) -> _Parked[T]:
        parked = self._by_key.get(key)
        if parked is None:
            parked = self._by_key[key] = _Parked()
        elif len(parked.eager) + len(parked.heap or ()) >= parked.swept_at:
            parked.sweep()
        return parked

    def _count(self, key: K, wait: _Wait[T], step_bytes: int, weight: int) -> None:
        parked = self._parked(key)
        self._sequence += 1
        if parked.heap is None:
            parked.heap = []
        heapq.heappush(parked.heap, (parked.gained_bytes + step_bytes, self._sequence, wait, weight))
