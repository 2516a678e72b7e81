"""A broker gives memory back if there is enough, and nothing else to do."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas_broker.process.heap_upkeep import INTERVAL_S, QUIET, VERY_MUCH_BYTES, WORTHWHILE_BYTES, HeapUpkeep

START_BYTES = 40 << 20
MUCH = START_BYTES + WORTHWHILE_BYTES
BUSY_S = QUIET * INTERVAL_S
TIMEOUT_S = 30.0


class Process:
    """A process as an upkeep sees it. `release` is a thread's, all else the loop's."""

    def __init__(self) -> None:
        self.size: int | None = START_BYTES
        self.used_s = 0.0
        self.released = 0
        self.can_release = True
        self.looks = asyncio.Semaphore(0)
        self.upkeep = HeapUpkeep(self.size_bytes, lambda: self.used_s, self.release)

    def size_bytes(self) -> int | None:
        self.looks.release()
        return self.size

    def release(self) -> bool:
        self.released += 1
        self.size = START_BYTES
        return self.can_release

    async def look(self) -> None:
        self.upkeep.look()
        await self.looks.acquire()

    async def look_and_release(self) -> None:
        before = self.released
        await self.look()
        await self.looks.acquire()
        assert self.released == before + 1


async def thread_ends() -> None:
    """Wait for the thread and for what the loop then has to do."""
    await asyncio.get_running_loop().shutdown_default_executor()
    await asyncio.sleep(0)


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    process = Process()
    async with asyncio.timeout(TIMEOUT_S):
        process.upkeep.start()
        await process.look_and_release()
        process.released = 0
        yield process
    process.upkeep.close()


async def test_what_a_start_has_left_behind_goes_back_at_the_first_quiet_look() -> None:
    process = Process()
    async with asyncio.timeout(TIMEOUT_S):
        process.upkeep.start()
        process.used_s += BUSY_S
        await process.look()
        assert process.released == 0
        await process.look_and_release()
        await process.look()
        await thread_ends()
        assert process.released == 1
    process.upkeep.close()


async def test_it_gives_back_what_a_load_has_left_behind_each_time(process: Process) -> None:
    for _ in range(3):
        process.size = MUCH
        await process.look_and_release()
        assert process.size == START_BYTES


async def test_it_does_not_wait_where_it_is_very_much(process: Process) -> None:
    for _ in range(3):
        process.used_s += BUSY_S
        process.size = START_BYTES + VERY_MUCH_BYTES
        await process.look_and_release()


async def test_it_waits_until_the_load_is_over(process: Process) -> None:
    process.size = START_BYTES + VERY_MUCH_BYTES - 1
    for _ in range(3):
        process.used_s += BUSY_S
        await process.look()
    assert process.released == 0
    process.used_s += 0.9 * BUSY_S
    await process.look_and_release()


async def test_a_little_is_not_worth_it(process: Process) -> None:
    process.size = MUCH - 1
    await process.look()
    await thread_ends()
    assert process.released == 0


async def test_what_went_by_itself_counts(process: Process) -> None:
    process.size = START_BYTES // 2
    await process.look()
    process.size = MUCH - START_BYTES // 2
    await process.look_and_release()


@pytest.mark.parametrize("size", [None, MUCH])
async def test_where_it_cannot_be_done_it_looks_no_more(process: Process, size: int | None) -> None:
    process.size = size
    process.can_release = False
    await process.look()
    await thread_ends()
    assert process.released == (size is not None)
    assert not process.upkeep.is_looking


async def test_it_can_be_closed_while_a_thread_is_at_work(process: Process) -> None:
    process.size = MUCH
    await process.look()
    process.upkeep.close()
    await thread_ends()
    assert process.released == 1
    assert not process.upkeep.is_looking
