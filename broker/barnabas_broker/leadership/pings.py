"""Asks a broker whether it is there, before clients are told that it leads.

A client that loses its broker asks another one for metadata at once, often before that one has noticed: the kernel
closes the sockets of a process that was killed one after the other, over milliseconds. Told that the dead broker leads,
librdkafka believes it, finds nobody there, and asks again only when it scans its topics, up to a second later. So each
leader that would be named is sent a question first. It costs a round trip between brokers. If the broker is gone, its
connection ends instead, and there is an election to wait for.

A broker that neither answers nor goes (a process that stands still) keeps nobody waiting for longer than `WAIT_S` and
the round trip to the farthest broker.

Limit: one question for each broker and loop iteration; all requests of that iteration share it.
"""

import asyncio
from collections.abc import Iterable

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links.interfaces import NodeLinks

__all__ = ["METHOD", "WAIT_S", "Pings"]

METHOD = "ping"
WAIT_S = 0.1


class Pings:
    """One node's questions to others; they answer with `answer`."""

    def __init__(self, links: NodeLinks) -> None:
        self._links = links
        self._asked: dict[int, asyncio.Task[None]] = {}  # in this iteration of the loop

    async def ask(self, node_ids: Iterable[int]) -> None:
        """Return when each has answered, is known to be gone, or has had its time. Cancelled, it has no effect."""
        if asked := [self._question(node_id) for node_id in node_ids]:
            await asyncio.wait(asked)

    @staticmethod
    async def answer(_source: int, _body: bytes) -> bytes:
        """Be there."""
        return b""

    def _question(self, node_id: int) -> asyncio.Task[None]:
        task = self._asked.get(node_id)
        if task is None:
            loop = asyncio.get_running_loop()
            if not self._asked:
                loop.call_soon(self._asked.clear)
            task = self._asked[node_id] = loop.create_task(self._ask(node_id))
        return task

    async def _ask(self, node_id: int) -> None:
        try:
            await self._links.call(node_id, METHOD, b"", WAIT_S + self._links.round_trip.ms / 1000)
        except (BarnabasError, TimeoutError):
            return  # The links know by now what there is to know.
