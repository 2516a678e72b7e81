"""Builds one replica of a partition of `__transaction_state` under the real coordinator of transactions.

Markers go to a double that keeps what it was given until the test says that a partition has it (`Markers`). Everything
that the coordinator believes is compared with what the log says (`check`); how the world turns is
`broker.coordinators.runtime.replica_world`'s.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

from broker.coordinators.runtime.replica_world import NODE, WALL_MS, ReplicaWorld

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas_broker.coordinators.transactions.hosted_transaction import Ask
from barnabas_broker.coordinators.transactions.room import bytes_of
from barnabas_broker.coordinators.transactions.shard import LONG_PLACES, TransactionShard
from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC
from barnabas_broker.coordinators.transactions.state_machine.messages import (
    V2,
    Answer,
    EndRequest,
    InitRequest,
    Markers,
    SavedTransaction,
)
from barnabas_broker.coordinators.transactions.state_machine.producers import LAST_EPOCH, NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.table import (
    RECORD_OVERHEAD_BYTES,
    TransactionalIdTable,
    TransactionName,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import ProducerIdBlock
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import CONTROL, parse_header
from barnabas_raftlog.records.reader import read_batch

__all__ = ["TIMEOUT_MS", "Heard", "SentMarkers", "World"]

TIMEOUT_MS = 60_000
PARTITIONS = 4_100  # of the topic `t`
SETTINGS: dict[str, str | int | bool] = {
    "node.id": NODE,
    "cluster.id": "c",
    "log.dir": "/d",
    "cluster.nodes": "1@a:1",
    "transactional.id.expiration.ms": 3_600_000,
}
Known = dict[TransactionName, SavedTransaction]
T = TypeVar("T")


class Heard:
    """What somebody was told, once; `on_told` is called then."""

    ask: Ask

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.on_told: Callable[[], object] = lambda: None

    def __call__(self, answer: Answer) -> None:
        assert self.answer is None, "told twice"
        self.answer = answer
        self.on_told()

    @property
    def is_told(self) -> bool:
        return self.answer is not None

    @property
    def code(self) -> ErrorCode | None:
        return None if self.answer is None else self.answer.code

    @property
    def producer(self) -> Producer:
        """The producer that was given."""
        assert self.answer is not None
        assert self.answer.code == ErrorCode.NONE, self.answer
        return self.answer.producer


class Sent(NamedTuple):
    """Markers that a coordinator has given away, in its term."""

    partition: int
    term: int
    markers: Markers


class SentMarkers:
    """The sender of markers (SendsMarkers): `owed` has what was given and not taken back, by transactional id."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.owed: dict[str, Sent] = {}
        self.count = 0

    def send(self, shard_partition: int, coordinator_epoch: int, transactional_id: str, markers: Markers) -> None:
        saved = self.world.truth().get(TransactionName(transactional_id))
        assert saved is not None
        assert saved.markers == markers, "it is not what has committed"
        assert coordinator_epoch == self.world.raft.term
        assert shard_partition == 0
        self.count += 1
        self.owed[transactional_id] = Sent(shard_partition, coordinator_epoch, markers)

    def forget(self, shard_partition: int) -> None:
        self.owed = {name: sent for name, sent in self.owed.items() if sent.partition != shard_partition}

    def status(self) -> dict[str, Any]:
        return {}

    def close(self) -> None: ...


