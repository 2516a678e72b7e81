"""Runs tests on both event loops, and limits every test that awaits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine to its end on one of the loops; no task may be left behind."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def limited(main: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(20):
            await main
        # The fake broker's connections end with their sockets; everything else must be gone by itself.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=10)
        assert len(asyncio.all_tasks()) == 1

    def runner(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(limited(main))

    return runner
