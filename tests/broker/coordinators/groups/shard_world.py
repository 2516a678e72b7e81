"""Builds one replica of an offsets partition under the real coordinator of groups.

Everything that the coordinator believes is compared with what the log says (`check`); how the world turns is
`broker.coordinators.runtime.replica_world`'s.
"""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from broker.coordinators.groups.state_machine.recount import recount
from broker.coordinators.runtime.replica_world import NODE, WALL_MS, Outcome, ReplicaWorld

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.staging import StagedName
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.groups.state_machine.messages import (
    Answer,
    JoinAnswer,
    JoinRequest,
    SavedGroup,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.state_machine.offsets import size_of
from barnabas_broker.coordinators.groups.state_machine.records import (
    GroupKey,
    OffsetKey,
    encode_group,
    encode_group_key,
)
from barnabas_broker.coordinators.groups.state_machine.room import OFFSET_BYTES, STAGED_BYTES, TRANSACTION_BYTES
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.coordinators.groups.table import GroupTable, TableName
from barnabas_broker.partition.log_starts import encode_start
from barnabas_broker.status.events import EventHistory
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import ReadIndex, ReadIndexAnswer
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import ControlKind
from barnabas_raftlog.records.markers import EndMarker

from .log_model import SUPERSEDED, LogModel, Read, Value, frame_of, marker_frame, said_in

__all__ = ["IMAGE_VERSION", "Member", "Outcome", "World"]

SETTINGS: dict[str, str | int] = {
    "node.id": NODE,
    "cluster.id": "c",
    "log.dir": "/d",
    "cluster.nodes": "1@a:1",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "offsets.retention.minutes": 1,
}
IMAGE_VERSION = 1_000
Known: TypeAlias = dict[TableName | StagedName, Value]


class World(ReplicaWorld[TableName | StagedName, Value, GroupShard]):
    """See the module."""

    def __init__(self, settings: Mapping[str, str | int] | None = None) -> None:
        super().__init__(OFFSETS_TOPIC)
        self.topic_ids: dict[bytes, object] = {}
        self.controller_version: int | None = 0
        """How far the controller's image is; None: it does not answer."""
        image = SimpleNamespace(topics=self.topic_ids, resource_configs={}, version=IMAGE_VERSION)
        self._read: dict[int, Read] = {}  # which keep the entries, so no other one gets the id
        self.coordinator = GroupCoordinator(
            BrokerConfig.from_settings({**SETTINGS, **(settings or {})}),
            cast("Any", SimpleNamespace(image=image, broker_epoch=None, submit=self._how_far)),
            self.partitions,
            EventHistory(self.wall_ms),
            self.timers,
            self.clocks,
            self.failures.append,
        )
        # Tests say themselves what there is for groups of KIP-848.
        self.coordinator.topics.is_known = True
        self.coordinator.topics.seen_version = 0
        cast("Any", self.coordinator.topics).take = lambda _: None
        self.observe(self.coordinator.runtime)

    async def _how_far(self, command: ReadIndex, limit_s: float) -> ReadIndexAnswer:
        del command, limit_s
        if self.controller_version is None:
            raise TimeoutError
        return ReadIndexAnswer(self.controller_version)

    def known_to(self, table: GroupTable) -> Known:
        """Return what a table knows; its sums must be right."""
        found: Known = {key: value for key in table.offsets.keys() if (value := table.offsets.get(key))}  # noqa: SIM118 - as below
        for group_id, (saved, size_bytes) in table.saved.items():
            found[GroupKey(group_id)] = saved
            assert size_bytes == len(encode_group_key(group_id)) + len(encode_group(saved))
        assert table.group_bytes == sum(size_bytes for _, size_bytes in table.saved.values())
        for group_id, records in table.consumers.items():
            assert not records.is_empty
            found.update({key: said for key in records.keys() if (said := records.get(key)) is not None})  # noqa: SIM118
            assert {key.group_id for key in records.keys()} == {group_id}  # noqa: SIM118
        consumers = table.consumers.values()
        assert table.consumer_bytes == sum(records.held_bytes for records in consumers)
        assert table.consumer_log_bytes == sum(records.size_bytes for records in consumers)
        staged: Known = {
            StagedName(*key, producer_id): value or SUPERSEDED
            for producer_id in table.staged.producer_ids()
            for key, value in table.staged.of_producer(producer_id).items()
        }
        assert recounted(staged) == table.staged.held_bytes
        found.update(staged)
        return found

    async def close_coordinator(self) -> None:
        await self.coordinator.close()

    said_in = staticmethod(said_in)

    def frame_of(self, said: Mapping[Any, Value | None]) -> bytes:
        (name, *_) = said
        return marker_frame(name, WALL_MS) if isinstance(name, EndMarker) else frame_of(said, WALL_MS)

    def model_of(self, entries: Iterable[Entry]) -> LogModel:
        """Return what these entries, all of a log, say."""
        model = LogModel()
        for entry in entries:
            read = self._read.get(id(entry))
            if read is None:
                read = self._read[id(entry)] = Read.of(entry)
            model.feed(read)
        return model

    def truth_of(self, entries: Iterable[Entry]) -> Known:
        return self.model_of(entries).all()

    def rewrite_elsewhere(self) -> None:
        """Hear from another leader, which has written again all that counts, and keeps what may count yet."""
        log = self.log
        assert not self.raft.leads
        model = self.model_of(self.history)
        start_offset = min([log.log_end_offset, *(offset for offset, _ in model.staged.values())])
        with self.step():
            appended = [
                log.put_batch(self.raft.term, bytearray(frame_of({name: value}, WALL_MS, is_again=True)))
                for name, value in model.known.items()
            ]
            control = encode_start(max(start_offset, log.log_start_offset))
            appended.append(log.put_control(self.raft.term, ControlKind.PREFIX_TRUNCATION, control))
            self.partition.on_appended(appended)
            self._commit(log.last_index)

    # Invariants.

    def check_account(self) -> None:
        """The coordinator's account is what counting anew finds."""
        held_bytes = 0
        shard = self.shard
        if shard is not None:
            table = shard.runtime.standby.table
            held_bytes += sum(recount(hosted.group) for hosted in shard.groups.values())
            held_bytes += sum(size_bytes for _, size_bytes in table.saved.values())
            held_bytes += sum(hosted.group.held_total_bytes for hosted in shard.consumers.groups.values())
            held_bytes += sum(records.held_bytes for records in table.consumers.values())
            for key in table.offsets.keys():  # noqa: SIM118 - it is no mapping
                value = table.offsets.get(key)
                assert value is not None
                held_bytes += OFFSET_BYTES + size_of(key, value)
            held_bytes += table.staged.held_bytes
            held_bytes += OFFSET_BYTES * sum(len(names) for _, names, _, _ in shard.under_way._batches)
        assert self.coordinator.room.held_bytes == held_bytes

    def check(self) -> None:
        super().check()
        self.check_account()
        shard = self.shard
        if shard is None:
            return
        assert shard.offsets is shard.runtime.standby.table.offsets
        coming = self.truth_of(self.all_entries())
        nobodys = {name.group_id for name in coming} - shard.groups.keys() - shard.consumers.groups.keys()
        assert not nobodys, "can be neither listed, deleted nor expired"
        assert not shard.groups.keys() & shard.consumers.groups.keys()
        if shard.runtime.standby.applied_index == len(self.history):
            self.check_pending(shard)
        for hosted in shard.groups.values():
            check_group(shard, hosted, self.now_ms)

    def check_pending(self, shard: GroupShard) -> None:
        """What a transaction has written is pending from its append to the commit of its end, and is kept."""
        model = self.model_of(self.history)
        under_way = self.all_entries()[len(self.history) :]
        coming = {
            OffsetKey(*name[:3]) for entry in under_way for name in said_in(entry) if isinstance(name, StagedName)
        }
        names = coming | model.pending() | set(shard.offsets.keys())
        assert {name for name in names if shard.staging.is_pending(name)} == coming | model.pending()
        first_offset = shard.runtime.standby.table.first_open_offset
        for offset, _ in model.staged.values():
            assert first_offset is not None
            assert first_offset <= offset


def recounted(staged: Mapping[Any, Any]) -> int:
    """Return what `StagedOffsets.held_bytes` must be."""
    return TRANSACTION_BYTES * len({name.producer_id for name in staged}) + sum(
        STAGED_BYTES + (0 if value is SUPERSEDED else size_of(OffsetKey(*name[:3]), value))
        for name, value in staged.items()
    )


def check_group(shard: GroupShard, hosted: HostedGroup, now_ms: int) -> None:
    """A group in memory agrees with its record, and its deadline is armed."""
    group = hosted.group
    deadline = hosted.deadline
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


class Ticket:
    """A request that waits for its group (Parked)."""

    def __init__(self, member: "Member") -> None:
        self.member = member

    def on_answer(self, answer: Answer) -> None:
        self.member.on_answer(self, answer)


class Member:
    """A member of a group, which asks the present coordinator; each answer changes what it says next.

    `heard_ms`: when a coordinator last heard of it, or began to listen. `share`: its last assignment.
    """

    def __init__(self, world: World, group_id: str, name: str, *, session_ms: int = 10_000) -> None:
        self.world = world
        self.group_id = group_id
        self.name = name
        self.session_ms = session_ms
        self.member_id = ""
        self.generation_id = -1
        self.heard_ms = 0
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
        member_id = f"{self.name}-{self._count}"
        self.waits_for = Ticket(self)
        request = JoinRequest(
            ticket=self.waits_for,
            member_id=self.member_id,
            group_instance_id=None,
            client_id=self.name,
            client_host="/h",
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type="consumer",
            protocols=(("range", b""),),
            requires_known_member_id=True,
            skips_assignment=False,
            reason="",
        )
        self.heard_ms = self.world.now_ms
        with self.world.step():
            shard.carry_out(hosted, hosted.group.join(request, self.world.now_ms, lambda: member_id))

    def sync(self) -> None:
        """Ask for the assignment; the leader brings everybody's."""
        shard = self.world.shard
        hosted = self.hosted
        if shard is None or hosted is None:
            return
        shares = {who: f"{self.generation_id}/{who}".encode() for who in self._others}
        self.waits_for = Ticket(self)
        request = SyncRequest(
            ticket=self.waits_for,
            member_id=self.member_id,
            group_instance_id=None,
            generation_id=self.generation_id,
            protocol_type=None,
            protocol_name=None,
            assignments=shares,
        )
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
            self.generation_id = answer.generation_id
            self.share = None
            self._others = tuple(member.member_id for member in answer.members)
        else:
            self.share = answer.assignment
            saved = [
                value
                for entry in self.world.history
                for name, value in self.world.said_in(entry).items()
                if name == GroupKey(self.group_id) and isinstance(value, SavedGroup)
            ]
            assert (self.member_id, self.share) in {
                (member.member_id, member.assignment) for one in saved for member in one.members
            }, "given out before it was committed"

    def heartbeat(self) -> ErrorCode:
        shard = self.world.shard
        hosted = self.hosted
        if shard is None or hosted is None:
            return ErrorCode.NOT_COORDINATOR
        code = shard.heartbeat(hosted, self.member_id, None, self.generation_id)
        if code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            self.heard_ms = self.world.now_ms
        return code

    def check_commit(self) -> ErrorCode:
        """Ask whether an offset may be committed now."""
        shard = self.world.shard
        hosted = self.hosted
        if shard is None or hosted is None:
            return ErrorCode.NOT_COORDINATOR
        code = shard.check_commit(hosted, self.member_id, None, self.generation_id)
        if code is ErrorCode.NONE:
            self.heard_ms = self.world.now_ms
        return code

    def leave(self) -> ErrorCode:
        """Leave, or give back a member id that was not used yet."""
        shard = self.world.shard
        hosted = self.hosted
        if shard is None or hosted is None:
            return ErrorCode.NOT_COORDINATOR
        with self.world.step():
            (code,), effects = hosted.group.leave([(self.member_id, None, "")], self.world.now_ms)
            shard.carry_out(hosted, effects)
        if code is ErrorCode.NONE:
            self.member_id = ""
            self.share = None
        return code
