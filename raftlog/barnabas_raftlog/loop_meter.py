"""Measures how long the callbacks of the event loop take, and which is the longest. Pure.

A node does everything on one loop, and a long callback keeps everybody waiting: clients, elections, the answers to
both. So the few places where the loop comes in (the Raft driver's drive, requests of clients and peers, answers, turns,
timers, tasks) go through `run`, which measures each in time of the wall, and in time that the loop's thread used of a
processor. The second says whose fault a long one is: this program's, or that it waited for a processor, or for a disk.

*Cost*: two readings of the wall's clock, and one of the processor's in `FRESH_NS`. That one is a system call in which
the kernel may run somebody else: asked before each callback, it took 7 % of all processor time. So a callback that took
less than `EXACT_NS` of the wall is taken to have used at most that. A longer one used the thread's time since it was
asked last, without the wall time of other callbacks since then: wrong by no more than `FRESH_NS`.

*Kept*: for each of the last six times `SLOT_NS` a histogram of whole numbers, four buckets to each doubling, so a
percentile is at most a quarter too high; and the longest of each, by name. Limits: 6 slots of about 300 numbers and two
names; one word to `on_long` in a second. `on_used` hears each time the thread has used `USED_NS` of its processor: for
work that is to be done in proportion to all other work.

Not here: callbacks that do not go through `run` (futures, sockets that are made or lost, results of storage threads); a
callback inside of another, which counts for the outer one; the time between two callbacks.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple, TypeVar

__all__ = ["EXACT_NS", "FRESH_NS", "LONG_NS", "USED_NS", "Longest", "LoopMeter"]

T = TypeVar("T")

EXACT_NS = 1_024_000  # where a bucket begins
FRESH_NS = 2_000_000
USED_NS = 10_000_000
LONG_NS = 100_000_000  # of processor time: somebody should hear of it
SLOT_NS = 10_000_000_000
SLOTS = 6
TOLD_APART_NS = 1_000_000_000
BUCKETS = 150  # the last begins at half a day


class Longest(NamedTuple):
    """The longest callback of some time, which it was, and when it ended and how long it lasted by the wall's clock."""

    took_ns: int = 0
    what: str = ""
    ended_ns: int = 0
    lasted_ns: int = 0

    def status(self) -> dict[str, Any]:
        return {"longest_ms": _ms(self.took_ns), "in": self.what}

    def status_in_time(self) -> dict[str, Any]:
        return self.status() | {"ended_ms": _ms(self.ended_ns), "lasted_ms": _ms(self.lasted_ns)}


class _Slot:
    """The measurements of one `SLOT_NS`. `processor` counts only callbacks of `EXACT_NS` of the wall or more.

    A callback that ends before `ends_ns` and took no longer than `short_ns` is one more of its length, and nothing
    else.
    """

    __slots__ = ("ends_ns", "longest_processor", "longest_wall", "number", "processor", "short_ns", "wall")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ends_ns = (number + 1) * SLOT_NS
        self.short_ns = 0
        self.wall = [0] * BUCKETS
        self.processor = [0] * BUCKETS
        self.longest_wall = Longest()
        self.longest_processor = Longest()

    def status(self) -> dict[str, Any]:
        processor = self.longest_processor.status_in_time()
        wall = self.longest_wall.status()
        return {"slot": self.number, "processor": processor, "wall": wall}


