"""One replica of an offsets partition with the real coordinator on it; a test plays the rest.

Nothing happens by itself: the test says when something commits, when tasks take a step (`breathe`), when time passes
(`advance`), who leads. The loop is the current one while a step runs, and does not turn: what a step makes ready
waits for the next `breathe`, so any other step may come between two steps of a task.

`history` is what was ever committed, entry for entry, also what the log has dropped; `fold` says what that means,
naively. Everything that the coordinator believes is compared with it (`check`).
"""

import asyncio
from asyncio import events
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

from broker.coordinators.state_machine.recount import recount

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.groups.state_machine.messages import (
    Answer,
    JoinAnswer,
    JoinRequest,
    SavedGroup,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.state_machine.offsets import record_of, size_of
from barnabas_broker.coordinators.groups.state_machine.records import (
    CommittedOffset,
    GroupKey,
    Name,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
)
from barnabas_broker.coordinators.groups.state_machine.room import OFFSET_BYTES
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.coordinators.groups.table import GroupTable
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.coordinators.runtime.standby import Standby
from barnabas_broker.partition.contracts import PendingAppend
from barnabas_broker.partition.log_starts import encode_start
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.producer_state import ProducerTable
from barnabas_broker.status.events import EventHistory
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import ControlKind, control_frame, parse_header, stamp
from barnabas_raftlog.records.reader import read_batch

NODE, OTHERS = 1, (2, 3)
WALL_MS = 1_000_000
SETTINGS: dict[str, str | int] = {
    "node.id": NODE,
    "cluster.id": "c",
    "log.dir": "/d",
    "cluster.nodes": "1@a:1",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "offsets.retention.minutes": 1,
}
Value = CommittedOffset | SavedGroup
Said = dict[Name, Value | None]


class Log:
    """Entries in a list; what lies before a start that was committed is gone at once, to the last entry."""

    durable_index = property(lambda self: self.last_index)
    has_segments_before = staticmethod(lambda offset: False)
    save_state = staticmethod(lambda index, blob: None)

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first_index, self.last_index, self.log_start_offset, self.size_bytes = 1, 0, 0, 0

    @property
    def log_end_offset(self) -> int:
        return self.offset_after(self.last_index)

    def offset_after(self, index: int) -> int:
        if index < self.first_index:
            return self.log_start_offset
        return parse_header(self.entries[index - self.first_index].frame).end_offset

    def term_at(self, index: int) -> int | None:
        return self.entries[index - self.first_index].term if self.first_index <= index <= self.last_index else None

    def put(self, term: int, frame: Buffer) -> Entry:
        entry = Entry(self.last_index + 1, term, frame)
        self.last_index += 1
        self.entries.append(entry)
        return entry

    def put_batch(self, term: int, frame: bytearray) -> Entry:
        stamp(frame, self.log_end_offset, term)
        return self.put(term, frame)

    def put_control(self, term: int, kind: ControlKind, body: bytes = b"") -> Entry:
        return self.put(term, control_frame(self.log_end_offset, term, kind, body))

    async def replay(self, from_index: int) -> AsyncIterator[Entry]:
        index = from_index
        while (index := max(index, self.first_index)) <= self.last_index:
            yield self.entries[index - self.first_index]
            index += 1

    def drop_before(self, offset: int, committed_index: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        while self.first_index < committed_index and self.offset_after(self.first_index) <= offset:
            del self.entries[0]
            self.first_index += 1

    def truncate_from(self, index: int) -> None:
        del self.entries[index - self.first_index :]
        self.last_index = index - 1


def truth_of(entries: Iterable[Entry]) -> dict[Name, Value]:
    """Return what these entries, all of a log, say."""
    found: dict[Name, Value] = {}
    for entry in entries:
        for name, value in said_in(entry).items():
            found.pop(name, None)
            if value is not None:
                found[name] = value
    return found


def said_in(entry: Entry) -> Said:
    """Return what the records of one entry say."""
    frame = memoryview(entry.frame)
    header = parse_header(frame)
    if header.is_raft_control:
        return {}
    said: Said = {}
    for record in read_batch(header, frame):
        name = decode_key(bytes(record.key or b""))
        assert name is not None
        if record.value is None:
            said[name] = None
        else:
            said[name] = decode_offset(record.value) if isinstance(name, OffsetKey) else decode_group(record.value)
    return said


def known_to(table: GroupTable) -> dict[Name, Value]:
    """Return what a table knows; its sums must be right."""
    found: dict[Name, Value] = {key: value for key in table.offsets.keys() if (value := table.offsets.get(key))}  # noqa: SIM118
    for group_id, (saved, size_bytes) in table.saved.items():
        found[GroupKey(group_id)] = saved
        assert size_bytes == len(encode_group_key(group_id)) + len(encode_group(saved))
    assert table.group_bytes == sum(size_bytes for _, size_bytes in table.saved.values())
    return found


class ManualTimers(Timers):
    """Fires when the test moves the clock, not when the loop's does."""

    def _arm(self) -> None: ...


class RaftGroup:
    """What a partition sees of its Raft group (`Group`)."""

    def __init__(self, log: Log) -> None:
        self.log, self.term, self.leads, self.confirmed = log, 0, False, False
        self.failed, self.is_witness = None, False
        self.configuration = configuration_of(frozenset((NODE, *OTHERS)))
        self.core = SimpleNamespace(
            transfer_target=None,
            progress={
                peer: SimpleNamespace(match_index=0, live=True, lacks_something=False, is_in_sync=lambda *_: True)
                for peer in OTHERS
            },
        )
        self.confirmations: list[asyncio.Future[None]] = []

    def check_may_propose(self) -> None:
        if not self.leads:
            raise NotLeaderError(None)

    def propose(self, frame: bytearray) -> Entry:
        self.check_may_propose()
        return self.log.put_batch(self.term, frame)

    def propose_control(self, kind: ControlKind, body: bytes = b"") -> Entry:
        self.check_may_propose()
        return self.log.put_control(self.term, kind, body)

    async def confirm(self) -> None:
        self.check_may_propose()
        if self.confirmed:
            return
        future = asyncio.get_running_loop().create_future()
        self.confirmations.append(future)
        await future


class PartitionHost:
    """What a partition asks of its broker."""

    node_id = NODE
    wake = gained = review_soon = announce = learn = staticmethod(lambda *_: None)
    is_live = staticmethod(lambda _: True)

    def finish(self, waiters: Sequence[PendingAppend]) -> None:
        for waiter in waiters:
            waiter.on_committed()

    def fail(self, waiters: Sequence[PendingAppend], code: ErrorCode) -> None:
        for waiter in waiters:
            waiter.on_failed(code)

    def __init__(self, world: "World") -> None:
        self.now_ms, self.wall_ms = lambda: world.now_ms, world.wall_ms


class World:
    """See the module. `now_ms` and `wall_ms()` run together."""

    def __init__(self, settings: Mapping[str, str | int] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_ms = 0
        self.history: list[Entry] = []
        self.failures: list[BaseException] = []
        self.log = Log()
        self.raft = RaftGroup(self.log)
        config = BrokerConfig.from_settings({**SETTINGS, **(settings or {})})
        self.topic = Topic(bytes([9] * 16), OFFSETS_TOPIC, (PartitionPlacement((NODE, *OTHERS)),), {})
        self.topic_ids: dict[bytes, object] = {}
        self.partition = Partition(
            cast("Any", PartitionHost(self)),
            self.topic,
            0,
            cast("Any", self.log),
            ProducerTable(),
            min_insync=1,
            message_bytes_max=1 << 20,
            lag_ms_max=1_000,
            expiration_ms=1_000,
        )
        self.partition.group = cast("Any", self.raft)
        self.timers = ManualTimers(lambda: self.now_ms)
        partitions = SimpleNamespace(
            observers={}, topics={OFFSETS_TOPIC: SimpleNamespace(topic=self.topic, partitions={0: self.partition})}
        )
        self.coordinator = GroupCoordinator(
            config,
            cast("Any", SimpleNamespace(image=SimpleNamespace(topics=self.topic_ids))),
            cast("Any", partitions),
            EventHistory(self.wall_ms),
            self.timers,
            Clocks(lambda: self.now_ms, self.wall_ms),
            self.failures.append,
        )
        self.observer = self.coordinator.runtime.attach(self.partition)
        self.partition.observer = self.observer

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    @contextmanager
    def step(self) -> Iterator[None]:
        """Have the loop as the running one, without letting it turn."""
        events._set_running_loop(self.loop)
        try:
            yield
        finally:
            events._set_running_loop(None)
        assert not self.failures, self.failures

    def breathe(self, turns: int = 1) -> None:
        """Let every task that can go on take a step."""
        for _ in range(turns):
            self.loop.run_until_complete(asyncio.sleep(0))
        assert not self.failures, self.failures

    def close(self) -> None:
        self.loop.run_until_complete(self.coordinator.close())
        self.loop.close()

    # Raft.

    @property
    def shard(self) -> GroupShard | None:
        """The shard that serves now."""
        runtime = self.coordinator.runtime.shards.get(0)
        return runtime.shard if runtime is not None and runtime.state is ShardState.ACTIVE else None

    def win(self) -> None:
        """Lead in a new term, and be sure of it."""
        raft, partition = self.raft, self.partition
        assert not raft.leads
        raft.term += 1
        raft.leads, raft.confirmed = True, False
        with self.step():
            partition.on_leadership(raft.term, NODE, is_leader=True, confirmed=False)
            no_op = self.log.put_control(raft.term, ControlKind.NO_OP)
            partition.on_appended([no_op])
            raft.confirmed = True
            self._commit(self.log.last_index)
            partition.on_leadership(raft.term, NODE, is_leader=True, confirmed=True)

    def lead(self) -> GroupShard:
        """Lead, and have everything read."""
        self.win()
        for _ in range(100):
            self.breathe()
            if self.shard is not None:
                return self.shard
        raise AssertionError("it does not load")

    def commit(self, count: int = 1_000_000, *, copies: int = 3) -> None:
        """Let `count` more entries commit; `copies` replicas have them."""
        index = min(self.partition.producers.commit_index + count, self.log.last_index)
        for peer in OTHERS[: copies - 1]:
            follower = self.raft.core.progress[peer]
            follower.match_index = max(follower.match_index, index)
        with self.step():
            self._commit(index)

    def copy(self) -> None:
        """Let every replica have what is committed."""
        for follower in self.raft.core.progress.values():
            follower.match_index = self.partition.producers.commit_index
        with self.step():
            self.partition.review(self.now_ms)

    def _commit(self, index: int) -> None:
        begin = self.partition.producers.commit_index
        self.history += self.log.entries[begin + 1 - self.log.first_index : index + 1 - self.log.first_index]
        if index > begin:
            self.partition.on_committed(index)

    def lose(self, *, kept: int = 0, said: Iterable[Said] = (), is_told_late: bool = False) -> None:
        """Have another leader, which has the first `kept` entries that are not committed here, and appends `said`.

        All of that is committed. `is_told_late`: it arrives within one drive, which tells of leaders at its end.
        """
        raft, partition, log = self.raft, self.partition, self.log
        raft.leads = raft.confirmed = False
        raft.term += 1
        for future in raft.confirmations:
            future.set_exception(NotLeaderError(2))
        raft.confirmations.clear()
        with self.step():
            if not is_told_late:
                partition.on_leadership(raft.term, OTHERS[0], is_leader=False, confirmed=False)
            cut = partition.producers.commit_index + 1 + kept
            if cut <= log.last_index:
                log.truncate_from(cut)
                partition.on_truncated(cut)
            appended = [log.put_control(raft.term, ControlKind.NO_OP)]
            appended += [log.put_batch(raft.term, bytearray(frame_of(one))) for one in said]
            partition.on_appended(appended)
            self._commit(log.last_index)
            partition.on_leadership(raft.term, OTHERS[0], is_leader=False, confirmed=False)

    def follow(self, said: Iterable[Said]) -> None:
        """Hear from another leader what is committed now."""
        assert not self.raft.leads
        with self.step():
            self.partition.on_appended([self.log.put_batch(self.raft.term, bytearray(frame_of(one))) for one in said])
            self._commit(self.log.last_index)

    def compact_elsewhere(self) -> None:
        """Hear from another leader, which has written again all that counts, and drops what was before."""
        raft, log = self.raft, self.log
        assert not raft.leads
        start_offset = log.log_end_offset
        with self.step():
            appended = [log.put_batch(raft.term, bytearray(frame_of({name: value}))) for name, value in self.truth()]
            appended.append(log.put_control(raft.term, ControlKind.PREFIX_TRUNCATION, encode_start(start_offset)))
            self.partition.on_appended(appended)
            self._commit(log.last_index)

    def truth(self) -> list[tuple[Name, Value]]:
        """Return what is committed."""
        return list(truth_of(self.history).items())

    def all_entries(self) -> list[Entry]:
        """Return what was ever committed, and what is under way behind it."""
        return [*self.history, *self.log.entries[len(self.history) + 1 - self.log.first_index :]]

    def stall(self, length_ms: int = 0) -> None:
        """Stand still for so long: leadership means nothing until it is confirmed anew."""
        self.raft.confirmed = False
        self.advance(length_ms)

    def recover(self) -> None:
        """A majority says that this node leads still."""
        self.raft.confirmed = self.raft.leads
        waiting, self.raft.confirmations = self.raft.confirmations, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # Time.

    def advance(self, length_ms: int) -> None:
        """Let time pass; every deadline on the way has its turn at its moment."""
        until_ms = self.now_ms + length_ms
        while (at_ms := self.timers._deadlines.next_at_ms) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            with self.step():
                self.timers._fire()
        self.now_ms = until_ms

    # What must always hold.

    def check_account(self) -> None:
        """What the coordinator believes to hold is what counting anew finds."""
        held_bytes, shard = 0, self.shard
        if shard is not None:
            table = shard.runtime.standby.table
            held_bytes += sum(recount(hosted.group) for hosted in shard.groups.values())
            held_bytes += sum(size_bytes for _, size_bytes in table.saved.values())
            for key in table.offsets.keys():  # noqa: SIM118 - it is no mapping
                value = table.offsets.get(key)
                assert value is not None
                held_bytes += OFFSET_BYTES + size_of(key, value)
            held_bytes += OFFSET_BYTES * sum(len(names) for _, names, _ in shard.under_way._batches)
        assert self.coordinator.room.held_bytes == held_bytes

    def check(self) -> None:
        commit_index, log = self.partition.producers.commit_index, self.log
        assert len(self.history) == commit_index
        self.check_account()
        fresh = Standby(GroupTable)
        with self.step():
            run_through(fresh.advance(cast("Any", log), commit_index, lambda: True))
        assert known_to(fresh.table) == truth_of(self.history), "the log has dropped what counts"
        shard = self.shard
        if shard is None:
            # In the middle of a log that was cut it knows only a part of what was before; the rest is still to come.
            kept = deepcopy(self.observer._standby)
            with self.step():
                run_through(kept.advance(cast("Any", log), commit_index, lambda: True))
            assert known_to(kept.table) == truth_of(self.history)
            return
        standby = shard.runtime.standby
        assert standby.applied_index == commit_index
        assert known_to(standby.table) == truth_of(self.history)
        assert shard.offsets is standby.table.offsets
        coming = truth_of(self.all_entries())
        nobodys = {name.group_id for name in coming} - shard.groups.keys()
        assert not nobodys, "can be neither listed, deleted nor expired"
        assert not shard.runtime.is_recovering or self.coordinator.host._tasks, (
            "nobody sees to it that the groups go on"
        )
        for hosted in shard.groups.values():
            check_group(shard, hosted, self.now_ms)


def check_group(shard: GroupShard, hosted: HostedGroup, now_ms: int) -> None:
    """What a group in memory has to do with its record, and its deadline with what is armed."""
    group, deadline = hosted.group, hosted.deadline
    if group.deadline_ms is not None and not shard.runtime.is_recovering:
        assert deadline is not None, "nothing is armed"
        assert deadline.item is not None, "what was armed has fired, or was cancelled"
        assert deadline.at_ms <= max(group.deadline_ms, now_ms), "armed too late"
    if hosted.saves or GroupKey(hosted.group_id) in shard.under_way:
        return
    saved = shard.saved(hosted.group_id)
    if group.state is GroupState.STABLE:
        assert saved is not None
        assert saved.generation_id == group.generation_id
        assert {who for who, member in group.members.items() if not member.is_new} <= {
            member.member_id for member in saved.members
        }
    elif group.state is GroupState.EMPTY and saved is not None:
        assert saved.generation_id == group.generation_id
        assert not saved.members


def run_through(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nobody to its end, without letting anything else run."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        pass


def frame_of(said: Said) -> bytes:
    """Return a batch that says so, as another coordinator would have written it."""
    records = []
    for name, value in said.items():
        if isinstance(name, OffsetKey):
            assert value is None or isinstance(value, CommittedOffset)
            key, body = record_of(name, value)
        else:
            assert value is None or isinstance(value, SavedGroup)
            key, body = encode_group_key(name.group_id), None if value is None else encode_group(value)
        records.append(NewRecord(key, body, WALL_MS))
    return bytes(build_batch(records))


class Outcome:
    """What somebody was told, once."""

    def __init__(self) -> None:
        self.code: ErrorCode | None = None

    def __call__(self, code: ErrorCode) -> None:
        assert self.code is None, "told twice"
        self.code = code


class Ticket:
    """A request that waits for its group (Parked)."""

    def __init__(self, member: "Member") -> None:
        self.member = member

    def on_answer(self, answer: Answer) -> None:
        self.member.on_answer(self, answer)


class Member:
    """A member of a group, which asks whoever coordinates now; what it is told changes what it says next.

    `heard_ms`: when a coordinator last heard of it, or began to listen. `share`: its last assignment.
    """

    def __init__(self, world: World, group_id: str, name: str, *, session_ms: int = 10_000) -> None:
        self.world, self.group_id, self.name, self.session_ms = world, group_id, name, session_ms
        self.member_id, self.generation_id, self.heard_ms = "", -1, 0
        self.share: bytes | None = None
        self.waits_for: Ticket | None = None
        self.errors: list[ErrorCode] = []
        self._count = 0
        self._others: tuple[str, ...] = ()

    @property
    def hosted(self) -> HostedGroup | None:
        return None if self.world.shard is None else self.world.shard.group(self.group_id)

    def join(self, *, rebalance_ms: int = 2_500) -> None:
        """Ask to be let in; with the member id that is given out first, or again with its own."""
        shard = self.world.shard
        hosted = self.hosted if self.member_id or shard is None else shard.make_group(self.group_id)
        if shard is None or hosted is None:
            self.member_id = ""
            return
        self._count += 1
        member_id, self.waits_for = f"{self.name}-{self._count}", Ticket(self)
        request = JoinRequest(
            *(self.waits_for, self.member_id, None, self.name, "/h", self.session_ms, rebalance_ms),
            *("consumer", (("range", b""),), True, False, ""),
        )
        self.heard_ms = self.world.now_ms
        with self.world.step():
            shard.carry_out(hosted, hosted.group.join(request, self.world.now_ms, lambda: member_id))

    def sync(self) -> None:
        """Ask for the assignment; the leader brings everybody's."""
        shard, hosted = self.world.shard, self.hosted
        if shard is None or hosted is None:
            return
        shares = {who: f"{self.generation_id}/{who}".encode() for who in self._others}
        self.waits_for = Ticket(self)
        request = SyncRequest(self.waits_for, self.member_id, None, self.generation_id, None, None, shares)
        self.heard_ms = self.world.now_ms
        with self.world.step():
            shard.carry_out(hosted, hosted.group.sync(request, self.world.now_ms))

    def enter(self) -> None:
        """Join, alone, until the assignment is on its way."""
        self.join()
        self.join()
        assert self.generation_id > 0
        self.sync()

    def on_answer(self, ticket: Ticket, answer: Answer) -> None:
        if ticket is self.waits_for:
            self.waits_for = None
            self.heard_ms = self.world.now_ms
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            assert isinstance(answer, JoinAnswer)
            self.member_id = answer.member_id
        elif answer.error is not ErrorCode.NONE:
            self.errors.append(answer.error)
            if answer.error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif isinstance(answer, JoinAnswer):
            self.generation_id, self.share = answer.generation_id, None
            self._others = tuple(member.member_id for member in answer.members)
        else:
            self.share = answer.assignment
            saved = [
                value
                for entry in self.world.history
                for name, value in said_in(entry).items()
                if name == GroupKey(self.group_id) and isinstance(value, SavedGroup)
            ]
            assert (self.member_id, self.share) in {
                (member.member_id, member.assignment) for one in saved for member in one.members
            }, "given out before it was committed"

    def heartbeat(self) -> ErrorCode:
        shard, hosted = self.world.shard, self.hosted
        if shard is None or hosted is None:
            return ErrorCode.NOT_COORDINATOR
        code = shard.heartbeat(hosted, self.member_id, None, self.generation_id)
        if code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            self.heard_ms = self.world.now_ms
        return code

    def check_commit(self) -> ErrorCode:
        """Ask whether an offset may be committed now."""
        shard, hosted = self.world.shard, self.hosted
        if shard is None or hosted is None:
            return ErrorCode.NOT_COORDINATOR
        code = shard.check_commit(hosted, self.member_id, None, self.generation_id)
        if code is ErrorCode.NONE:
            self.heard_ms = self.world.now_ms
        return code

    def leave(self) -> ErrorCode:
        """Leave, or give back a member id that was not used yet."""
        shard, hosted = self.world.shard, self.hosted
        if shard is None or hosted is None:
            return ErrorCode.NOT_COORDINATOR
        with self.world.step():
            (code,), effects = hosted.group.leave([(self.member_id, None, "")], self.world.now_ms)
            shard.carry_out(hosted, effects)
        if code is ErrorCode.NONE:
            self.member_id, self.share = "", None
        return code
