"""Who waits for what: produces for an index to commit, fetches for a partition to move, both for a deadline. Pure.

A broker with a thousand idle consumers holds a thousand parked requests; they must cost nothing until something
happens, and then only the ones concerned may cost anything. So there is no task and no timer per request: commit
waiters are a queue in index order (an index that commits takes a prefix of it), fetch waiters are a map from
partition to the requests parked on it, and deadlines are one heap for the node, for which the shell sets one timer.

What waits is any object; identity decides, not equality. Limits: every waiter is an unanswered request, and those
are bounded per connection and in bytes over the node where requests are read.

Not here: what a woken request does. A commit waiter may be answered; a fetch that wakes reads again, and may find
that it has still not enough, and parks again.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar

__all__ = ["CommitWaiters", "Deadline", "Deadlines", "FetchWaiters", "ParkedFetch"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


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
        """Remove and return whoever waited for an index up to `commit_index` (inclusive), in index order."""
        queue, count = self._queue, 0
        while count < len(queue) and queue[count][0] <= commit_index:
            count += 1
        taken = [waiter for _, waiter in queue[:count]]
        del queue[:count]
        return taken

    def take_from(self, index: int) -> list[T]:
        """Remove and return whoever waits for `index` or a later one: those entries are gone."""
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
        """What it did when it was woken has failed: it says so to whoever asked."""


class FetchWaiters(Generic[K, T]):
    """Parked fetches by the partitions that they read.

    Invariant: a waiter is in the map of each of its keys or of none.
    """

    __slots__ = ("_by_key", "_keys")

    def __init__(self) -> None:
        # Dicts of None serve as sets that keep order, so that the longest waiting is woken first.
        self._by_key: dict[K, dict[T, None]] = {}
        self._keys: dict[T, tuple[K, ...]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, waiter: T) -> bool:
        return waiter in self._keys

    def park(self, waiter: T, keys: Iterable[K]) -> None:
        """Let `waiter` wait until one of `keys` moves."""
        assert waiter not in self._keys
        self._keys[waiter] = unique = tuple(dict.fromkeys(keys))
        for key in unique:
            self._by_key.setdefault(key, {})[waiter] = None

    def count(self, key: K) -> int:
        """Return how many would be woken by `key`."""
        return len(self._by_key.get(key, ()))

    def take(self, key: K, count_max: int) -> list[T]:
        """Remove and return those who wait for `key`, at most so many, the longest waiting first."""
        waiters = list(islice(self._by_key.get(key, ()), count_max))
        for waiter in waiters:
            self.discard(waiter)
        return waiters

    def take_all(self) -> list[T]:
        """Remove and return everybody."""
        waiters = list(self._keys)
        self._keys.clear()
        self._by_key.clear()
        return waiters

    def discard(self, waiter: T) -> bool:
        """Forget `waiter`; tell whether it was waiting."""
        keys = self._keys.pop(waiter, None)
        if keys is None:
            return False
        for key in keys:
            parked = self._by_key[key]
            del parked[waiter]
            if not parked:
                del self._by_key[key]
        return True


class Deadline(Generic[T]):
    """A place in `Deadlines`; `cancel` makes it empty."""

    __slots__ = ("at_ms", "item")

    def __init__(self, at_ms: int, item: T | None) -> None:
        self.at_ms, self.item = at_ms, item


class Deadlines(Generic[T]):
    """Points in time with something to do at each. Cancelled ones are swept out when they outnumber the rest."""

    __slots__ = ("_cancelled", "_heap", "_sequence")

    def __init__(self) -> None:
        # Tuples, because they compare without running Python; the sequence settles ties.
        self._heap: list[tuple[int, int, Deadline[T]]] = []
        self._sequence = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    @property
    def next_at_ms(self) -> int | None:
        """When `take_due` is next worth calling; may be early by a cancelled deadline. None: never."""
        return self._heap[0][0] if self._heap else None

    def add(self, at_ms: int, item: T) -> Deadline[T]:
        """Note that `item` is due at `at_ms`; equal times are due in the order of adding."""
        self._sequence += 1
        deadline = Deadline(at_ms, item)
        heapq.heappush(self._heap, (at_ms, self._sequence, deadline))
        return deadline

    def cancel(self, deadline: Deadline[T]) -> None:
        """Empty `deadline`. Cancelling twice, or after it was taken, has no effect."""
        if deadline.item is None:
            return
        deadline.item = None
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].item is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def take_due(self, now_ms: int, count_max: int = 1 << 62) -> list[T]:
        """Remove and return what is due at or before `now_ms`, in order of time, so many at most."""
        due: list[T] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(due) < count_max:
            deadline = heapq.heappop(heap)[2]
            if deadline.item is None:
                self._cancelled -= 1
            else:
                due.append(deadline.item)
                deadline.item = None
        return due
