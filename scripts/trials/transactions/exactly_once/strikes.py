"""Kills workers and brokers by turns, or cuts the power of a broker's machine."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from machines.machines import Machines

from trials.load import WAIT_LIMIT_S, HangError
from trials.transactions.topics import STATE, Flow, coordinating_partition, whole

from .ends import worker_of
from .history import Appending, Reading
from .load import Load
from .workers import WORKERS, Workers

__all__ = ["OFFSETS", "Stage", "Strikes"]

OFFSETS = "__consumer_offsets"
WORKER_AWAY_S = (0.0, 2.0)
BROKER_AWAY_S = (0.3, 3.0)
AIM_S = 1.0


class Stage(NamedTuple):
    """What there is to strike, and who sees it."""

    machines: Machines
    workers: Workers
    load: Load
    told: Appending
    reading: Reading
    flow: Flow

    def check(self) -> None:
        """Raise RuntimeError if something has ended before its time, or contradicts itself."""
        self.load.check()
        self.workers.check()
        self.reading.check()


class Strikes:
    """A run's strikes; `with_power_cuts`: every other strike at a broker takes its machine's power."""

    def __init__(self, stage: Stage, chance: random.Random, *, with_power_cuts: bool) -> None:
        self.struck: Counter[str] = Counter()
        self._stage = stage
        self._chance = chance
        self._with_power_cuts = with_power_cuts

    def strike(self, count: int, seconds: float) -> float:
        """Strike so often in so long; return the seconds that it took, more if brokers were not back in time.

        Raises:
            RuntimeError: something hung, or a broker did not start.
        """
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + (number + self._chance.random()) * seconds / count - time.monotonic()))
            self._stage.check()
            what = self._strike_worker() if number % 2 == 0 else self._strike_broker()
            found = self._stage.reading.checker.summary()
            print(
                f"{time.monotonic() - began:6.1f} s: {what:28} {found.transactions}"
                + (f"; {found.violations} VIOLATIONS" if found.violations else ""),
                flush=True,
            )
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return time.monotonic() - began

    def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float = WAIT_LIMIT_S) -> None:
        """Wait for something.

        Raises:
            HangError: it does not come. RuntimeError: something has ended before its time.
        """
        deadline = time.monotonic() + limit_s
        while not condition():
            self._stage.check()
            if time.monotonic() > deadline:
                raise HangError(
                    f"waited {limit_s:.0f} s for {what}; workers have died of: {dict(self._stage.workers.deaths)}"
                )
            time.sleep(0.05)

    def check(self) -> None:
        """Raise RuntimeError if something has ended before its time, or contradicts itself."""
        self._stage.check()

    def _aim(self) -> str | None:
        """Return a transaction that is just being ended, for half of the strikes."""
        return self._stage.reading.wait_for_end(AIM_S) if self._chance.random() < 0.5 else None

    def _strike_worker(self) -> str:
        name = self._chance.choice(WORKERS)
        away_s = self._chance.uniform(*WORKER_AWAY_S)
        if (aim := self._aim()) is not None:
            name = worker_of(aim)
        self._stage.told.fault("worker killed", name)
        while not self._stage.workers.kill(name, away_s):  # it is away for a moment
            time.sleep(0.01)
        self._stage.told.fault_ended("worker killed", name)
        self.struck["worker killed"] += 1
        return f"worker {name} killed{' (ending)' if aim else ''}"

    def _strike_broker(self) -> str:
        machines = self._stage.machines
        flow = self._stage.flow
        leaders = asyncio.run(whole(machines.bootstrap, [flow.input, flow.output, STATE, OFFSETS]))
        victim = self._chance.choice(machines.others())
        if (aim := self._aim()) is not None:
            victim = leaders[STATE][coordinating_partition(worker_of(aim))]
        away_s = self._chance.uniform(*BROKER_AWAY_S)
        cuts = self._with_power_cuts and self.struck["broker killed"] > self.struck["power cut"]
        kind = "power cut" if cuts else "broker killed"
        self._stage.told.fault(kind, str(victim))
        if cuts:
            machines.lose_power(victim)
        else:
            machines[victim].kill()
        time.sleep(away_s)
        if cuts:
            machines.restore_power([victim])
        machines.start(victim)
        self._stage.told.fault_ended(kind, str(victim))
        self.struck[kind] += 1
        return f"{kind}: {victim}{' (coordinator)' if aim else ''}"
