"""A witness that leads takes no part in transactions, and what it alone has held of one is not lost.

Data and `__transaction_state` have two replicas and a witness. The leader writes something that reaches the witness and
not the other replica, and dies; so the witness is elected, and is held there: nothing that it sends arrives. Whatever
it is asked, it refuses. When it can hand over, the other replica goes on with all that was committed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC, partition_for
from barnabas_clients import Producer
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas_raftlog.raft.state import Role
from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.header import TRANSACTIONAL
from sim.cluster.clients.own_clients import seeded_chance
from sim.cluster.judges.observer import observing
from sim.cluster.scenario import Run, quiet
from sim.cluster.service import Service
from sim.cluster.stage import Stage, calm
from sim.cluster.world import MS, SECOND, WALL_MS

from .inside import watching
from .telling import Telling
from .work import INPUT, OUTPUT

ID = "id"
HELD_US = 200 * MS


class Witnessed(Stage):
    """A cluster with transactions whose partitions have two replicas and a witness each."""

    @property
    def servers(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self.client.brokers.values()]

    def partition(self, node_id: int, topic: str, index: int) -> Any:
        node = self.run.machines[node_id].node
        assert node is not None
        return node.partitions.topics[topic].partitions[index]

    def roles(self, topic: str, index: int) -> tuple[int, int, int]:
        """Return who leads a partition, the other replica, and the witness."""
        placement = self.partition(1, topic, index).placement
        is_led = lambda: any(self.partition(one, topic, index).can_serve for one in placement.replicas)  # noqa: E731
        assert self.run.world.run_until(self.run.world.now_us + 20 * SECOND, is_led), "nobody leads"
        leader = next(one for one in placement.replicas if self.partition(one, topic, index).can_serve)
        (other,) = set(placement.replicas) - {leader}
        return leader, other, placement.witness

    def part(self, one: int, other: int) -> None:
        self.run.network.cut(f"n{one}", f"n{other}")
        self.run.network.cut(f"n{other}", f"n{one}")

    def elect_the_witness(self, topic: str, index: int, write: Callable[[], None]) -> int:
        """Let a witness lead alone what `write` appends, and be able to say nothing; return its node."""
        leader, other, witness = self.roles(topic, index)
        world = self.run.world
        self.part(leader, other)
        world.run_until(world.now_us + 50 * MS)
        write()
        group_id = self.partition(witness, topic, index).group.group_id
        elected = list[int]()
        on_elected = self.run.observer._on_elected

        def look(group: Any, core: Any) -> None:
            on_elected(group, core)
            if core.log.group == group_id and core.node_id == witness:
                elected.append(witness)
                self.run.network.cut(f"n{witness}", f"n{other}", udp=False)

        self.run.observer._on_elected = look  # type: ignore[method-assign]
        self.run.machines[leader].kill()
        assert world.run_until(world.now_us + 20 * SECOND, lambda: bool(elected)), "the witness is not elected"
        self.run.observer._on_elected = on_elected  # type: ignore[method-assign]
        world.run_until(world.now_us + HELD_US)
        partition = self.partition(witness, topic, index)
        assert partition.group.core.role is Role.LEADER
        assert partition.is_witness
        assert not partition.is_leader
        return witness

    def mend(self) -> None:
        self.run.network.mend()
        for machine in self.run.machines.values():
            machine.boot()


@contextmanager
def on_stage() -> Iterator[Witnessed]:
    service = Service(feeders=1, transaction_partitions=1)
    with quiet():
        run = Run(calm()._replace(replication_factor=2, service=service))
        assert run.transactional is not None
        try:
            with observing(run.observer), watching(run.transactional.watcher), seeded_chance(run.world):
                for machine in run.machines.values():
                    machine.boot()
                assert run.world.run_until(20 * SECOND, run._has_all_brokers)
                run.transactional.prepare(2, {}, 20 * SECOND)
                yield Witnessed(run, run.client())
        finally:
            run.close()


class Writer:
    """A producer in its transaction, that tells the run's ledger of it."""

    producer: Producer

    def __init__(self, stage: Witnessed) -> None:
        self._stage = stage

    async def begin(self, topic: str) -> None:
        """Have a transaction with one record."""
        transactional = self._stage.run.transactional
        assert transactional is not None
        servers = self._stage.servers
        # Made where a loop runs, whose chance it gets.
        self.producer = Producer(servers, transactional_id=ID, linger_s=0.0, request_timeout_s=2.0, timeout_s=30.0)
        self._telling = Telling(transactional.ledger, self.producer, "w")
        await self.producer.start()
        self._transaction = self._telling.transaction([])
        self._name, _ = await self._transaction.__aenter__()
        await self.write(topic)

    async def write(self, topic: str) -> None:
        await self._telling.send(self._name, (topic, 0))
        await self.producer.flush()

    async def commit(self) -> None:
        await self._transaction.__aexit__(None, None, None)


