"""Ids for producers, out of blocks that are asked for one at a time."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from barnabas_broker.coordinators.producer_ids import TOLD_AT_ONCE, ProducerIds
from barnabas_metadata_quorum.controller.commands import ProducerIdBlock, RefusalReason, Refused

BLOCK = 1_000


class Controller:
    """Gives a block for each question, once the test lets it answer; `asked` counts the questions."""

    def __init__(self) -> None:
        self.asked = 0
        self.refusal: Refused | None = None
        self.may_answer = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.ids = ProducerIds(self._ask, self._spawn)

    async def _ask(self, timeout_s: float) -> ProducerIdBlock:
        assert timeout_s == 5.0
        self.asked += 1
        await self.may_answer.wait()
        if self.refusal is not None:
            raise self.refusal
        return ProducerIdBlock((self.asked - 1) * BLOCK, BLOCK)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coroutine))


async def asking(ids: ProducerIds, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.get_running_loop().create_task(ids.take()) for _ in range(count)]
    for _ in range(3):  # Until they wait, and who asks for them waits, too.
        await asyncio.sleep(0)
    return tasks


async def test_however_many_wait_one_block_is_asked_for_at_a_time() -> None:
    controller = Controller()
    assert controller.ids.take_now() is None
    waiting = await asking(controller.ids, BLOCK + 200)
    assert controller.asked == 1
    controller.may_answer.set()
    assert await asyncio.gather(*waiting) == list(range(BLOCK + 200))
    assert (controller.asked, len(controller.tasks)) == (2, 1)
    assert controller.ids.take_now() == BLOCK + 200
    assert [await controller.ids.take() for _ in range(BLOCK - 201)][-1] == 2 * BLOCK - 1
    assert controller.ids.take_now() is None
    assert await controller.ids.take() == 2 * BLOCK


async def test_whoever_comes_later_gets_no_id_before_those_that_wait() -> None:
    controller = Controller()
    waiting = await asking(controller.ids, 2 * TOLD_AT_ONCE)
    controller.may_answer.set()
    while not waiting[0].done():
        assert controller.ids.take_now() is None
        await asyncio.sleep(0)
    assert controller.ids.take_now() is None
    assert await asyncio.gather(*waiting) == list(range(2 * TOLD_AT_ONCE))


async def test_a_refusal_is_for_all_that_wait_and_the_next_one_asks_again() -> None:
    controller = Controller()
    controller.refusal = Refused(RefusalReason.TIMED_OUT, "nobody answers")
    waiting = await asking(controller.ids, 3 * TOLD_AT_ONCE)
    controller.may_answer.set()
    refusals = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(one) for one in refusals} == {"nobody answers"}
    assert len({id(one) for one in refusals}) == 3 * TOLD_AT_ONCE, "what many raise grows with each of them"
    assert controller.asked == 1
    controller.refusal = None
    assert await controller.ids.take() == BLOCK


async def test_one_that_stops_waiting_takes_no_id_with_it() -> None:
    controller = Controller()
    first, second, third = await asking(controller.ids, 3)
    first.cancel()
    await asyncio.sleep(0)
    controller.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second, await third) == (0, 1)
