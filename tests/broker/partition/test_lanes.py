"""Lanes keep the order of a partition's batches; the threads behind them are held by the test."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas_broker.partition.check_threads import CheckThreads
from barnabas_broker.partition.checks import TakesLongError
from barnabas_broker.partition.lanes import Lanes


class HeldWorker:
    """A thread that does its jobs when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.is_stopped = False

    def submit(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((job, done))

    def run(self) -> None:
        job, done = self.jobs.pop(0)
        done(job())

    def stop(self) -> None:
        self.is_stopped = True
        while self.jobs:
            self.run()


class Pool:
    """Check threads whose workers a test can reach."""

    def __init__(self, threads: int = 2) -> None:
        self.workers: list[HeldWorker] = []
        self.threads = CheckThreads(self._new, threads)

    def _new(self, name: str) -> HeldWorker:
        worker = HeldWorker(name)
        self.workers.append(worker)
        return worker

    def finish(self) -> None:
        """Do all jobs, the oldest first."""
        while busy := [worker for worker in self.workers if worker.jobs]:
            busy[0].run()


class Batch:
    """One in a lane that notes in `log` what becomes of it. `check`: it needs a thread."""

    def __init__(self, name: str, log: list[str], check: Callable[[bool], Any] | None = None) -> None:
        self.name = name
        self.log = log
        self.check = check
        self.is_given_up = False
        self.error: Exception | None = None

    def take_turn(self) -> Callable[[bool], Any] | None:
        if self.error is not None:
            raise self.error
        if self.check is None:
            self.log.append(self.name)
        return self.check

    def conclude(self, checked: Any, error: BaseException | None) -> None:
        if isinstance(error, AssertionError):
            raise error
        self.log.append(f"{self.name}: {repr(error) if error else checked}")

    def fail(self, error: Exception) -> None:
        self.log.append(f"{self.name} failed: {error}")


def right(_is_long: bool) -> str:
    return "right"


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_comes_behind_a_batch_in_a_thread_waits_for_it_and_other_partitions_do_not() -> None:
    pool, log = Pool(), list[str]()
    lanes: Lanes[str] = Lanes(pool.threads)
    lanes.add("p", Batch("large", log, right))
    lanes.add("p", Batch("small", log))
    lanes.add("p", Batch("large 2", log, right))
    lanes.add("p", Batch("small 2", log))
    lanes.add("q", Batch("other", log))
    await turns()
    assert log == ["other"]
    pool.finish()
    await turns()
    assert log == ["other", "large: right", "small"]
    pool.finish()
    await turns()
    assert log == ["other", "large: right", "small", "large 2: right", "small 2"]
    assert len(lanes) == 0, "nothing is kept for a partition that is idle"


async def test_what_needs_no_thread_has_its_turn_at_once_and_leaves_nothing() -> None:
    pool, log = Pool(), list[str]()
    lanes: Lanes[str] = Lanes(pool.threads)
    lanes.add("p", Batch("small", log))
    assert (log, len(lanes), pool.workers) == (["small"], 0, [])


async def test_many_small_ones_have_their_turns_in_several_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, log = Pool(), list[str]()
    lanes: Lanes[str] = Lanes(pool.threads)
    lanes.add("p", Batch("large", log, right))
    for number in range(4):
        lanes.add("p", Batch(f"small {number}", log))
    monkeypatch.setattr("barnabas_broker.partition.lanes.SLICE_S", 0.0)
    pool.finish()
    assert log == ["large: right"]
    for count in range(2, 6):
        await asyncio.sleep(0)
        assert len(log) == count, "one in each turn"
    assert len(lanes) == 0


async def test_one_that_raises_takes_no_other_with_it() -> None:
    pool, log = Pool(), list[str]()
    lanes: Lanes[str] = Lanes(pool.threads)
    broken = Batch("broken", log)
    broken.error = ValueError("no")
    lanes.add("p", Batch("large", log, right))
    lanes.add("p", broken)
    lanes.add("p", Batch("small", log))
    pool.finish()
    await turns()
    assert log == ["large: right", "broken failed: no", "small"]


async def test_an_error_in_a_thread_is_told_to_its_batch() -> None:
    pool, log = Pool(), list[str]()
    lanes: Lanes[str] = Lanes(pool.threads)

    def wrong(_is_long: bool) -> None:
        raise ValueError("no")

    lanes.add("p", Batch("large", log, wrong))
    lanes.add("p", Batch("small", log))
    pool.finish()
    await turns()
    assert log == ["large: ValueError('no')", "small"]


async def test_at_the_end_all_are_told_and_none_is_begun() -> None:
    pool, log = Pool(threads=1), list[str]()
    lanes: Lanes[str] = Lanes(pool.threads)
    lanes.add("p", Batch("under way", log, right))
    lanes.add("p", Batch("behind it", log))
    lanes.add("q", Batch("not begun", log, right))
    lanes.close()
    pool.threads.close()
    assert log == ["under way: None", "behind it: None", "not begun: None"]
    assert [worker.is_stopped for worker in pool.workers] == [True]
    await turns()
    assert len(log) == 3, "what a thread still found is told to nobody"


def test_a_long_check_keeps_no_short_one_waiting() -> None:
    pool, log = Pool(), list[str]()

    def check(name: str, is_long: bool) -> str:
        log.append(f"{name} {is_long}")
        if name.startswith("bomb") and not is_long:
            raise TakesLongError
        return name

    done: list[Any] = []
    for number in range(5):
        pool.threads.submit(partial(check, f"bomb {number}"), lambda value, _: done.append(value))
    for _ in range(5):  # each has had its short attempt, and the first its long one has begun
        next(worker for worker in pool.workers if worker.jobs and not _is_long(worker)).run()
    pool.threads.submit(partial(check, "large"), lambda value, _: done.append(value))
    held = [_is_long(worker) for worker in pool.workers]
    assert sorted(held) == [False, True], "one thread at most has a long one"
    pool.workers[held.index(False)].run()
    assert done == ["large"]
    pool.finish()
    assert done == ["large", *(f"bomb {number}" for number in range(5))]


def _is_long(worker: HeldWorker) -> bool:
    job: Any = worker.jobs[0][0]
    return bool(job.args[1])


def test_what_nobody_wants_any_more_is_not_run() -> None:
    pool, log = Pool(threads=1), list[Any]()
    wanted = [True]

    def note(name: str, _is_long: bool) -> str:
        log.append(name)
        return name

    pool.threads.submit(partial(note, "first"), lambda value, _: log.append(("done", value)))
    pool.threads.submit(partial(note, "second"), lambda value, _: log.append(("done", value)), lambda: not wanted[0])
    wanted[0] = False
    pool.finish()
    assert log == ["first", ("done", "first"), ("done", None)]


def test_threads_are_made_when_they_are_needed() -> None:
    pool = Pool()
    assert pool.workers == []
    for _ in range(5):
        pool.threads.submit(right, lambda *_: None)
    assert [worker.name for worker in pool.workers] == ["checks-1", "checks-2"]
    assert len(pool.threads) == 5
    pool.finish()
    assert len(pool.threads) == 0
