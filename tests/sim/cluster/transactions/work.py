"""The transactional part of a run: its topics and clients, and its end.

At the end nobody feeds any more; then every transaction must be decided, and every committed record of the input have
made exactly one committed record of the output.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from barnabas_broker.history.events import LogStartSeen
from barnabas_clients import Admin, ClientError, KafkaError
from barnabas_clients.admin.values import FeatureChange
from sim.cluster.clients.admin import create_topic
from sim.cluster.clients.client import WireClient
from sim.cluster.clients.workload import delete_records
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition
from sim.cluster.machines.machine import Machine
from sim.cluster.service import Service
from sim.cluster.world import SECOND, World

from .clients import SETTLING_S, Feeder, Transacting, Worker
from .inside import Watcher
from .parts.cut import Cut
from .parts.kept import Kept
from .parts.late_ends import LateEnds
from .parts.prepared import Prepared
from .parts.side import Side, Surroundings
from .reader import CommittedReader
from .telling import Ledger, name_of, source_of

__all__ = ["INPUT", "OUTPUT", "Transactional"]

INPUT = "in"
OUTPUT = "out"
OFFSETS_TOPIC = "__consumer_offsets"
SEGMENT_MS = 300  # where segments are to be sealed within a run
FEATURE = "transaction.version"
ENDING_US = int(SETTLING_S * SECOND) + 60 * SECOND
# A marker may need a replica whose damage could not be mended at once: that is tried again after a minute.
DECIDING_US = 100 * SECOND


class Transactional:
    """One run's. `partitions`: of input and output."""

    def __init__(
        self,
        world: World,
        machines: Mapping[int, Machine],
        service: Service,
        new_client: Callable[[], WireClient],
        read: tuple[ClientHistory, Availability],
    ) -> None:
        self._world = world
        self._machines = machines
        self._service = service
        self._new_client = new_client
        self._read = read
        self.ledger = Ledger(world, service.parts.level)
        about = (world, machines, service, new_client, *read, self.ledger)
        self._around = Surroundings(*about, goes_on=lambda: self._is_working)
        self._sides = self._make_sides()
        self._topics = [INPUT, OUTPUT, *(side.topic for side in self._sides)]
        compacted = [side.topic for side in self._sides if "cleanup.policy" in side.configs]
        self.watcher = Watcher(world, (*self._topics, OFFSETS_TOPIC), compacted, self.ledger.struck)
        self._inputs = [(INPUT, index) for index in range(service.transaction_partitions)]
        self._outputs = [(OUTPUT, index) for index in range(service.transaction_partitions)]
        self.partitions: list[Partition] = [*self._inputs, *self._outputs]
        for side in self._sides:
            self.partitions += side.partitions
        self._feeders = list[Feeder]()
        self._workers = list[Worker]()
        self._readers = list[CommittedReader]()
        self._is_working = True

    def _make_sides(self) -> list[Side]:
        """Return the parts of this run that not every one has."""
        parts = self._service.parts
        around = self._around
        sides = list[Side]()
        if parts.cuts:
            sides.append(Cut(around, SEGMENT_MS))
        if parts.preparers:
            sides.append(Prepared(around))
        if parts.repeats_ends:
            sides.append(LateEnds(around))
        if parts.compacts:
            sides.append(Kept(around, SEGMENT_MS))
        return sides

    def prepare(self, factor: int, configs: dict[str, str], start_us: int) -> None:
        """Make the topics, and have the protocol of transactions finalized, if it is not yet.

        Of a cluster whose first controller does not hear all others in time the newest one is not.
        """
        is_ready = list[bool]()
        client = self._new_client()

        async def work() -> None:
            count = self._service.transaction_partitions
            await asyncio.gather(
                *(create_topic(client, topic, count, factor, configs) for topic in (INPUT, OUTPUT)),
                *(
                    create_topic(client, side.topic, len(side.partitions), factor, {**configs, **side.configs})
                    for side in self._sides
                ),
            )
            servers = [f"{host}:{port}" for host, port in client.brokers.values()]
            while not is_ready:
                try:
                    async with Admin(servers, timeout_s=3.0) as admin:
                        await _finalize(admin, self._service.parts.level)
                        is_ready.append(True)
                except (ClientError, KafkaError) as error:
                    self._world.note(client.name, f"finalizing: {error!r}")
                    await client.pause()

        client.start(work())
        assert self._world.run_until(start_us, lambda: bool(is_ready)), "no transactions are to be had"

    def begin(self) -> None:
        service = self._service
        timeout_ms = service.transaction_timeout_ms
        for _ in range(service.feeders):
            feeder = Feeder(self._new_client(), self.ledger, self._inputs, timeout_ms)
            feeder.client.start(feeder.run(lambda: self._is_working))
            self._feeders.append(feeder)
        for _ in range(service.workers):
            worker = Worker(self._new_client(), self.ledger, self._outputs, timeout_ms, INPUT)
            worker.client.start(worker.run(lambda: self._is_working or not self._is_worked_off()))
            self._workers.append(worker)
        for side in self._sides:
            side.begin()
        self.read()
        if service.deletes_output:
            client = self._new_client()
            read = [reader for reader in self._readers if reader.partition[0] == OUTPUT]
            told = _Deletions(self._read[0], self.ledger)
            client.start(delete_records(client, told, read, lambda: self._is_working))

    def read(self) -> list[CommittedReader]:
        """Read everything from the beginning, from now on."""
        places = [*self._inputs, *self._outputs]
        readers = [CommittedReader(self._new_client(), *self._read, place, self.ledger) for place in places]
        for side in self._sides:
            readers += [side.reader(place) for place in side.partitions]
        for reader in readers:
            reader.client.start(reader.run())
        self._readers += readers
        return readers

    def end(self) -> None:
        """Let all work end, look at everything once more, and judge."""
        world = self._world
        self._is_working = False
        for clients in (self._feeders, self._workers, [client for side in self._sides for client in side.clients]):
            is_over = partial(_are_done, clients)
            assert world.run_until(world.now_us + ENDING_US, is_over), f"do not end: {self.ledger.worked_until}"
            assert world.run_until(world.now_us + DECIDING_US, self._is_decided), f"never decided: {self._undecided()}"
        last = self.read()
        ended = world.run_until(world.now_us + DECIDING_US, lambda: all(one.has_all_acknowledged for one in last))
        assert ended, f"readers lack records: {[(one.partition, one.position, one.high_watermark) for one in last]}"
        self._compare(last)
        for side in self._sides:
            side.judge(*([one for one in some if one.partition in side.partitions] for some in (self._readers, last)))
        # Power cuts of all machines, which may take markers, are in no run of these (`power_cuts`).
        assert not world.counts["event lost marker replaced"], "a marker was lost"

    def _is_worked_off(self) -> bool:
        """Tell whether the group has come to the last record of the input that there is, and no more can come.

        A reader may be cut off from a leader that has more; so the leaders themselves are asked how far it goes.
        """
        until = self.ledger.worked_until
        if not _are_done(self._feeders) or not self._is_decided():
            return False
        for reader in self._readers[: len(self._inputs)]:
            led = self._around.led(reader.partition)
            is_read = led is not None and reader.position == led.high_watermark
            if not is_read or max(reader.found, default=-1) >= until.get(reader.partition, 0):
                return False
        return True

    def _is_decided(self) -> bool:
        return not self._undecided() and all(
            reader.position == reader.high_watermark for reader in self._readers[: len(self.partitions)]
        )

    def _undecided(self) -> list[str]:
        """Name what is open or owed still, by those who lead."""
        found = list[str]()
        for machine in self._machines.values():
            node = machine.node
            if node is None:
                continue
            for led in node.partitions:
                if led.can_serve and led.topic_name in {*self._topics, OFFSETS_TOPIC}:
                    found += [f"{led}: {one}" for one in led.state.transactions.open_transactions()]
                    if led.last_stable_offset < led.high_watermark:
                        found.append(f"{led}: stable is {led.last_stable_offset} of {led.high_watermark}")
            for shard in node.broker.transactions.active_shards():
                found += [f"{name}: {hosted.transaction.state.name}" for name, hosted in shard.open.items()]
        return found

    def _compare(self, last: list[CommittedReader]) -> None:
        """Hold the committed output against the committed input."""
        inputs = Counter[str]()
        outputs = Counter[str]()
        # What was deleted had been read by those who began first.
        for first, reader in zip(self._readers, last, strict=False):
            for offset, value in (first.found | reader.found).items():
                if reader.partition[0] == INPUT:
                    inputs[f"{INPUT}-{reader.partition[1]}@{offset}"] += 1
                elif reader.partition[0] == OUTPUT:
                    outputs[source_of(value)] += 1
        self._world.counts["transactional records"] += inputs.total()
        self._world.counts["records worked off"] += outputs.total()
        if self._workers:
            assert not outputs - inputs, f"came out once too often: {outputs - inputs}"
            assert not inputs - outputs, f"never came out: {inputs - outputs}"


async def _finalize(admin: Admin, level: int) -> None:
    """Have this level of transactions."""
    found = await admin.describe_features()
    now = next((one.level for one in found.features if one.name == FEATURE), 0)
    if now != level:
        change = FeatureChange.UPGRADE if now < level else FeatureChange.SAFE_DOWNGRADE
        await admin.update_features({FEATURE: level}, change=change)


class _Deletions:
    """Tells both histories of records that are about to be deleted."""

    def __init__(self, history: ClientHistory, ledger: Ledger) -> None:
        self._history = history
        self._ledger = ledger

    def on_delete_sent(self, partition: Partition, offset: int) -> None:
        self._history.on_delete_sent(partition, offset)
        self._ledger.tell(LogStartSeen(partition=name_of(partition), offset=offset))


def _are_done(clients: Sequence[Transacting]) -> bool:
    return all(client.is_done for client in clients)
