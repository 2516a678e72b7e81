"""Runs a producer and fake leaders on the simulator's loops.

Network and clock belong to the test. Nothing is waited for, so a history of minutes takes milliseconds, and the same
seed is the same run. Bytes that a client's kernel has sent reach a broker that stands still all the same, even if the
connection is closed: it reads them when it goes on, as with real sockets.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from clients.fake_broker import FakeBroker
from sim.cluster.machines.loop import Clock, VirtualLoop
from sim.cluster.machines.network import Conditions, Network
from sim.cluster.world import SECOND, World

from barnabas_clients import Producer

from .leaders import Leaders

__all__ = ["Stage"]

PORT = 9092
LATE_S = 120


class Stage:
    """A client's machine, and one for each broker. `leaders` say what brokers do."""

    def __init__(self, seed: int, brokers: int = 1, *, partitions: int = 1, takes_any_first: bool = False) -> None:
        self.world = World(seed)
        self.network = Network(self.world, Conditions(in_pieces=True))
        self.client = self._loop("client")
        self.brokers = [FakeBroker(number) for number in range(1, brokers + 1)]
        self.leaders = Leaders(*self.brokers, partitions=partitions, takes_any_first=takes_any_first)
        self.loops: dict[int, VirtualLoop] = {}
        for broker in self.brokers:
            broker.host = f"b{broker.node_id}"
            broker.port = PORT
            loop = self.loops[broker.node_id] = self._loop(broker.host)
            loop.arrive(lambda loop=loop, broker=broker: loop.create_task(self._listen(broker)))
        self.servers: dict[int, Any] = {}

    def producer(self, **settings: Any) -> Producer:
        producer = Producer([f"{broker.host}:{PORT}" for broker in self.brokers], **({"linger_s": 0} | settings))
        producer._jitter.seed(self.world.seed)
        return producer

    def run(self, work: Coroutine[Any, Any, None], within_s: float = 600) -> None:
        """Let `work` run to its end on the client's machine, then what is still under way, and look for leftovers."""
        try:
            self._run(work, within_s)
        finally:  # Also a run that fails leaves nothing to come apart later.
            for loop in [self.client, *self.loops.values()]:
                loop.kill()
            self.world.bury()

    def _run(self, work: Coroutine[Any, Any, None], within_s: float) -> None:
        tasks: list[asyncio.Task[None]] = []
        self.client.arrive(lambda: tasks.append(self.client.create_task(work)))
        self.world.run_until(int(within_s * SECOND), lambda: bool(tasks) and tasks[0].done())
        self._raise_what_brokers_found()
        assert tasks[0].done(), f"not at its end after {within_s:g} s"
        tasks[0].result()
        for broker in self.brokers:
            self.mend(broker.node_id)
        self.world.run_until(self.world.now_us + LATE_S * SECOND)
        self._raise_what_brokers_found()
        left = asyncio.all_tasks(self.client)
        assert not left, f"still running: {left}"

    def _raise_what_brokers_found(self) -> None:
        for broker in self.brokers:
            for task in broker.tasks:
                if task.done() and not task.cancelled():
                    task.result()

    # Called by tests.

    def after(self, delay_s: float, do: Callable[[], object]) -> None:
        self.world.after(int(delay_s * SECOND), do)

    def stall(self, node_id: int, duration_s: float) -> None:
        """Let a broker stand still. Bytes sent to it wait."""
        self.loops[node_id].stall(self.world.now_us + int(duration_s * SECOND))

    def reset(self, node_id: int) -> None:
        """Break the client's connections to a broker."""
        self.network.reset_streams("client", f"b{node_id}")

    def refuse(self, node_id: int) -> None:
        """Break the client's connections to a broker, and let nobody connect."""
        self.servers[node_id].is_listening = False
        self.reset(node_id)

    def cut(self, node_id: int) -> None:
        """Let nothing through between the client and a broker, and tell nobody."""
        self.network.cut("client", f"b{node_id}")
        self.network.cut(f"b{node_id}", "client")

    def mend(self, node_id: int) -> None:
        self.servers[node_id].is_listening = True
        self.network.mend()

    # Inside.

    def _loop(self, host: str) -> VirtualLoop:
        return VirtualLoop(self.world, self.network, host, Clock(self.world), self._on_bug)

    def _on_bug(self, context: dict[str, Any]) -> None:
        self.world.fail(context.get("exception") or AssertionError(context.get("message")))

    async def _listen(self, broker: FakeBroker) -> None:
        self.servers[broker.node_id] = await asyncio.start_server(broker.serve, broker.host, broker.port)