class World(ReplicaWorld[TransactionName, SavedTransaction, TransactionShard]):
    """See the module. `give_block` answers for the controller who is asked for producer ids, if it is set."""

    def __init__(self, settings: Mapping[str, str | int | bool] | None = None) -> None:
        super().__init__(TRANSACTION_TOPIC)
        self.features = {"transaction.version": V2}
        self.markers = SentMarkers(self)
        self.next_block = 1_000
        self.give_block: Callable[[], Awaitable[ProducerIdBlock]] | None = None
        self.partitions.topics["t"] = SimpleNamespace(
            topic=SimpleNamespace(name="t", partitions=range(PARTITIONS)),
            partitions={},
            settings=SimpleNamespace(flush_mode="fsync"),
        )
        host = ShardHost(self.timers, self.clocks, lambda *_: None, self.failures.append, LoopMeter())
        self.producer_ids = ProducerIds(self._block, host.spawn)
        self.coordinator = TransactionCoordinator(
            BrokerConfig.from_settings({**SETTINGS, **(settings or {})}),
            cast("Any", SimpleNamespace(image=SimpleNamespace(features=self.features))),
            self.partitions,
            host,
            self.producer_ids,
            lambda _: self.markers,
        )
        self.observe(self.coordinator.runtime)

    async def _block(self, _: float) -> ProducerIdBlock:
        if self.give_block is not None:
            return await self.give_block()
        self.next_block += 1_000
        return ProducerIdBlock(first=self.next_block, count=1_000)

    async def close_coordinator(self) -> None:
        await self.coordinator.close()

    # What the log says.

    def said_in(self, entry: Entry) -> Mapping[TransactionName, SavedTransaction | None]:
        frame = memoryview(entry.frame)
        header = parse_header(frame)
        if header.is_raft_control or header.attributes & CONTROL:
            return {}
        said: dict[TransactionName, SavedTransaction | None] = {}
        for record in read_batch(header, frame):
            transactional_id = decode_key(bytes(record.key or b""))
            assert transactional_id is not None
            said[TransactionName(transactional_id)] = None if record.value is None else decode_value(record.value)
        return said

    def frame_of(self, said: Mapping[TransactionName, SavedTransaction | None]) -> bytes:
        records = [
            NewRecord(encode_key(name.transactional_id), None if saved is None else encode_value(saved), WALL_MS)
            for name, saved in said.items()
        ]
        return bytes(build_batch(records))

    def known_to(self, table: TransactionalIdTable) -> Known:
        """Return what a table knows, as the log has it; its sums must be right."""
        assert table.live_bytes == sum(size_bytes for _, size_bytes in table.saved.values())
        for transactional_id, (saved, size_bytes) in table.saved.items():
            assert size_bytes == size_of(transactional_id, saved) + RECORD_OVERHEAD_BYTES
        return {TransactionName(name): as_logged(saved) for name, (saved, _) in table.saved.items()}

    def saved(self, transactional_id: str = "a") -> SavedTransaction | None:
        """Return what has committed of an id."""
        return self.truth().get(TransactionName(transactional_id))

    def state(self, transactional_id: str = "a") -> TransactionState:
        saved = self.saved(transactional_id)
        return TransactionState.DEAD if saved is None else saved.state

    # Requests to the present coordinator.

    def initialize(
        self,
        transactional_id: str = "a",
        producer: Producer = NOBODY,
        *,
        timeout_ms: int = TIMEOUT_MS,
        enables_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> Heard:
        request = InitRequest(timeout_ms, producer, enables_two_phase, keeps_prepared)
        return self._ask(lambda shard, heard: shard.initialize(transactional_id, request, heard))

    def add(
        self,
        producer: Producer,
        *places: int,
        transactional_id: str = "a",
        version: int = V2,
        topic: str = "t",
    ) -> Heard:
        named = [(topic, index) for index in places]
        return self._ask(lambda shard, heard: shard.add(transactional_id, producer, named, version, heard))

    def end(self, producer: Producer, *, commit: bool = True, transactional_id: str = "a", version: int = V2) -> Heard:
        request = EndRequest(producer, is_commit=commit, version=version)
        return self._ask(lambda shard, heard: shard.end(transactional_id, request, heard))

    def _ask(self, begin: Callable[[TransactionShard, Heard], Ask]) -> Heard:
        shard = self.shard
        assert shard is not None
        heard = Heard()
        with self.step():
            heard.ask = begin(shard, heard)
        return heard

    def given(self, transactional_id: str = "a", producer: Producer = NOBODY) -> Producer:
        """Initialize, and have everything that takes committed and written."""
        heard = self.initialize(transactional_id, producer)
        self.breathe(3)
        for _ in range(4):
            self.commit()
            self.write_all()
        return heard.producer

    def opened(self, *places: int, transactional_id: str = "a", version: int = V2) -> Producer:
        """Have a producer with an open transaction of these partitions."""
        producer = self.given(transactional_id)
        heard = self.add(producer, *places, transactional_id=transactional_id, version=version)
        self.commit()
        assert heard.code == ErrorCode.NONE
        return producer

    def exhausted(self, *places: int, epoch: int = LAST_EPOCH) -> Producer:
        """Have an open transaction of a producer at its last epoch, as if so many had gone before."""
        self.opened(*places)
        saved = self.saved()
        assert saved is not None
        producer = saved.producer._replace(epoch=epoch)
        self.lose()
        self.follow([{TransactionName("a"): saved._replace(producer=producer)}])
        self.lead()
        return producer

    def run(self, coroutine: Awaitable[T], act: Callable[[], object] = lambda: None) -> T:
        """Return what a coroutine returns; `act` is done once it waits."""

        async def wait() -> T:
            return await coroutine

        task = self.loop.create_task(wait())
        self.breathe(5)
        act()
        self.breathe(5)
        assert task.done(), "it waits yet"
        return task.result()

    # Markers.

    def write(self, place: int, transactional_id: str = "a", *, topic: str = "t") -> None:
        """A partition has its marker."""
        sent = self.markers.owed[transactional_id]
        with self.step():
            self.coordinator.written(transactional_id, sent.markers.producer, (topic, place))

    def write_all(self, transactional_id: str | None = None) -> None:
        """Every marker is written that was sent."""
        for name, sent in list(self.markers.owed.items()):
            if transactional_id in {None, name}:
                del self.markers.owed[name]
                for place in sorted(sent.markers.places):
                    with self.step():
                        self.coordinator.written(name, sent.markers.producer, place)

    def finish(self) -> None:
        """Let everything that is under way come to its end."""
        for _ in range(5):
            self.breathe()
            self.commit()
            self.write_all()
        self.commit()

    def abort_round(self) -> None:
        """Have one look for transactions that have timed out."""
        with self.step():
            self.coordinator.host.spawn(self.coordinator.expiry.abort_round())
        self.breathe(5)

    def expire_round(self) -> None:
        """Have one look for ids that have expired."""
        with self.step():
            self.coordinator.host.spawn(self.coordinator.expiry.expire_round())
        self.breathe(5)

    # Invariants.

    def check(self) -> None:
        super().check()
        self.check_account()
        shard = self.shard
        if shard is None:
            assert not self.markers.owed, "another coordinator sends them"
            return
        truth = self.truth()
        is_applied = shard.runtime.standby.applied_index == len(self.history)
        for transactional_id, hosted in shard.ids.items():
            transaction = hosted.transaction
            assert transaction.transactional_id == transactional_id
            is_under_way = TransactionName(transactional_id) in shard.runtime.under_way
            pending = None if transaction.pending is None else transaction.pending.saved
            is_long = pending is not None and len(pending.places) > LONG_PLACES
            assert (transaction.pending is not None) == is_under_way or is_long
            if is_applied and transaction.saved is not None:
                assert as_logged(transaction.saved) == truth[TransactionName(transactional_id)]
            is_idle = transaction.saved is None or transaction.saved.state.is_idle
            assert (shard.open.get(transactional_id) is hosted) == (not is_idle)
            self.check_looked_after(shard, transactional_id)
        assert shard.open.keys() <= shard.ids.keys()
        if is_applied:
            assert {name.transactional_id for name in truth} <= shard.ids.keys()

    def check_looked_after(self, shard: TransactionShard, transactional_id: str) -> None:
        """Somebody sees to it that an id goes on."""
        hosted = shard.ids[transactional_id]
        if hosted.is_noted or hosted.transaction.pending is not None or transactional_id in shard._refused:
            return
        assert hosted.ask is None
        if hosted.transaction.state.is_prepared:
            unmarked = hosted.transaction.unmarked
            assert unmarked, "it is complete, and nobody says so"
            assert hosted.is_sent
            assert self.markers.owed[transactional_id].markers.places >= unmarked
        else:
            assert all(ask.is_over for ask in hosted.parked), "they wait for nothing"

    def check_account(self) -> None:
        """The coordinator's account is what counting anew finds."""
        held_bytes = 0
        shard = self.shard
        if shard is not None:
            for transactional_id, hosted in shard.ids.items():
                transaction = hosted.transaction
                pending = None if transaction.pending is None else transaction.pending.saved
                known = [saved for saved in (transaction.saved, pending) if saved is not None]
                places = max((len(saved.places) for saved in known), default=0)
                if known:
                    assert hosted.held_bytes >= bytes_of(size_of(transactional_id, known[-1]), places)
                    held_bytes += hosted.held_bytes
        assert self.coordinator.room.held_bytes == held_bytes


def size_of(transactional_id: str, saved: SavedTransaction) -> int:
    """Return how long the record is, key and value."""
    return len(encode_key(transactional_id)) + len(encode_value(saved))


def as_logged(saved: SavedTransaction) -> SavedTransaction:
    """Return a state as whoever reads the log has it: not all that its coordinator knows is in it."""
    return decode_value(encode_value(saved))
