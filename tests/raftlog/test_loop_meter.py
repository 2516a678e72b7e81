"""The loop's callbacks as they are measured: by a clock that the test moves."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog import loop_meter
from barnabas_raftlog.loop_meter import EXACT_NS, FRESH_NS, LONG_NS, USED_NS, LoopMeter

MS = 1_000_000
S = 1_000 * MS


class Loop:
    """A loop whose callbacks take the times that the test gives, and its meter."""

    def __init__(self) -> None:
        self.wall_ns = 100 * S
        self.processor_ns = 50 * S
        self.asked = 0
        self.told: list[tuple[str, int, int, int]] = []
        self.used = 0
        self.meter = LoopMeter(lambda: self.wall_ns, self._processor, lambda *said: self.told.append(said), self._use)

    def _processor(self) -> int:
        self.asked += 1
        return self.processor_ns

    def _use(self) -> None:
        self.used += 1

    def take(self, wall_ns: int, processor_ns: int, what: str = "") -> str:
        self.wall_ns += wall_ns
        self.processor_ns += processor_ns
        self.meter.what = what
        return "done"

    def run(self, name: str, wall_ns: int, processor_ns: int, what: str = "") -> None:
        assert self.meter.run(name, self.take, wall_ns, processor_ns, what) == "done"

    @property
    def status(self) -> dict[str, Any]:
        return self.meter.status()


def test_the_longest_is_told_by_name_and_apart_for_wall_and_processor() -> None:
    loop = Loop()
    loop.run("short", 50_000, 50_000)
    loop.run("waits for a disk", 40 * MS, 2 * MS, "of another")
    loop.run("works", 30 * MS, 25 * MS, "Metadata")
    assert loop.status["callbacks"] == 3
    assert (loop.status["wall"]["longest_ms"], loop.status["wall"]["in"]) == (40.0, "waits for a disk: of another")
    assert (loop.status["processor"]["longest_ms"], loop.status["processor"]["in"]) == (25.0, "works: Metadata")


def test_before_anything_ran_nothing_is_told() -> None:
    nothing = {"longest_ms": 0.0, "in": "", "p99_ms": 0.0}
    assert Loop().status == {"callbacks": 0, "processor": nothing, "wall": nothing, "slots": []}


def test_of_a_hundred_the_one_that_is_longest_lies_beyond_the_99th_percentile() -> None:
    loop = Loop()
    for _ in range(198):
        loop.run("short", 100_000, 100_000)
    loop.run("long", 20 * MS, 3 * MS)
    assert 0.1 <= loop.status["wall"]["p99_ms"] <= 0.125
    loop.run("long", 20 * MS, 3 * MS)
    assert loop.status["wall"]["p99_ms"] == 20.0
    assert 3.0 <= loop.status["processor"]["p99_ms"] <= 3.75


def test_of_the_last_minute() -> None:
    loop = Loop()
    loop.run("long ago", 500 * MS, 0)
    for _ in range(6):
        loop.wall_ns += 9 * S
        loop.run("lately", MS, MS)
    assert loop.status["wall"]["in"] == "long ago"
    loop.wall_ns += 10 * S
    assert (loop.status["callbacks"], loop.status["wall"]["in"]) == (5, "lately"), "also when nothing has run since"
    loop.wall_ns += 60 * S
    assert loop.status["callbacks"] == 0
    for _ in range(100):
        loop.wall_ns += 10 * S
        loop.run("lately", MS, MS)
    assert len(loop.meter._slots) == loop_meter.SLOTS


def test_of_each_ten_seconds_the_longest_is_told_apart() -> None:
    loop = Loop()
    loop.run("long ago", 500 * MS, 40 * MS)
    loop.wall_ns += 15 * S
    loop.run("lately", 30 * MS, 2 * MS)
    loop.run("works", 20 * MS, 20 * MS)
    before, after = loop.status["slots"]
    assert (before["slot"], before["processor"], before["wall"]) == (
        10,
        {"longest_ms": 40.0, "in": "long ago", "ended_ms": 100_500.0, "lasted_ms": 500.0},
        {"longest_ms": 500.0, "in": "long ago"},
    )
    assert (after["slot"], after["processor"]["in"], after["wall"]["in"]) == (11, "works", "lately")


def test_short_ones_that_follow_each_other_cost_one_question_to_the_system() -> None:
    loop = Loop()
    for _ in range(10):
        loop.run("short", FRESH_NS // 10, 0)
    assert loop.asked == 1
    loop.run("long", EXACT_NS, 0)
    assert loop.asked == 3


def test_of_a_long_one_the_processor_is_known_but_for_what_others_waited() -> None:
    loop = Loop()
    for _ in range(3):
        loop.run("short", MS, MS)
    loop.run("long", 40 * MS, 20 * MS)
    assert loop.status["processor"]["longest_ms"] == 20.0
    loop.run("waits", MS, MS // 4)
    loop.run("longer", 40 * MS, 22 * MS)
    assert loop.status["processor"]["longest_ms"] == 21.25


def test_who_waited_is_no_reason_to_say_less_than_nothing() -> None:
    loop = Loop()
    for _ in range(3):
        loop.run("waits", MS, 0)
    loop.run("waits longer", 2 * MS, MS)
    assert loop.status["processor"] == {"longest_ms": 1.0, "in": "waits", "p99_ms": 1.0}


@given(st.lists(st.tuples(st.integers(0, 2 * EXACT_NS), st.integers(0, 12 * S)), max_size=30))
def test_each_one_counts_once_whichever_way_it_goes(calls: list[tuple[int, int]]) -> None:
    loop = Loop()
    ended_ns = list[int]()
    for took_ns, pause_ns in calls:
        loop.run("any", took_ns, took_ns)
        ended_ns.append(loop.wall_ns)
        loop.wall_ns += pause_ns
    oldest = loop.wall_ns // loop_meter.SLOT_NS - loop_meter.SLOTS
    lately = [
        took_ns for (took_ns, _), at_ns in zip(calls, ended_ns, strict=True) if at_ns // loop_meter.SLOT_NS > oldest
    ]
    assert loop.status["callbacks"] == len(lately)
    longest_ms = round(max(lately, default=0) / MS, 3)
    assert loop.status["wall"]["longest_ms"] == loop.status["processor"]["longest_ms"] == longest_ms


def test_one_inside_of_another_counts_for_the_outer_one() -> None:
    loop = Loop()

    def outer() -> None:
        loop.run("inner", 2 * MS, 2 * MS)
        loop.take(3 * MS, 3 * MS)

    loop.meter.run("outer", outer)
    assert (loop.status["callbacks"], loop.status["wall"]["in"]) == (1, "outer")
    assert loop.status["wall"]["longest_ms"] == 5.0


def test_one_that_raises_is_measured_and_the_next_one_too() -> None:
    loop = Loop()

    def fail() -> None:
        loop.take(7 * MS, 7 * MS)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.meter.run("broken", fail)
    loop.run("next", 9 * MS, 9 * MS)
    assert (loop.status["callbacks"], loop.status["wall"]["in"]) == (2, "next")


def test_whoever_used_the_processor_for_long_is_told_of_once_a_second() -> None:
    loop = Loop()
    loop.run("waits", 2 * LONG_NS, LONG_NS)
    assert loop.told == [], "not who waited"
    loop.run("works", 3 * LONG_NS, 2 * LONG_NS, "Produce")
    loop.run("works on", 2 * LONG_NS, 2 * LONG_NS)
    loop.run("works on", 2 * LONG_NS, 2 * LONG_NS)
    assert loop.told == [("works: Produce", 2 * LONG_NS, 3 * LONG_NS, 0)]
    loop.wall_ns += S
    loop.run("again", 2 * LONG_NS, 2 * LONG_NS)
    assert loop.told[1:] == [("again", 2 * LONG_NS, 2 * LONG_NS, 2)]


@given(st.integers(0, 1 << 50))
def test_a_bucket_is_at_most_a_quarter_wide(took_ns: int) -> None:
    took_us = took_ns // 1_000
    bucket = loop_meter._bucket(took_ns)
    if bucket < loop_meter.BUCKETS - 1:
        assert took_us < loop_meter._end_us(bucket) <= max(took_us + 1, took_us * 5 / 4 + 1)
    else:
        assert took_us >= 1 << 34


def test_what_is_asked_exactly_begins_a_bucket() -> None:
    assert loop_meter._bucket(EXACT_NS) == loop_meter._bucket(EXACT_NS - 1) + 1


async def test_each_step_of_a_task_is_measured() -> None:
    loop = Loop()

    async def work() -> str:
        loop.take(2 * MS, 2 * MS)
        await asyncio.sleep(0)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return loop.take(4 * MS, 4 * MS)
        return "not cancelled"

    task = asyncio.create_task(loop.meter.measured(work(), "a request"))
    assert "work" in repr(task)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "done"
    assert (loop.status["callbacks"], loop.status["wall"]["longest_ms"]) == (3, 4.0)
    assert loop.status["wall"]["in"] == "task: a request"


@pytest.mark.parametrize("begun", [False, True])
async def test_a_task_that_is_measured_ends_as_any_other(begun: bool) -> None:
    entered = list[str]()

    async def work(fail: Callable[[], None]) -> None:
        entered.append("in")
        await asyncio.sleep(0)
        fail()

    def fail() -> None:
        raise ValueError("no")

    meter = LoopMeter()
    task = asyncio.create_task(meter.measured(work(fail)))
    if begun:
        with pytest.raises(ValueError, match="no"):
            await task
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert entered == (["in"] if begun else [])
    unused = meter.measured(work(fail))
    unused.close()


def test_somebody_hears_of_it_each_time_that_so_much_of_the_processor_was_used() -> None:
    loop = Loop()
    loop.run("first", 1, 0)
    loop.used = 0
    for _ in range(200):
        loop.run("short", USED_NS // 20, USED_NS // 20)  # The last of them ends after ten times as much.
    assert 8 <= loop.used <= 10, "shorter ones are noticed when the clock is asked anyway"
    for _ in range(5):
        loop.run("long", 3 * USED_NS, 2 * USED_NS)
    assert 13 <= loop.used <= 16
    before = loop.used
    for _ in range(100):
        loop.run("waits", 10 * USED_NS, 0)
    assert loop.used <= before + 1, "who waits uses nothing"
