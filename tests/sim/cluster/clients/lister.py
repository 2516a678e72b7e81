"""A client that looks offsets up: ends, largest timestamps, the first after a time.

Its answers are compared with the log as far as it is known, at once and when the run is over: no offset that was ever
told may lie beyond the end, and the record at an offset that was told has the timestamp that was told.
"""

from collections.abc import Callable
from typing import Any

from sim.cluster.judges.history import ClientHistory, Partition

from .client import EARLIEST, Trouble, WireClient
from .workload import TIMESTAMP_MS

__all__ = ["Lister"]

LATEST = -1
LARGEST = -3


class Lister:
    """Asks for one partition after the other, for any of these."""

    def __init__(self, client: WireClient, history: ClientHistory, partitions: list[Partition]) -> None:
        self.client = client
        self.history = history
        self.partitions = partitions
        self._ends = dict[Partition, int]()
        self._starts = dict[Partition, int]()

    async def run(self, goes_on: Callable[[], bool]) -> None:
        world = self.client.world
        rng = self.client.rng
        while goes_on():
            await self.client.pause(10, 200)
            partition = rng.choice(self.partitions)
            now_ms = TIMESTAMP_MS + world.now_us // 1_000
            wanted = rng.choice((LATEST, EARLIEST, LARGEST, now_ms - rng.randrange(5_000), now_ms - 100))
            acknowledged = self.history.ends.get(partition, 0)
            try:
                told = await self.client.offset_of(*partition, wanted)
            except Trouble as trouble:
                world.note(self.client.name, f"offset of {partition[1]}: {trouble}")
                self.client.forget_leader(*partition)
                continue
            world.counts["offsets looked up"] += 1
            self._judge(partition, wanted, told, acknowledged)

    def _judge(self, partition: Partition, wanted: int, told: Any, acknowledged: int) -> None:
        history = self.history
        offset = told.offset
        claim = f"{partition}: offset {offset} at {told.timestamp} is told for {wanted}"
        if wanted == LATEST:
            history.on_told_end(partition, offset)
            self._demand(offset >= max(acknowledged, self._ends.get(partition, 0)), f"{claim}, which goes back")
            self._ends[partition] = offset
        elif wanted == EARLIEST:
            self._demand(offset >= self._starts.get(partition, 0), f"{claim}, which goes back")
            self._demand(offset <= history.deleted.get(partition, 0), f"{claim}, and nobody deleted so much")
            self._starts[partition] = offset
        else:
            if offset >= 0:
                history.on_told_record(partition, offset, told.timestamp)
                self._demand(told.timestamp >= wanted, f"{claim}, which is too early")
            if not history.compacts:
                self._judge_found(partition, wanted, told, acknowledged, claim)

    def _judge_found(self, partition: Partition, wanted: int, told: Any, acknowledged: int, claim: str) -> None:
        """Check that no record that was there before the question is a better answer."""
        end = acknowledged if told.offset < 0 or wanted == LARGEST else told.offset
        limit_ms = told.timestamp + 1 if wanted == LARGEST else wanted
        for offset in range(self.history.deleted.get(partition, 0), end):
            value = self.history.at.get((partition, offset))
            if value is not None and self.history.sent[value].timestamp_ms >= limit_ms:
                self._demand(False, f"{claim}, and {offset} has {self.history.sent[value].timestamp_ms}")
                return

    def _demand(self, is_so: bool, claim: str) -> None:
        if not is_so:
            self.client.world.violate(claim)
