"""All machines lose their power at once, again and again, in the middle of transactions on topics in page-cache mode.

What of the data had not reached any disk is lost, and so are markers whose transactions the coordinators, whose log is
synced, have completed. That much `page-cache` costs, and no judge of other runs would allow it. Here it is asked only
that nothing is worse than that:

- no transaction stays open for ever, in any partition;
- no record of a transaction that its client has aborted is read as committed;
- each record of a committed transaction that is there yet is read as committed: how the transaction has ended was not
  forgotten;
- what each replica believes of its transactions is what its log says.

The run counts what struck: records lost, and transactions that were ended because their marker was lost.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from barnabas_broker.partition.transactions import TransactionTable
from barnabas_clients import ClientError, Consumer, KafkaError, Producer, TopicPartition
from barnabas_raftlog.raft.messages import Entry
from sim.cluster.clients.client import WireClient
from sim.cluster.clients.own_clients import seeded_chance
from sim.cluster.machines.machine import Machine
from sim.cluster.scenario import Run, SimulationError, quiet
from sim.cluster.service import Service
from sim.cluster.stage import calm
from sim.cluster.world import MS, SECOND

from .model import Data, End, said_by
from .work import INPUT

__all__ = ["SHOWN", "judge_power_cuts", "run_power_cuts"]

COMPARED = "held against the log"
REPLACED = "event lost marker replaced"
SHOWN = ("records committed", "records aborted", "records unknown", "records lost", REPLACED, COMPARED)
STRIKES = {"records committed": 10, "records aborted": 5, "records lost": 10, REPLACED: 0.2, COMPARED: 3}
"""Of a run, on average. A tenth of the cuts must strike between data and marker."""

PARTITIONS = 2
WRITERS = 3
CUTS = 2
WORKING_US = (500 * MS, 1_500 * MS)
DOWN_US = (50 * MS, 1_500 * MS)
DECIDING_US = 60 * SECOND
READING_US = 60 * SECOND
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


class Writer:
    """Makes transactions under one transactional id, some of which it aborts. `fates`: of each, as it has been told."""

    def __init__(self, client: WireClient, name: str, fates: dict[str, str], sent: set[bytes]) -> None:
        self.client = client
        self.name = name
        self.fates = fates
        self.sent = sent
        self.is_done = False
        self._count = 0

    async def run(self, goes_on: Callable[[], bool]) -> None:
        servers = [f"{host}:{port}" for host, port in self.client.brokers.values()]
        while goes_on():
            with suppress(ClientError, KafkaError):
                async with Producer(
                    servers,
                    transactional_id=self.name,
                    transaction_timeout_s=3.0,
                    linger_s=0.0,
                    request_timeout_s=2.0,
                    delivery_timeout_s=5.0,
                    timeout_s=6.0,
                ) as producer:
                    while goes_on():
                        await self._transact(producer)
                        await self.client.pause(1, 60)
            await self.client.pause()
        self.is_done = True

    async def _transact(self, producer: Producer) -> None:
        rng = self.client.rng
        self._count += 1
        name = f"{self.name}/{self._count}"
        self.fates[name] = ABORTED
        is_commit = rng.random() < 0.6
        transaction = producer.transaction()
        await transaction.begin()
        for number in range(rng.randrange(1, 5)):
            value = f"{name}<{number}".encode()
            self.sent.add(value)
            sent = await producer.send(INPUT, value, partition=rng.randrange(PARTITIONS), timestamp_ms=1)
            assert sent is not None
        await producer.flush()
        if not is_commit:
            await transaction.abort()
            return
        self.fates[name] = UNKNOWN
        await transaction.commit()
        self.fates[name] = COMMITTED


class _Cluster:
    """The run, and what is asked of it."""

    def __init__(self, run: Run, seed: int) -> None:
        assert run.transactional is not None
        self.run = run
        self.world = run.world
        self.transactional = run.transactional
        self.rng = Random(f"{seed}/power cuts")
        self.fates = dict[str, str]()
        self.sent = set[bytes]()
        self.is_working = True
        self.writers = [Writer(run.client(), f"w{number}", self.fates, self.sent) for number in range(WRITERS)]

    def work(self) -> None:
        for writer in self.writers:
            writer.client.start(writer.run(lambda: self.is_working))
        for _ in range(CUTS):
            self.wait(self.rng.randrange(*WORKING_US))
            for machine in self.run.machines.values():
                machine.cut_power()
            self.wait(self.rng.randrange(*DOWN_US))
            for machine in self.run.machines.values():
                self.world.after(self.rng.randrange(1, 300 * MS), machine.boot)
            self.until(self._is_whole, "does not come back")
        self.wait(300 * MS)
        self.is_working = False
        self.until(lambda: all(writer.is_done for writer in self.writers), "clients do not end")
        self.until(lambda: self._is_whole() and not self.transactional._undecided(), "stays open for ever")
        assert not self.world.counts["event lost marker refused"], "an answer could not be carried out"

    def wait(self, us: int) -> None:
        self.world.run_until(self.world.now_us + us)

    def until(self, is_so: Callable[[], bool], complaint: str) -> None:
        reached = self.world.run_until(self.world.now_us + DECIDING_US, is_so)
        assert reached, f"{complaint}: {self.transactional._undecided()}"

    def _is_whole(self) -> bool:
        if any(machine.node is None or not machine.node.is_ready for machine in self.run.machines.values()):
            return False
        return all(self._leader(index) is not None for index in range(PARTITIONS))

    def _leader(self, index: int) -> Any:
        for machine in self.run.machines.values():
            hosted = machine.node and machine.node.partitions.topics.get(INPUT)
            partition = hosted and hosted.partitions.get(index)
            if partition and partition.can_serve:
                return partition
        return None

    def judge(self) -> None:
        every, committed = self._read(is_committed=False), self._read(is_committed=True)
        counts = self.world.counts
        for value in sorted(every):
            fate = self.fates[value.decode().partition("<")[0]]
            counts[f"records {fate}"] += 1
            assert fate != ABORTED or value not in committed, f"{value!r} was aborted, and is read"
            assert fate != COMMITTED or value in committed, f"{value!r} was committed, is there, and is not read"
        counts["records lost"] += len(self.sent - every)
        for index in range(PARTITIONS):
            for machine in self.run.machines.values():
                self._compare(machine, index)

    def _compare(self, machine: Machine, index: int) -> None:
        """Hold the table of a replica against what its log says."""
        assert machine.node is not None
        assert machine.loop is not None
        partition = machine.node.partitions.topics[INPUT].partitions[index]
        loop = machine.loop
        entries = list[Entry]()
        done = list[bool]()

        async def replay() -> None:
            entries.extend([entry async for entry in partition.log.replay(1)])
            done.append(True)

        loop.arrive(lambda: loop.create_task(replay()))
        self.until(lambda: bool(done), "a log is not read")
        if entries[0].index == 1:  # Else it begins with what a snapshot has said.
            compare(partition, entries)
            self.world.counts["held against the log"] += 1

    def _read(self, *, is_committed: bool) -> set[bytes]:
        """Return the values of all records that readers of one kind get."""
        client = self.run.client()
        found = set[bytes]()
        ends = {index: self._leader(index).readable_end(is_committed=is_committed) for index in range(PARTITIONS)}
        done = list[bool]()

        async def read() -> None:
            servers = [f"{host}:{port}" for host, port in client.brokers.values()]
            async with Consumer(
                servers, auto_offset_reset="earliest", read_committed=is_committed, fetch_max_wait_s=0.1
            ) as consumer:
                places = [TopicPartition(INPUT, index) for index in ends]
                await consumer.assign(places)
                while True:
                    for records in (await consumer.get_many(500, 0.3)).values():
                        found.update(record.value or b"" for record in records)
                    at = [await consumer.position(place) for place in places]
                    if all(one >= end for one, end in zip(at, ends.values(), strict=True)):
                        break
            done.append(True)

        client.start(read())
        self.until(lambda: bool(done), "readers do not come to the end")
        return found


def compare(partition: Any, entries: Sequence[Entry]) -> None:
    """Complain if the table of a replica is not that of these entries, which are all of its log."""
    table = TransactionTable()
    for entry in entries:
        said = said_by(entry)
        if isinstance(said, End):
            table.end(said.producer_id, entry.index, said.offset, said.is_commit)
        elif isinstance(said, Data) and said.is_transactional:
            table.begin(said.producer_id, said.epoch, entry.index, said.offset, 0)
    table.commit(entries[-1].index)
    found = partition.state.transactions
    for name, one, other in (
        ("open", _open_in(found), _open_in(table)),
        ("aborted", sorted(found.aborted.between(0, 1 << 62)), sorted(table.aborted.between(0, 1 << 62))),
    ):
        assert one == other, f"{partition}: {name} by its table: {one}, by its log: {other}"


def _open_in(table: TransactionTable) -> list[tuple[int, int, int]]:
    return sorted((one.producer_id, one.epoch, one.first_offset) for one in table.open_transactions())


def judge_power_cuts(runs: Sequence[Mapping[str, int]]) -> list[str]:
    """Say what has not struck often enough in these runs, by their counts."""
    sums = {name: sum(run.get(name, 0) for run in runs) for name in STRIKES}
    return [
        f"{name}: {sums[name]} in {len(runs)} seeds"
        for name, least in STRIKES.items()
        if sums[name] < least * len(runs)
    ]


def run_power_cuts(seed: int) -> Run:
    """Run one seed to its end. Raises `SimulationError`."""
    rng = Random(f"{seed}/cluster")
    service = Service(feeders=1, transaction_partitions=PARTITIONS)
    choice = calm()._replace(seed=seed, service=service, sync_us_max=rng.choice((500, 5_000, 50_000)))
    with quiet():
        run = Run(choice)
        try:
            with seeded_chance(run.world):
                for machine in run.machines.values():
                    machine.boot()
                assert run.transactional is not None
                run.transactional.prepare(3, {"flush.mode": "page-cache"}, 20 * SECOND)
                cluster = _Cluster(run, seed)
                cluster.work()
                cluster.judge()
        except Exception as error:  # whatever breaks a node
            how = f"repeat with: scripts/sim --power-cuts --seed {seed}"
            raise SimulationError(f"{run.describe(error)}, or rather\n{how}") from error
        finally:
            run.close()
        return run
