"""Runs a client and its fake brokers on one loop in virtual time.

There is no socket and no waiting, and the same seed is the same run. The loop and the network are the simulator's
(tests/sim/cluster). All random choices, such as pauses between retries, come from one seed here.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

from sim.cluster.machines.loop import Clock, VirtualLoop
from sim.cluster.machines.network import Conditions, Network
from sim.cluster.world import SECOND, World

from barnabas_clients import chance

from .fake_broker import FakeBroker

__all__ = ["run_virtually", "serving_virtually"]

HOST = "127.0.0.1"
LIMIT_S = 3_600


def run_virtually(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end, within an hour of its own time. An exception of a callback fails the run."""
    world = World(0)
    loop = VirtualLoop(
        world, Network(world, Conditions()), HOST, Clock(world), lambda context: world.fail(_bug(context))
    )
    with mock.patch.object(chance, "new_generator", return_value=random.Random(0)):
        task = loop.create_task(main)
        try:
            world.run_until(LIMIT_S * SECOND, task.done)
            assert task.done(), "the run does not come to an end"
            task.result()
        finally:
            loop.kill()
            world.bury()


def _bug(context: dict[str, Any]) -> BaseException:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else AssertionError(str(context))


@asynccontextmanager
async def serving_virtually(*brokers: FakeBroker) -> AsyncIterator[None]:
    """Listen on one port for each broker."""
    servers = []
    for broker in brokers:
        broker.is_closed = False
        broker.port = 9_000 + broker.node_id
        servers.append(await asyncio.start_server(broker.serve, HOST, broker.port))
    try:
        yield
    finally:
        for server, broker in zip(servers, brokers, strict=True):
            server.close()
            await broker.close()