def transactional_batch(producer_id: int, epoch: int) -> bytearray:
    frame = build_batch(
        [NewRecord(None, b"v", WALL_MS)], producer_id=producer_id, producer_epoch=epoch, base_sequence=0
    )
    write_header(
        frame,
        attributes=TRANSACTIONAL,
        record_count=1,
        base_timestamp=WALL_MS,
        max_timestamp=WALL_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
    )
    return frame


def test_a_witness_that_leads_data_takes_no_batch_and_no_marker() -> None:
    with on_stage() as stage:
        writer = Writer(stage)
        stage.do(writer.begin(INPUT))
        witness = stage.elect_the_witness(INPUT, 0, lambda: stage.do(writer.write(INPUT)))
        log = stage.partition(witness, INPUT, 0).log
        last_index = log.last_index

        async def ask() -> tuple[int, int, int]:
            client = stage.client
            await client.refresh(INPUT)
            batch = PartitionProduceData(index=0, records=transactional_batch(7, 0))
            data = TopicProduceData(name=INPUT, topic_id=client.topic_ids[INPUT], partition_data=[batch])
            produced = await client.ask(
                witness, ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1_000, topic_data=[data])
            )
            topics = [WritableTxnMarkerTopic(name=INPUT, partition_indexes=[0])]
            marker = WritableTxnMarker(producer_id=7, producer_epoch=1, transaction_result=True, topics=topics)
            written = await client.ask(witness, WriteTxnMarkersRequest(markers=[marker]))
            hosted = stage.partition(witness, INPUT, 0)
            return (
                produced.responses[0].partition_responses[0].error_code,
                written.markers[0].topics[0].partitions[0].error_code,
                hosted.group.core.role is Role.LEADER and hosted.log.last_index,
            )

        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.do(ask()) == (refused, refused, last_index)
        stage.mend()

        stage.do(writer.commit())
        assert stage.run.transactional is not None
        (reader, _) = stage.run.transactional.read()
        world = stage.run.world
        assert world.run_until(world.now_us + 20 * SECOND, lambda: len(reader.found) == 2), reader.found
        assert [value.rpartition(b"-")[2] for value in reader.found.values()] == [b"0", b"1"]
        assert world.counts["witness led"] >= 1


def test_a_witness_that_leads_the_coordinators_log_loads_no_coordinator_and_answers_no_verification() -> None:
    with on_stage() as stage:
        writer = Writer(stage)
        stage.do(writer.begin(OUTPUT))
        index = partition_for(ID, 2)
        world = stage.run.world

        witness = stage.elect_the_witness(TRANSACTION_TOPIC, index, lambda: stage.do(writer.commit()))
        node = stage.run.machines[witness].node
        assert node is not None
        conversation = writer.producer._conversation
        assert conversation is not None
        owner = conversation.machine.owner

        async def ask() -> list[int]:
            client = stage.client
            who: dict[str, Any] = {
                "transactional_id": ID,
                "producer_id": owner.producer_id,
                "producer_epoch": owner.epoch,
            }
            named = [AddPartitionsToTxnTopic(name=OUTPUT, partitions=[0])]
            adding = AddPartitionsToTxnTransaction(**who, verify_only=True, topics=named)
            verified = await node.broker.transactions.add_partitions(AddPartitionsToTxnRequest(transactions=[adding]))
            (result,) = verified.results_by_transaction
            begun = await client.ask(witness, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=3_000))
            ended = await client.ask(witness, EndTxnRequest(**who, committed=True))
            code = result.topic_results[0].results_by_partition[0].partition_error_code
            return [code, begun.error_code, ended.error_code]

        assert stage.do(ask()) == [ErrorCode.NOT_COORDINATOR] * 3
        shards = node.broker.transactions.active_shards()
        assert index not in {shard.runtime.partition.index for shard in shards}
        assert stage.partition(witness, TRANSACTION_TOPIC, index).group.core.role is Role.LEADER
        stage.mend()
        assert stage.run.transactional is not None
        (_, reader) = stage.run.transactional.read()
        assert world.run_until(world.now_us + 30 * SECOND, lambda: bool(reader.found)), "the commit is lost"
        assert len(reader.found) == 1
        assert world.counts["witness led"] >= 1
