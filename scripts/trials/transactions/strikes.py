"""One strike of a fault on transactions: the moment, the victim, and how many of them it meets.

Before most faults the holders all end their transactions at once, and the broker that coordinates most of those whose
end is asked for, and not answered, is the victim. So such a fault is a failover with prepared transactions.
"""

import asyncio
import random
import time
from collections import Counter

from trials import faults as torture_faults
from trials.trial import Trial

from .clients import FLOW, Clients
from .topics import STATE, coordinating_partition, whole

__all__ = ["SETTLE_S", "Stage"]

SETTLE_S = 1.0
AIMED = 0.75
"""So many faults of one strike a coordinator that is ending transactions."""
ENDS = 4
RALLY_S = 0.3
NO_FAILOVER = {"clock-jump"}


class Stage:
    """The cluster and its clients, and the number of replicas of all that transactions need.

    `limit_s`: the time after which replicas that are not in sync hang.
    """

    def __init__(self, trial: Trial, clients: Clients, replicas: int, limit_s: float) -> None:
        self._trial = trial
        self._clients = clients
        self._replicas = replicas
        self._limit_s = limit_s

    def whole(self) -> tuple[dict[int, int], list[int]]:
        """Wait until every replica is in sync; return a leader for every partition, and those of the coordinators.

        Raises:
            HangError: they are not within the limit.
        """
        topics = [FLOW.input, FLOW.output, STATE]
        leaders = asyncio.run(whole(self._trial.machines.bootstrap, topics, self._limit_s, self._replicas))
        return dict(enumerate(leader for of_topic in leaders.values() for leader in of_topic)), leaders[STATE]

    def strike(self, fault: torture_faults.Fault, chance: random.Random) -> tuple[str, int]:
        """Run one round; return the nodes that it struck, and how many transactions were open in that moment."""
        machines, book = self._trial.machines, self._clients.book
        leaders, coordinators = self.whole()
        time.sleep(SETTLE_S)
        hold_s = chance.uniform(*fault.hold_s)
        chosen = leaders
        if chance.random() < AIMED:
            self._clients.rally()
            ends = Counter(coordinators[coordinating_partition(name)] for name in book.wait_for_ends(ENDS, RALLY_S))
            if ends:
                chosen = {0: max(sorted(ends), key=ends.__getitem__)}
        scene = torture_faults.Scene(machines, chance, chosen)
        moment = time.monotonic()
        self._trial.recorder.fault(fault.name, "")
        open_count, ending = book.strike()
        struck = fault.strike(scene)
        if fault.name not in NO_FAILOVER:
            book.seen["prepared"] += sum(coordinators[coordinating_partition(name)] in struck for name in ending)
        time.sleep(max(0.0, moment + hold_s - time.monotonic()))
        fault.mend(scene, struck)
        target = ",".join(map(str, struck))
        self._trial.recorder.fault_ended(fault.name, target)
        return target, open_count
