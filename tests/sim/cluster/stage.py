"""Three brokers in virtual time for a scenario that a test tells step by step."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_raftlog.records.builder import NewRecord, build_batch
from sim.cluster.clients.admin import create_topic
from sim.cluster.clients.client import Trouble, WireClient
from sim.cluster.clients.workload import TIMESTAMP_MS
from sim.cluster.judges.observer import observing
from sim.cluster.machines.machine import Machine

from .scenario import TOPIC, Run, quiet
from .swarm import Choice, at_ease
from .world import SECOND

__all__ = ["Answer", "Stage", "calm", "on_stage"]

T = TypeVar("T")


class Answer(NamedTuple):
    """A broker's answer to one batch; `error_code` None: nothing."""

    error_code: int | None
    offset: int = -1


def calm() -> Choice:
    """Return three brokers, one partition on all of them, nobody at work and no fault."""
    return at_ease()._replace(
        nodes=3,
        replication_factor=3,
        partitions=1,
        members=0,
        flush_mode="fsync",
        drift=(1.0,) * 3,
        idempotent_producers=0,
        plain_producers=0,
        deletes=False,
        topics_come_and_go=False,
        moves=False,
        kinds=(),
        faults=(),
    )


class Stage:
    """A cluster with a topic of one partition, and a client."""

    def __init__(self, run: Run, client: WireClient) -> None:
        self.run = run
        self.client = client

    @property
    def leader_id(self) -> int:
        """The leader of the partition; 0 if nobody leads."""
        return next((node_id for node_id, machine in self.run.machines.items() if self.leads(machine)), 0)

    @property
    def followers(self) -> list[Machine]:
        leader_id = self.leader_id
        return [machine for node_id, machine in self.run.machines.items() if node_id != leader_id]

    def leads(self, machine: Machine) -> bool:
        hosted = None if machine.node is None else machine.node.partitions.topics.get(TOPIC)
        return hosted is not None and any(p.group.is_leader and p.can_serve for p in hosted.partitions.values())

    def partition_of(self, node_id: int) -> Any:
        node = self.run.machines[node_id].node
        assert node is not None
        return node.partitions.topics[TOPIC].partitions[0]

    def do(self, work: Coroutine[Any, Any, T], within_us: int = 60 * SECOND) -> T:
        """Let virtual time pass until `work` is done, and return its result."""
        done = list[T]()

        async def note() -> None:
            done.append(await work)

        self.client.start(note())
        assert self.run.world.run_until(self.run.world.now_us + within_us, lambda: bool(done)), "never done"
        return done[0]

    def until_led(self) -> None:
        world = self.run.world
        assert world.run_until(world.now_us + 60 * SECOND, lambda: self.leader_id != 0), "nobody leads"

    def wait(self, us: int) -> None:
        self.run.world.run_until(self.run.world.now_us + us)

    def cut_followers_off(self) -> None:
        """Let nothing pass between the leader and the others."""
        leader = f"n{self.leader_id}"
        for machine in self.followers:
            self.run.network.cut(leader, machine.name)
            self.run.network.cut(machine.name, leader)

    async def produce(self, node_id: int, *, sequence: int = -1, timeout_ms: int = 1_000) -> Answer:
        """Send one record with acks=all to this broker; with a sequence, as idempotent producer 77."""
        is_idempotent = sequence >= 0
        frame = build_batch(
            [NewRecord(None, b"value", TIMESTAMP_MS)],
            producer_id=77 if is_idempotent else -1,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=sequence,
        )
        if TOPIC not in self.client.topic_ids:
            await self.client.leader_of(TOPIC, 0)
        batch = PartitionProduceData(index=0, records=frame)
        data = TopicProduceData(name=TOPIC, topic_id=self.client.topic_ids[TOPIC], partition_data=[batch])
        try:
            answer = await self.client.ask(node_id, ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data]))
        except Trouble:
            return Answer(None)
        outcome = answer.responses[0].partition_responses[0]
        return Answer(outcome.error_code, outcome.base_offset)


@contextmanager
def on_stage(**configs: str) -> Iterator[Stage]:
    """Start the cluster, create the topic with these configurations (dots as underscores), and end it all."""
    with quiet():
        run = Run(calm())
        try:
            with observing(run.observer):
                for machine in run.machines.values():
                    machine.boot()
                stage = Stage(run, run.client())
                settings = {name.replace("_", "."): value for name, value in configs.items()}
                stage.do(create_topic(stage.client, TOPIC, 1, 3, settings))
                stage.until_led()
                yield stage
        finally:
            run.close()
