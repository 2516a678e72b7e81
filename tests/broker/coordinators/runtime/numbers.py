"""The smallest coordinator: numbers by name, in the partitions of an internal topic."""

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from broker.coordinators.runtime.replica_world import WALL_MS, ReplicaWorld

from barnabas_broker.coordinators.runtime.contracts import Done, KeyAndValue, RecordOf, Steps, Writer, writer_of
from barnabas_broker.coordinators.runtime.coordinator import CoordinatorRuntime
from barnabas_broker.coordinators.runtime.shard import ShardRuntime, ShardState
from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.rounds import Rounds
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import NewTopic
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import CONTROL, BatchHeader, parse_header
from barnabas_raftlog.records.markers import EndMarker
from barnabas_raftlog.records.reader import Record, read_batch

__all__ = ["LOOK_MS", "TICK_MS", "Name", "NumberShard", "NumberTable", "NumberWorld"]

TOPIC = "__numbers"
OVERHEAD_BYTES = 10
TICK_MS = 1_000
LOOK_MS = 60_000


class Name(NamedTuple):
    """The owner of a number, and its name there."""

    owner: str
    name: str = ""


def record_of(name: Name, number: int | None) -> KeyAndValue:
    return "/".join(name).encode(), None if number is None else str(number).encode()


def meaning_of(record: Record) -> tuple[Name, int | None]:
    assert record.key is not None
    return Name(*bytes(record.key).decode().split("/")), None if record.value is None else int(record.value)


class NumberTable:
    """Numbers by name (Table). Yields at every occasion.

    It knows no transactions: `heard` is what the runtime has told of them, producers and markers.
    """

    first_open_offset: int | None = None

    def __init__(self) -> None:
        self.numbers: dict[Name, int] = {}
        self.heard: list[Writer | EndMarker] = []

    @property
    def live_bytes(self) -> int:
        return sum(map(self.size_of, self.numbers))

    def put(self, name: Name, number: int | None) -> None:
        self.numbers.pop(name, None)
        if number is not None:
            self.numbers[name] = number

    def take(self, header: BatchHeader, records: Iterable[Record]) -> Steps:
        writer = writer_of(header)
        if writer is not None:
            self.heard.append(writer)
        for record in records:
            self.put(*meaning_of(record))
            yield

    def take_marker(self, marker: EndMarker) -> Steps:
        self.heard.append(marker)
        yield

    def names_in_steps(self) -> Generator[None, None, list[Name]]:
        names = list(self.numbers)
        yield
        return names

    def size_of(self, name: Name) -> int:
        key, value = record_of(name, self.numbers.get(name))
        return OVERHEAD_BYTES + len(key) + len(value or b"")

    def prepare_in_steps(self, names: Iterable[Name]) -> Generator[None, None, RecordOf[Name]]:
        for _ in names:
            yield
        return lambda name: record_of(name, self.numbers[name]) if name in self.numbers else None


class NumberShard:
    """Sets numbers, and lets others wait for a word (CoordinatorShard).

    `life` is what the runtime has called, in its order. `parked` are told when the shard ends. A deadline counts
    `ticks`, one a second while the shard is certain to lead.
    """

    loaded_summary = unloaded_summary = "numbers"

    def __init__(self, runtime: ShardRuntime[NumberTable, "NumberShard"], room: dict[str, int]) -> None:
        self.runtime = runtime
        self.room = room
        self.table = NumberTable()
        self.life: list[str] = []
        self.parked: list[Done] = []
        self.ticks = 0
        self._deadline: Deadline[Callable[[], None]] | None = None
        self._counted = 0

    def get(self, name: Name) -> int | None:
        return self.table.numbers.get(name)

    def set(
        self, numbers: Mapping[Name, int | None], done: Done | None = None, *, writer: Writer | None = None
    ) -> ErrorCode:
        """Append these in one batch; None deletes."""
        return self.runtime.append(
            [record_of(name, number) for name, number in numbers.items()],
            list(numbers),
            partial(self._put, numbers),
            done,
            writer=writer,
        )

    def _put(self, numbers: Mapping[Name, int | None]) -> None:
        for name, number in numbers.items():
            self.table.put(name, number)

    def build_in_steps(self, table: NumberTable) -> Steps:
        self.life.append("build")
        self.table = table
        yield

    def begin_in_steps(self) -> Steps:
        self.life.append("begin")
        self._arm()
        yield

    def recover_in_steps(self) -> Steps:
        self.life.append("recover")
        self._arm()
        yield

    def end_in_steps(self, error: ErrorCode, *, was_active: bool) -> Steps:
        self.life.append("end" if was_active else "end without having served")
        if self._deadline is not None:
            self.runtime.host.timers.cancel(self._deadline)
        for done in self.parked:
            yield
            done(error)

    def is_ending(self, name: Name) -> bool:
        return False

    def settle_account(self) -> None:
        is_active = self.runtime.state is ShardState.ACTIVE
        held = len(self.table.numbers) + self.runtime.under_way.count if is_active else 0
        self.room["held"] += held - self._counted
        self._counted = held

    def _arm(self) -> None:
        self._deadline = self.runtime.host.timers.add(TICK_MS, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.runtime.is_certain:
            self.ticks += 1
            self._arm()
        else:
            self.runtime.recover()


class NumberWorld(ReplicaWorld[Name, int, NumberShard]):
    """See `ReplicaWorld`. `events` is what was told to an operator, `looks` how often upkeep has looked."""

    def __init__(self, metadata: Any = None) -> None:
        super().__init__(TOPIC)
        self.room = {"held": 0}
        self.events: list[tuple[str, str, str]] = []
        self.looks = 0
        host = ShardHost(
            self.timers, self.clocks, lambda *event: self.events.append(event), self.failures.append, LoopMeter()
        )
        self.observe(
            CoordinatorRuntime(
                host,
                metadata,
                self.partitions,
                NewTopic(TOPIC, 1, 3),
                make_table=NumberTable,
                make_shard=lambda runtime: NumberShard(runtime, self.room),
                upkeep=Rounds(self.timers, host.spawn, LOOK_MS, self._look),
            )
        )

    async def _look(self) -> None:
        self.looks += 1

    async def close_coordinator(self) -> None:
        self.runtime.close()
        await self.runtime.host.close()

    def said_in(self, entry: Entry) -> dict[Name, int | None]:
        frame = memoryview(entry.frame)
        header = parse_header(frame)
        is_said = not (header.is_raft_control or header.attributes & CONTROL)
        return dict(map(meaning_of, read_batch(header, frame))) if is_said else {}

    def frame_of(self, said: Mapping[Name, int | None]) -> bytes:
        return bytes(build_batch(NewRecord(*record_of(*one), WALL_MS) for one in said.items()))

    def known_to(self, table: NumberTable) -> Mapping[Name, int]:
        return table.numbers

    def check(self) -> None:
        super().check()
        shard = self.shard
        held = 0 if shard is None else len(self.truth()) + shard.runtime.under_way.count
        assert self.room["held"] == held
