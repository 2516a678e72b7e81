"""Both event loops, and small clusters of links on ephemeral loopback ports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest
import uvloop

from barnabas_raftlog.links.links import Links, NodeAddress
from barnabas_raftlog.raft.messages import Fact

LOOPBACK = NodeAddress("127.0.0.1", 0)
Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    """Run one coroutine to its end on a fresh loop; what is still running then is a leak."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def within_20_s(main: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(20):
            await main
        assert len(asyncio.all_tasks()) == 1

    def runner(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(within_20_s(main))

    return runner


class Watched:
    """Links whose every event can be awaited: `until(claim)` returns once the claim holds."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.changes: list[tuple[int, bool]] = []
        self.facts: list[Fact] = []
        self.messages: list[Any] = []
        self._changed = asyncio.Event()
        links.on_peer.append(self._on_peer)
        links.on_fact = self._on_fact
        links.on_messages = self._on_messages

    def _on_peer(self, node_id: int, live: bool) -> None:
        self.changes.append((node_id, live))
        self._changed.set()

    def _on_fact(self, fact: Fact) -> None:
        self.facts.append(fact)
        self._changed.set()

    def _on_messages(self, source: int, messages: Sequence[Any]) -> None:
        self.messages += [(source, *message) for message in messages]
        self._changed.set()

    async def until(self, claim: Callable[[], bool]) -> None:
        while not claim():
            self._changed.clear()
            await self._changed.wait()

    async def until_live(self, *nodes: int) -> None:
        await self.until(lambda: all(self.links.is_live(node) for node in nodes))


@contextlib.asynccontextmanager
async def cluster(count: int, *, known: bool = True, **options: Any) -> AsyncIterator[dict[int, Watched]]:
    """Start `count` nodes that know each other, unless `known` says otherwise; node ids from 1."""
    nodes = {node: Watched(Links("c", node, 100 + node, LOOPBACK, {}, **options)) for node in range(1, count + 1)}
    try:
        for node in nodes.values():
            await node.links.start()
        if known:
            introduce(nodes)
        yield nodes
    finally:
        await close_all(node.links.close() for node in nodes.values())


def introduce(nodes: dict[int, Watched]) -> None:
    for node_id, node in nodes.items():
        for other_id, other in nodes.items():
            if other_id != node_id:
                node.links.add_peer(other_id, other.links.address)


async def close_all(closings: Any) -> None:
    closing: Awaitable[None]
    for closing in list(closings):
        await closing
