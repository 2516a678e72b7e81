"""What the parts of a transactional run have in common: each has a topic and clients of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sim.cluster.clients.client import WireClient
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition
from sim.cluster.machines.machine import Machine
from sim.cluster.service import Service
from sim.cluster.transactions.clients import Transacting
from sim.cluster.transactions.reader import CommittedReader
from sim.cluster.transactions.telling import Ledger
from sim.cluster.world import World

__all__ = ["Side", "Surroundings"]


class Surroundings(NamedTuple):
    """All that a part needs of its run. `goes_on`: whether clients should go on working."""

    world: World
    machines: Mapping[int, Machine]
    service: Service
    new_client: Callable[[], WireClient]
    history: ClientHistory
    availability: Availability
    ledger: Ledger
    goes_on: Callable[[], bool]

    def led(self, partition: Partition) -> Any:
        """Return a partition as the broker has it that leads it; None if nobody is known to."""
        topic, index = partition
        for machine in self.machines.values():
            hosted = machine.node.partitions.topics.get(topic) if machine.node is not None else None
            found = hosted.partitions.get(index) if hosted is not None else None
            if found is not None and found.can_serve:
                return found
        return None


class Side:
    """One part. `configs`: of its topic, besides those of all; `clients`: those that must come to their end."""

    topic = ""
    configs: Mapping[str, str] = {}

    def __init__(self, around: Surroundings, count: int) -> None:
        self.around = around
        self.partitions: list[Partition] = [(self.topic, index) for index in range(count)]
        self.clients = list[Transacting]()

    def begin(self) -> None:
        """Let clients begin."""
        raise NotImplementedError

    def feed(self, feeder_kind: type[Transacting], count: int) -> None:
        """Let so many feeders of this kind begin."""
        around = self.around
        for _ in range(count):
            timeout_ms = around.service.transaction_timeout_ms
            feeder = feeder_kind(around.new_client(), around.ledger, self.partitions, timeout_ms)
            feeder.client.start(feeder.run(around.goes_on))
            self.clients.append(feeder)

    def reader(self, partition: Partition) -> CommittedReader:
        """Return a reader of a partition."""
        around = self.around
        return CommittedReader(around.new_client(), around.history, around.availability, partition, around.ledger)

    def judge(self, first: Sequence[CommittedReader], last: Sequence[CommittedReader]) -> None:
        """Hold what those who began last have found against what those who began first have."""
