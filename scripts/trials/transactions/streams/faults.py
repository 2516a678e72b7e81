"""What strikes the application and the brokers: kills, and pauses longer than transactions last."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable

from machines.cluster_handle import ClusterHandle

from .run import Run, Strike

__all__ = ["BROKER_SETTINGS", "OF_APPLICATION", "OF_BROKERS", "Faults"]

BROKER_SETTINGS = {
    # Often enough to compact, and to look for what is old, while the application is at work.
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
}
OF_APPLICATION = ("instance", "renamed", "paused")
OF_BROKERS = ("broker", "both", "brokers")
PAUSE_S = 12.0  # a transaction of Kafka Streams lasts 10 s, a session 6 s


class Faults:
    """The faults of one run. `brokers` is None if they are somebody else's, and left alone.

    Attributes:
        struck: What struck, and how many orders had results then.
    """

    def __init__(self, run: Run, brokers: ClusterHandle | None, seed: int) -> None:
        self.struck: list[tuple[str, int]] = []
        self._run = run
        self._brokers = brokers
        self._chance = random.Random(seed)
        self._faults: dict[str, Callable[[], Awaitable[None]]] = {
            "instance": self._instance,
            "renamed": self._renamed,
            "paused": self._paused,
            "broker": self._broker,
            "both": self._both,
            "brokers": self._all_brokers,
        }

    def strike(self, name: str, at: int) -> Strike:
        """Return the strike with the fault of this name."""

        async def fault() -> None:
            await self._faults[name]()
            print(f"{name} at {self.struck[-1][1]:,} of {self._run.work.orders:,} orders", file=sys.stderr, flush=True)

        return Strike(at, fault)

    def _note(self, name: str) -> None:
        self.struck.append((name, self._run.done))

    async def _instance(self) -> None:
        instance = self._chance.choice(self._run.instances)
        self._note("instance")
        instance.kill()
        instance.start()

    async def _renamed(self) -> None:
        instance = self._chance.choice(self._run.instances)
        self._note("renamed")
        instance.kill(keeps_name=False)
        instance.start()

    async def _paused(self) -> None:
        instance = self._chance.choice(self._run.instances)
        self._note("paused")
        instance.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(PAUSE_S)
        finally:
            instance.signal(signal.SIGCONT)

    async def _broker(self) -> None:
        """Kill the broker that leads most."""
        await self._kill_brokers("broker", 1)

    async def _all_brokers(self) -> None:
        await self._kill_brokers("brokers", 3)

    async def _both(self) -> None:
        await self._kill_brokers("both", 1)

    async def _kill_brokers(self, name: str, count: int) -> None:
        assert self._brokers is not None
        found = (await asyncio.to_thread(self._brokers.status))["brokers"]
        found.sort(key=lambda broker: broker["leaders"], reverse=True)
        self._note(name)
        for broker in found[:count]:
            os.kill(broker["pid"], signal.SIGKILL)
        if name == "both":
            instance = self._chance.choice(self._run.instances)
            instance.kill()
            instance.start()
        await asyncio.to_thread(self._brokers.start)
