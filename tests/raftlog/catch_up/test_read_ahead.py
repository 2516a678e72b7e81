"""Chunks asked for ahead come in order, once, and no more than allowed."""

import asyncio
import random
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.catch_up.read_ahead import read_ahead
from barnabas_raftlog.catch_up.sending import Throttle

FILE = bytes(random.Random(1).randbytes(200))


class Source:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, asyncio.Future[memoryview]]] = []

    async def read(self, position: int, size_bytes: int) -> memoryview:
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.asked.append((position, size_bytes, answer))
        return await answer

    @property
    def waiting(self) -> list[tuple[int, int, "asyncio.Future[memoryview]"]]:
        return [one for one in self.asked if not one[2].done()]

    def answer(self, position: int, size_bytes: int) -> None:
        for asked_position, _, answer in self.waiting:
            if asked_position == position:
                answer.set_result(memoryview(FILE)[position : position + size_bytes])


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_whatever_is_answered_first_the_file_comes_whole_and_in_order(data: st.DataObject) -> None:
    start, chunk_bytes, ahead = (data.draw(st.integers(low, high)) for low, high in ((0, 200), (1, 60), (1, 6)))

    async def main() -> None:
        source = Source()
        got = bytearray()

        async def take() -> None:
            async for position, chunk in read_ahead(source.read, start, len(FILE), chunk_bytes, ahead):
                assert position == start + len(got)
                got.extend(chunk)

        taking = asyncio.create_task(take())
        await turns()
        while not taking.done():
            assert 0 < len(source.waiting) <= ahead
            position, size_bytes, _ = data.draw(st.sampled_from([one[:3] for one in source.waiting]))
            source.answer(position, data.draw(st.integers(1, size_bytes)))
            await turns()
        assert bytes(got) == FILE[start:]

    asyncio.run(main())


async def test_a_round_trip_carries_as_many_chunks_as_may_be_asked_for_ahead() -> None:
    source = Source()
    chunks = read_ahead(source.read, 0, len(FILE), 10, 4)
    async with aclosing(chunks):
        first = asyncio.ensure_future(anext(chunks))
        await turns()
        assert [position for position, _, _ in source.asked] == [0, 10, 20, 30]
        source.answer(0, 10)
        assert (await first)[0] == 0
    assert not [answer for _, _, answer in source.asked if not answer.done()], "what is not wanted is cancelled"


async def test_what_one_read_raises_is_raised_in_its_turn_and_ends_the_others() -> None:
    source = Source()
    got = list[int]()

    async def take() -> None:
        async for position, _ in read_ahead(source.read, 0, len(FILE), 10, 3):
            got.append(position)

    taking = asyncio.create_task(take())
    await turns()
    source.asked[1][2].set_exception(OSError("gone"))
    await turns()
    assert not taking.done()
    source.answer(0, 10)
    with pytest.raises(OSError, match="gone"):
        await taking
    assert got == [0]
    assert not source.waiting


@pytest.mark.parametrize(("rate_bytes", "ahead"), [(64 << 10, 2), (4 << 20, 2), (64 << 20, 16), (1 << 30, 16)])
def test_a_quarter_of_a_second_of_the_rate_may_be_under_way(rate_bytes: int, ahead: int) -> None:
    assert Throttle(rate_bytes, lambda: 0).reads_ahead == ahead
