"""One strike of a fault on transactions: the moment, the victim, and how many of them it meets.

Before most faults the holders all end their transactions at once, and the broker that coordinates most of those whose
end is asked for, and not answered, is the victim. So such a fault is a failover with prepared transactions.
"""

import asyncio
import random
import time
from collections import Counter

from barnabas_broker.coordinators.groups.state_machine.location import partition_for
from barnabas_clients.admin.client import Admin
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import KafkaError
from trials import faults as torture_faults
from trials.load import HangError
from trials.trial import Trial

from .clients import INPUT, OUTPUT, PARTITIONS, Clients

__all__ = ["SETTLE_S", "STATE_PARTITIONS", "Stage", "create_topics"]

STATE = "__transaction_state"
STATE_PARTITIONS = 4
SETTLE_S = 1.0
AIMED = 0.75
"""So many faults of one strike a coordinator that is ending transactions."""
ENDS = 4
RALLY_S = 0.3
NO_FAILOVER = {"clock-jump"}


async def create_topics(bootstrap: str, replicas: int, mode: str) -> None:
    """Make input and output. Two replicas need each other while both are there, by the log's own rule."""
    settings: dict[str, str | int] = {"flush.mode": mode}
    if replicas > 2:
        settings["min.insync.replicas"] = 2
    async with Admin(bootstrap, timeout_s=60.0) as admin:
        for topic in (INPUT, OUTPUT):
            await admin.create_topic(topic, PARTITIONS, replicas, settings)


class Stage:
    """The cluster and its clients, and the number of replicas of all that transactions need.

    `limit_s`: the time after which replicas that are not in sync hang.
    """

    def __init__(self, trial: Trial, clients: Clients, replicas: int, limit_s: float) -> None:
        self._trial = trial
        self._clients = clients
        self._replicas = replicas
        self._limit_s = limit_s

    async def whole(self) -> dict[int, int]:
        """Wait until every replica is in sync; return a leader for each partition of data, and of the coordinators.

        Raises:
            HangError: they are not within the limit.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limit_s
        state = "nobody answered"
        async with Admin(self._trial.machines.bootstrap, timeout_s=5.0) as admin:
            while True:
                try:
                    found = {topic.name: topic for topic in await admin.describe_topics([INPUT, OUTPUT, STATE])}
                except (ClientError, KafkaError) as error:
                    state = str(error)
                else:
                    names = INPUT, OUTPUT, STATE
                    views = [view for name in names for _, view in sorted(found[name].partitions.items())]
                    if all(view.leader_id > 0 and len(view.in_sync_replicas) == self._replicas for view in views):
                        return dict(enumerate(view.leader_id for view in views))
                    state = str([(view.leader_id, list(view.in_sync_replicas)) for view in views])
                if loop.time() > deadline:
                    raise HangError(f"not in sync after {self._limit_s:.0f} s: {state}")
                await asyncio.sleep(0.05)

    def strike(self, fault: torture_faults.Fault, chance: random.Random) -> tuple[str, int]:
        """Run one round; return the nodes that it struck, and how many transactions were open in that moment."""
        machines, book = self._trial.machines, self._clients.book
        leaders = asyncio.run(self.whole())
        time.sleep(SETTLE_S)
        hold_s = chance.uniform(*fault.hold_s)
        chosen = leaders
        if chance.random() < AIMED:
            self._clients.rally()
            ends = Counter(leaders[coordinator_of(name)] for name in book.wait_for_ends(ENDS, RALLY_S))
            if ends:
                chosen = {0: max(sorted(ends), key=ends.__getitem__)}
        scene = torture_faults.Scene(machines, chance, chosen)
        moment = time.monotonic()
        self._trial.recorder.fault(fault.name, "")
        open_count, ending = book.strike()
        struck = fault.strike(scene)
        if fault.name not in NO_FAILOVER:
            book.seen["prepared"] += sum(leaders[coordinator_of(name)] in struck for name in ending)
        time.sleep(max(0.0, moment + hold_s - time.monotonic()))
        fault.mend(scene, struck)
        target = ",".join(map(str, struck))
        self._trial.recorder.fault_ended(fault.name, target)
        return target, open_count


def coordinator_of(transactional_id: str) -> int:
    """Return which of the partitions of `whole` is the coordinator's: they stand behind those of data."""
    return 2 * PARTITIONS + partition_for(transactional_id, STATE_PARTITIONS)