class LoopMeter:
    """The measurements of one loop.

    `what` may be set by the callback that runs, to say more precisely what it is. `on_long(what, processor_ns, wall_ns,
    unsaid)` is told of a callback that used more than `LONG_NS`, and of how many it was not told since the last time.
    `on_used()` is called in the midst of others, and had better only note that it was.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = lambda: 0,
        processor_ns: Callable[[], int] = lambda: 0,
        on_long: Callable[[str, int, int, int], None] | None = None,
        on_used: Callable[[], None] | None = None,
    ) -> None:
        """Both clocks never go back; the second is that of the loop's thread. Without them nothing takes any time."""
        self._wall_ns = wall_ns
        self._processor_ns = processor_ns
        self._on_long = on_long
        self._on_used = on_used
        self._slots = [_Slot(-SLOTS)]
        self._is_running = False
        # The processor's clock when it was asked, when it has to be asked again, and the time of callbacks since then.
        self._used_ns = 0
        self._stale_ns = 0
        self._since_ns = 0
        self._due_ns = USED_NS  # its reading at which `on_used` is called again
        self._told_ns = -TOLD_APART_NS
        self._unsaid = 0
        self.what = ""

    def run(self, name: str, call: Callable[..., T], *args: Any) -> T:
        """Call it, and measure it by this name."""
        if self._is_running:
            return call(*args)
        self._is_running = True
        self.what = ""
        wall_ns = self._wall_ns  # A call of an attribute that is no method costs the interpreter two look-ups more.
        began_ns = wall_ns()
        if began_ns >= self._stale_ns:
            self._ask_processor(began_ns)
        try:
            return call(*args)
        finally:
            self._is_running = False
            ended_ns = wall_ns()
            slot = self._slots[-1]
            took_ns = ended_ns - began_ns
            if took_ns <= slot.short_ns and ended_ns < slot.ends_ns:
                slot.wall[_SHORT_BUCKETS[took_ns // 1_000]] += 1
                self._since_ns += took_ns
            else:
                self._note(name, took_ns, ended_ns)

    def measured(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Coroutine[Any, Any, T]:
        """Return the same coroutine for a task, each step of which is measured."""
        name = name or getattr(coroutine, "__qualname__", "")
        return _Measured(self, f"task: {name}", coroutine)

    def status(self) -> dict[str, Any]:
        """Return the measurements of the last minute, in milliseconds, as plain values.

        `slots`: the longest of each of its parts, the latest last; a `slot` is `SLOT_NS` long, and counted since the
        beginning of the wall's clock. So callbacks after another look can be told from those before it; and `ended_ms`
        and `lasted_ms` say when the one was that used the processor longest, to compare with other events.
        """
        oldest = self._wall_ns() // SLOT_NS - SLOTS
        slots = [slot for slot in self._slots if slot.number > oldest]
        wall = [sum(counts) for counts in zip(*[slot.wall for slot in slots], strict=True)]
        exact = [sum(counts) for counts in zip(*[slot.processor for slot in slots], strict=True)]
        first_exact = _bucket(EXACT_NS)
        processor = wall[:first_exact] + exact[first_exact:] if wall else []
        # Those of which both are known, and that used less than they took.
        for index, count in enumerate(exact[:first_exact]):
            processor[index] += count
        return {
            "callbacks": sum(wall),
            "processor": _told(processor, [slot.longest_processor for slot in slots]),
            "wall": _told(wall, [slot.longest_wall for slot in slots]),
            "slots": [slot.status() for slot in slots],
        }

    def _ask_processor(self, now_ns: int) -> None:
        self._used_ns = self._processor_ns()
        self._stale_ns = now_ns + FRESH_NS
        self._since_ns = 0
        if self._used_ns >= self._due_ns:
            self._due_ns = self._used_ns + USED_NS
            if self._on_used is not None:
                self._on_used()

    def _note(self, name: str, took_ns: int, ended_ns: int) -> None:
        slot = self._slots[-1]
        if ended_ns >= slot.ends_ns:
            slot = self._next_slot(ended_ns // SLOT_NS)
        slot.wall[_bucket(took_ns)] += 1
        used_ns = took_ns
        if took_ns >= EXACT_NS:
            others_ns = self._used_ns + self._since_ns
            self._ask_processor(ended_ns)
            used_ns = max(0, min(took_ns, self._used_ns - others_ns))
            slot.processor[_bucket(used_ns)] += 1
        else:
            self._since_ns += took_ns
        if took_ns > slot.longest_wall.took_ns:
            slot.longest_wall = Longest(took_ns, self._named(name))
        if used_ns > slot.longest_processor.took_ns:
            slot.longest_processor = Longest(used_ns, self._named(name), ended_ns, took_ns)
            slot.short_ns = min(used_ns, EXACT_NS - 1)
        if used_ns > LONG_NS:
            self._tell(name, used_ns, took_ns, ended_ns)

    def _named(self, name: str) -> str:
        return f"{name}: {self.what}" if self.what else name

    def _next_slot(self, number: int) -> _Slot:
        slot = _Slot(number)
        self._slots = [*self._slots[1 - SLOTS :], slot]
        return slot

    def _tell(self, name: str, used_ns: int, took_ns: int, now_ns: int) -> None:
        if now_ns - self._told_ns < TOLD_APART_NS:
            self._unsaid += 1
            return
        self._told_ns = now_ns
        unsaid = self._unsaid
        self._unsaid = 0
        if self._on_long is not None:
            self._on_long(self._named(name), used_ns, took_ns, unsaid)


class _Measured(Coroutine[Any, Any, T]):
    """A coroutine whose steps are measured."""

    __slots__ = ("_coroutine", "_meter", "_name")

    def __init__(self, meter: LoopMeter, name: str, coroutine: Coroutine[Any, Any, T]) -> None:
        self._meter = meter
        self._name = name
        self._coroutine = coroutine

    @property
    def __name__(self) -> str:  # by which asyncio shows a task
        return getattr(self._coroutine, "__qualname__", self._name)

    def send(self, value: Any) -> Any:
        return self._meter.run(self._name, self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._meter.run(self._name, self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()


def _ms(time_ns: int) -> float:
    return round(time_ns / 1_000_000, 3)


def _bucket(took_ns: int) -> int:
    """Return the place of a length in the histogram: microseconds up to 8, then four to each doubling."""
    took_us = took_ns // 1_000
    if took_us < 8:
        return max(took_us, 0)
    bits = took_us.bit_length()
    return min(4 * bits - 8 + (took_us >> bits - 3 & 3), BUCKETS - 1)


_SHORT_BUCKETS = [_bucket(took_us * 1_000) for took_us in range(EXACT_NS // 1_000)]


def _end_us(bucket: int) -> int:
    """Return where a bucket ends: nothing in it is as long as that."""
    if bucket < 8:
        return bucket + 1
    bits, part = divmod(bucket + 8, 4)
    return (part + 5) << bits - 3


def _told(counts: list[int], longest: list[Longest]) -> dict[str, Any]:
    one = max(longest, default=Longest())
    left = -(-sum(counts) // 100)  # of a hundred, the one that is longest lies beyond
    end_us = 0
    bucket = len(counts)
    while left > 0:
        bucket -= 1
        left -= counts[bucket]
        end_us = _end_us(bucket)
    p99_ms = min(end_us / 1_000, one.took_ns / 1_000_000)
    return one.status() | {"p99_ms": round(p99_ms, 3)}
