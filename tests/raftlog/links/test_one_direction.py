"""Two nodes hear each other in one direction only, and no TCP connection ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from proxy import Proxy, Way
from raftlog.conftest import LOOPBACK, Runner, Watched, close_all

from barnabas_raftlog.links.links import Links, NodeAddress

TIMEOUT_MS = 250


class DatagramRelay(asyncio.DatagramProtocol):
    """Hands datagrams on to `target`, as long as it `works`."""

    def __init__(self, target: NodeAddress) -> None:
        self.target = target
        self.works = True
        self.count = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        del addr
        assert self._transport is not None
        if self.works:
            self.count += 1
            self._transport.sendto(data, self.target)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Watched, Watched, Proxy, DatagramRelay]]:
    """Node 1 reaches node 2 only through proxy and relay, which have one port; node 2 has a way of its own."""
    nodes = [
        Watched(Links("c", node_id, 100 + node_id, LOOPBACK, {}, liveness_timeout_ms=TIMEOUT_MS)) for node_id in (1, 2)
    ]
    first, second = nodes
    for node in nodes:
        await node.links.start()
    try:
        async with Proxy(target_port=second.links.address.port) as proxy:
            relay = DatagramRelay(second.links.address)
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: relay, local_addr=("127.0.0.1", proxy.port)
            )
            second.links.add_peer(1, first.links.address)
            first.links.add_peer(2, NodeAddress("127.0.0.1", proxy.port))
            await first.until_live(2)
            await second.until_live(1)
            try:
                yield first, second, proxy, relay
            finally:
                transport.close()
                await close_all(node.links.close() for node in nodes)
    finally:
        await close_all(node.links.close() for node in nodes)


async def silent_once_and_live_again(first: Watched, second: Watched, since: tuple[int, int]) -> None:
    await first.until(lambda: (2, False) in first.changes[since[0] :])
    await second.until(lambda: (1, False) in second.changes[since[1] :])
    await first.until_live(2)
    await second.until_live(1)


@pytest.mark.parametrize("way", ["onwards", "back"])
def test_a_link_whose_bytes_vanish_in_one_direction_is_made_anew_by_both_ends(run: Runner, way: Way) -> None:
    async def main() -> None:
        async def answer(source: int, body: bytes) -> bytes:
            return body + str(source).encode()

        async with pair() as (first, second, proxy, _):
            second.links.serve("echo", answer)
            assert await first.links.call(2, "echo", b"before ", 5.0) == b"before 1"
            since = len(first.changes), len(second.changes)
            proxy.lose(way)
            # Something must be under way: where nothing is said, nothing is missed.
            asking = asyncio.create_task(first.links.call(2, "echo", b"into the void", 20.0))
            await silent_once_and_live_again(first, second, since)
            with pytest.raises(Exception, match="connection to node 2"):
                await asking
            assert first.links.stats.links_swallowing + second.links.stats.links_swallowing > 0
            assert await first.links.call(2, "echo", b"after ", 5.0) == b"after 1"

    run(main())


def test_datagrams_that_vanish_in_one_direction_make_both_ends_silent_until_they_come_again(run: Runner) -> None:
    async def main() -> None:
        async with pair() as (first, second, _, relay):
            since = len(first.changes), len(second.changes)
            relay.works = False
            await first.until(lambda: (2, False) in first.changes[since[0] :])
            await second.until(lambda: (1, False) in second.changes[since[1] :])
            assert first.links.is_connected(2)
            assert second.links.is_connected(1)
            since = len(first.changes), len(second.changes)
            relay.works = True
            await first.until_live(2)
            await second.until_live(1)
            assert first.changes[since[0] :][-1] == (2, True)
            assert second.changes[since[1] :][-1] == (1, True)

    run(main())
