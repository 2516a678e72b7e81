"""The groups of one partition of the offsets topic, on the broker that leads it.

A shard lives as long as one leadership. It begins LOADING: it reads what this replica has not read yet
(`replay`) of what was committed when leadership was confirmed, so that it knows everything that any
coordinator before it has promised, and answers nothing until then. Then it is ACTIVE. When leadership ends it is ENDED:
whoever is parked is told NOT_COORDINATOR, and what it knew to be committed goes back to the replica.

*What is promised rests on the log.* An offset commit, a group's new generation, a deletion: each is a batch of
ordinary records (`groups.records`), and is answered and shown only when the batch is committed. A shard that was
deposed without knowing it can append, but never commit; and it does not answer reads, because they ask for
confirmation first (`confirm`). So no committed offset ever goes back, whoever asks whom.

*What is known is what the log says*, exactly, up to one index (`Replay.applied_index`). A batch is `under_way` until it
commits, and is taken in then (`on_committed`): always, and in the order of the log. Its answer may come later, because
`min.insync.replicas` can ask for more copies than a commit needs; what it says is true meanwhile, and is shown. So a
shard can end at any moment and hand back what it knows.

*The group's state machine decides* (`groups.group`): requests go in, and what comes out is carried out here: answers
to the requests that carry their tickets, a record to save, a line for the operator. Its next deadline goes into the
node's one heap of deadlines; a deadline that has moved away (every heartbeat does that) costs nothing until the old
one fires.

*Many at once.* What is owed to the thousands of members of one group, or to all groups of a shard, is a generator that
yields between small pieces: the first piece at once, the others beside what comes in meanwhile (`_in_slices`). What a
step of a state machine decides is decided by then; whoever works on looks first whether the group and the shard are
still there. A long record is encoded so, too; the saves of a group are appended in the order in which it asked.

Limits: what all groups of the node hold (`groups.room`); batches of `BATCH_BYTES_MAX`, so that a replay never holds the
loop for longer than one takes, a few milliseconds; a group whose record exceeds what the log takes is not saved, and
says UNKNOWN_SERVER_ERROR as in Kafka.

Not here: expiry and compaction (`upkeep`), and which broker is whose coordinator (`coordinator`).
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, cast

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.messages import (
    Answer,
    Effects,
    GroupConfig,
    JoinRequest,
    SavedGroup,
    SyncRequest,
    failed_save_answer,
)
from barnabas_broker.coordinators.groups.state_machine.offsets import OffsetTable, record_of, size_of
from barnabas_broker.coordinators.groups.state_machine.records import (
    CommittedOffset,
    GroupKey,
    Name,
    OffsetKey,
    encode_group,
    encode_group_in_steps,
    encode_group_key,
)
from barnabas_broker.coordinators.groups.state_machine.room import OFFSET_BYTES, Room
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.coordinators.groups.state_machine.under_way import UnderWay
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.waiters import CommitWaiters
from barnabas_broker.timing.slices import Slices, taken
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.steps import at_once

from .hosted_group import HostedGroup, Parked, Save
from .replay import Replay

__all__ = ["BATCH_BYTES_MAX", "Shard", "ShardHost", "ShardState"]

ANSWERS_STEP, GROUPS_STEP, APPLIED_STEP, DELETED_STEP = 20, 100, 1_000, 500
"""Between two yields: answers that are given, groups that begin or end, names whose committed records are taken in,
offsets that go with their group."""
BATCH_BYTES_MAX = 64 * 1024
BATCH_OVERHEAD_BYTES = 1024
ENCODED_AT_ONCE = 200  # members
COMPACT_BYTES, COMPACT_FACTOR = 4 << 20, 4
"""A log is compacted when it is larger than both: this, and so many times what it says. To read 4 MiB takes about a
second, which a replica that was away has to do before it can lead."""
CONFIRM_S = 2.0
Change = tuple[OffsetKey, CommittedOffset | None]
Done = Callable[[ErrorCode], None]
Steps = Generator[None, None, None]
_ENDED = object()


class ShardHost(Protocol):
    """What a shard needs of its broker."""

    timers: Timers
    group_config: GroupConfig
    room: Room

    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def tell(self, kind: str, subject: str, cause: str) -> None:
        """Remember an event of this broker."""

    def tell_group(self, kind: str, group_id: str, cause: str) -> None:
        """Remember an event of a group."""

    def fail(self, error: BaseException) -> None:
        """A bug: stop the process."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a task; it ends with the broker."""

    def compact(self, shard: "Shard") -> None:
        """The log of `shard` is much larger than what it says."""


class ShardState(Enum):
    """See the module."""

    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


class _Answer:
    """Somebody who may be answered when a batch is committed on enough replicas (PendingAppend)."""

    __slots__ = ("done",)
    is_closed = False  # It waits until it is told, whoever gives up.

    def __init__(self, done: Done) -> None:
        self.done = done

    def on_committed(self) -> None:
        self.done(ErrorCode.NONE)

    def on_failed(self, code: ErrorCode) -> None:
        self.done(failed_save_answer(code))


class Shard:
    """See the module. Owned by the loop; `groups` has every group that this partition knows, also empty ones."""

    def __init__(self, host: ShardHost, partition: Partition, replay: Replay) -> None:
        self._host, self.partition, self.term, self._replay = host, partition, partition.term, replay
        self.state = ShardState.LOADING
        self.groups: dict[str, HostedGroup] = {}
        self.offsets = OffsetTable()  # that of `_replay`, once it is loaded
        self.under_way = UnderWay()
        self._commit_index, self._is_applying = 0, False
        self._groups_bytes = self._counted_bytes = 0
        self._commit_waits: CommitWaiters[asyncio.Future[bool]] = CommitWaiters()
        self.is_compacting = False
        # Since the last compaction; what an earlier leader appended counts as much.
        self._appended_bytes = COMPACT_BYTES
        self._is_recovering = False

    def __repr__(self) -> str:
        return repr(self.partition)

    @property
    def is_certain(self) -> bool:
        """True while a majority has confirmed this leadership since anything could have gone wrong."""
        return self.state is ShardState.ACTIVE and self.partition.can_serve

    @property
    def live_bytes(self) -> int:
        """About what the records that count would take in the log."""
        return self.offsets.live_bytes + self._replay.group_bytes

    @property
    def held_bytes(self) -> int:
        """What this shard holds for its clients (`groups.room`): nothing before it serves, and nothing afterwards."""
        if self.state is not ShardState.ACTIVE:
            return 0
        offsets_bytes = self.offsets.held_bytes + self.under_way.count * OFFSET_BYTES
        return self._groups_bytes + self._replay.group_bytes + offsets_bytes

    @property
    def record_bytes_max(self) -> int:
        """How long the record of a group may be, key and value."""
        return self.partition.message_bytes_max - BATCH_OVERHEAD_BYTES

    def saved(self, group_id: str) -> SavedGroup | None:
        """Return a group's committed record; None: it has none."""
        return self._replay.saved.get(group_id, (None, 0))[0]

    async def confirm(self, timeout_s: float) -> ErrorCode:
        """Return NONE when a majority has said, after this call, that this is the coordinator; else why it is not.

        Then what had been committed by then is known here.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.partition.group.confirm()
                await self._wait_applied(self.partition.producers.commit_index)
        except TimeoutError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except NotLeaderError:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if self.state is ShardState.ACTIVE else ErrorCode.NOT_COORDINATOR

    # The beginning and the end.

    async def load(self) -> int:
        """Read what is committed and not read yet, then serve; return how many records that were.

        Cancelled, it leaves a shard that serves nothing.

        Raises:
            StorageFailedError, MalformedMessageError, CorruptBatchError: as `Replay.advance`.
        """
        partition, replay, slices = self.partition, self._replay, Slices()
        known_count = replay.record_count
        await replay.advance(partition.log, partition.producers.commit_index, self._is_loading)
        self.offsets = replay.offsets
        config = self._host.group_config
        for group_id, (record, _) in replay.saved.items():
            group = await taken(ConsumerGroup.from_saved_in_steps(group_id, record, config, self._host.now_ms()))
            hosted = self.groups[group_id] = HostedGroup(group_id, group)
            hosted.changed_at_ms = record.current_state_timestamp_ms
            await slices.yield_if_due()
        for group_id in self.offsets.group_ids():
            if group_id not in self.groups:
                self.groups[group_id] = HostedGroup(group_id, ConsumerGroup(group_id, config))
                await slices.yield_if_due()
        if self._is_loading():
            self.state = ShardState.ACTIVE
            # What was committed meanwhile holds no records: in this term only this shard appends any.
            self.on_committed(partition.producers.commit_index)
            self._in_slices(self._begin_groups())
        return replay.record_count - known_count

    def _begin_groups(self) -> Steps:
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if not hosted.is_removed and self.state is ShardState.ACTIVE:
                self._account(hosted)
                self._arm(hosted)
            if not number % GROUPS_STEP:
                yield

    def _in_slices(self, steps: Steps) -> None:
        """Take the first step now and the others beside what else there is to do."""
        if next(steps, _ENDED) is not _ENDED:
            self._host.spawn(taken(steps))

    def _account(self, hosted: HostedGroup) -> None:
        """Count what a group holds now."""
        held_bytes = 0 if hosted.is_removed else hosted.group.held_bytes
        self._groups_bytes += held_bytes - hosted.held_bytes
        hosted.held_bytes = held_bytes
        self._settle_account()

    def _settle_account(self) -> None:
        counted_bytes = self.held_bytes
        self._host.room.held_bytes += counted_bytes - self._counted_bytes
        self._counted_bytes = counted_bytes

    def _is_loading(self) -> bool:
        return self.state is ShardState.LOADING

    def on_committed(self, commit_index: int) -> None:
        """Take in what this shard has appended up to `commit_index`, inclusive, which is committed.

        A later leader's entry may be committed before this replica is told that its own leadership is over, with
        others of that leader before it. Then this shard knows as much as it ever will: whoever takes over what it knows
        reads the rest from the log. An entry of the shard's own term has nothing before it that is not known here.
        """
        if self.state is ShardState.ACTIVE and self.partition.log.term_at(commit_index) == self.term:
            self._commit_index = commit_index
            if not self._is_applying:
                self._is_applying = True
                self._in_slices(self._apply())

    def _apply(self) -> Steps:
        while self.state is ShardState.ACTIVE:
            self._replay.applied_index = index = self.under_way.commit(self._commit_index, APPLIED_STEP)
            self._settle_account()
            for future in self._commit_waits.take_committed(index):
                _resolve(future, is_committed=True)
            if index == self._commit_index:
                break
            yield
        self._is_applying = False

    def to_replay(self) -> Replay:
        """Return what is known to be committed, as a follower keeps it. This shard must end at once."""
        return self._replay

    def end(self, error: ErrorCode) -> None:
        """Serve nothing any more; answer whoever is parked with `error`."""
        was_active, self.state = self.state is ShardState.ACTIVE, ShardState.ENDED
        self.under_way.clear()
        for future in self._commit_waits.take_all():
            _resolve(future, is_committed=False)
        self._settle_account()
        self._in_slices(self._end_groups(error, was_active=was_active))

    def _end_groups(self, error: ErrorCode, *, was_active: bool) -> Steps:
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if hosted.deadline is not None:
                self._host.timers.cancel(hosted.deadline)
            hosted.is_removed = True
            if was_active:
                yield from _give(hosted.group.end(error).answers)
            if not number % GROUPS_STEP:
                yield

    # Groups.

    def group(self, group_id: str) -> HostedGroup | None:
        """Return the group, unless there is none, or not much longer."""
        hosted = self.groups.get(group_id)
        return None if hosted is None or hosted.is_deleting else hosted

    def make_group(self, group_id: str) -> HostedGroup | None:
        """Return the group, a new one if there is none; None when there is no room for it."""
        hosted = self.groups.get(group_id)
        if hosted is None:
            group = ConsumerGroup(group_id, self._host.group_config)
            if group.held_bytes > self._host.room.for_members_bytes:
                return None
            hosted = self.groups[group_id] = HostedGroup(group_id, group)
            self._account(hosted)
        return None if hosted.is_deleting else hosted

    def join(self, hosted: HostedGroup, request: JoinRequest, new_member_id: Callable[[], str]) -> None:
        """Hear of somebody who joins (`ConsumerGroup.join`), as far as there is room."""
        room_bytes = self._host.room.for_members_bytes
        request = request._replace(record_bytes_max=self.record_bytes_max, room_bytes=room_bytes)
        self.carry_out(hosted, hosted.group.join(request, self._host.now_ms(), new_member_id))

    def sync(self, hosted: HostedGroup, request: SyncRequest) -> None:
        """Hear of somebody who wants an assignment or brings all (`ConsumerGroup.sync`), as far as there is room."""
        room_bytes = self._host.room.for_saving_bytes
        request = request._replace(record_bytes_max=self.record_bytes_max, room_bytes=room_bytes)
        self.carry_out(hosted, hosted.group.sync(request, self._host.now_ms()))

    def heartbeat(
        self, hosted: HostedGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Hear of a member (`ConsumerGroup.heartbeat`)."""
        code = hosted.group.heartbeat(member_id, group_instance_id, generation_id, self._host.now_ms())
        self._arm(hosted)
        return code

    def check_commit(
        self, hosted: HostedGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Say whether these may commit offsets now (`ConsumerGroup.check_commit`)."""
        code = hosted.group.check_commit(member_id, group_instance_id, generation_id, self._host.now_ms())
        if code is ErrorCode.NONE:
            self._arm(hosted)
        else:
            self.settle(hosted)
        return code

    def carry_out(self, hosted: HostedGroup, effects: Effects) -> None:
        """Do what a group's state machine has asked for, and see to its next deadline."""
        if hosted.is_removed:
            return
        self._account(hosted)
        for fact in effects.facts:
            self._host.tell_group(fact.kind, hosted.group_id, f"{fact.cause} (generation {fact.term})")
        if effects.save is not None:
            self._save(hosted, effects.save)
        self._in_slices(_give(effects.answers))
        self.settle(hosted)

    def settle(self, hosted: HostedGroup) -> None:
        """Arm a group's deadline after anything that it was told; forget it if there is nothing to know of it."""
        if hosted.is_removed or self.state is not ShardState.ACTIVE:
            return
        self._arm(hosted)
        group_id = hosted.group_id
        if (
            hosted.group.state is GroupState.EMPTY
            and hosted.group.deadline_ms is None
            and not hosted.saves
            and not hosted.is_deleting
            and group_id not in self._replay.saved
            and not self.offsets.of_group(group_id)
            and not self.under_way.of_group(group_id)
        ):
            self._take_out(hosted)

    def remove_group(self, hosted: HostedGroup, done: Done | None = None) -> None:
        """Delete an empty group and its offsets, also what is under way: the tombstones come behind that.

        It is gone at once; `done` says when that can be relied on. Of a group with very many offsets they go first, a
        part at a time; nothing of that name can be asked for meanwhile.
        """
        assert hosted.group.state is GroupState.EMPTY
        hosted.is_deleting = True
        self._in_slices(self._remove(hosted, done))

    def _remove(self, hosted: HostedGroup, done: Done | None) -> Steps:
        group_id, coming = hosted.group_id, self.under_way.of_group(hosted.group_id)
        known = self.offsets.of_group(group_id)
        places = list(known)
        places += [name[1:] for name in coming if isinstance(name, OffsetKey) and name[1:] not in known]
        is_saved = group_id in self._replay.saved or GroupKey(group_id) in coming
        for begin in range(0, len(places), DELETED_STEP):
            is_last = begin + DELETED_STEP >= len(places)
            changes: list[Change] = [
                (OffsetKey(group_id, *place), None) for place in places[begin : begin + DELETED_STEP]
            ]
            if not self.write_offsets(changes, done if is_last and not is_saved else None):
                hosted.is_deleting = False
                _tell(None if is_last and not is_saved else done, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            if not is_last:
                yield
        if is_saved:
            error = self._append_group(group_id, None, done)
            if error is not ErrorCode.NONE:
                hosted.is_deleting = False
                _tell(done, error)
                return
        elif not places:
            _tell(done, ErrorCode.NONE)
        self._take_out(hosted)

    def _take_out(self, hosted: HostedGroup) -> None:
        hosted.is_removed = True
        if hosted.deadline is not None:
            self._host.timers.cancel(hosted.deadline)
        if self.groups.get(hosted.group_id) is hosted:
            del self.groups[hosted.group_id]
        self._account(hosted)

    def _save(self, hosted: HostedGroup, asked: SavedGroup) -> None:
        record = asked._replace(current_state_timestamp_ms=self._host.wall_ms())
        hosted.saves.append(Save(record))
        hosted.changed_at_ms = record.current_state_timestamp_ms
        if not hosted.is_saving:
            hosted.is_saving = True
            self._in_slices(self._append_saves(hosted))

    def _append_saves(self, hosted: HostedGroup) -> Steps:
        """Append what the group has asked for, in its order; what it asks for meanwhile, too."""
        while (save := next((save for save in hosted.saves if not save.is_begun), None)) is not None:
            value = yield from encode_group_in_steps(save.record)
            if hosted.is_removed or hosted.is_deleting or self.state is not ShardState.ACTIVE:
                break
            save.is_begun = True
            done = partial(self._saved, hosted, save)
            error = self._append_group(hosted.group_id, (save.record, value), done)
            if error is not ErrorCode.NONE:
                done(error)
        hosted.is_saving = False

    def _saved(self, hosted: HostedGroup, save: Save, error: ErrorCode) -> None:
        save.outcome = error
        self._finish_saves(hosted)

    def _append_group(self, group_id: str, record: tuple[SavedGroup, bytes] | None, done: Done | None) -> ErrorCode:
        """Append a group's record, also given as its value, or its tombstone; returns as `_append`."""
        key, (saved, value) = encode_group_key(group_id), record or (None, None)
        size_bytes = 0 if value is None else len(key) + len(value)
        if size_bytes > self.record_bytes_max and value is not None:
            text = f"its record of {size_bytes} bytes does not fit into the log: {self.partition.message_bytes_max}"
            self._host.tell_group("group not saved", group_id, text)
            return ErrorCode.MESSAGE_TOO_LARGE
        put = partial(self._replay.put_group, group_id, saved, size_bytes)
        return self._append([(key, value)], [GroupKey(group_id)], put, done)

    def _finish_saves(self, hosted: HostedGroup) -> None:
        """Tell the group of its saves in their order: one that cannot begin fails before an older one is through."""
        while hosted.saves and (outcome := hosted.saves[0].outcome) is not None:
            save = hosted.saves.popleft()
            if not hosted.is_removed and self.state is ShardState.ACTIVE:
                now_ms = self._host.now_ms()
                self.carry_out(hosted, hosted.group.on_saved(save.record.generation_id, outcome, now_ms))

    def _arm(self, hosted: HostedGroup) -> None:
        at_ms = hosted.group.deadline_ms
        if at_ms is None or (hosted.deadline is not None and hosted.deadline.at_ms <= at_ms):
            return
        if hosted.deadline is not None:
            self._host.timers.cancel(hosted.deadline)
        delay_ms = at_ms - self._host.now_ms()
        hosted.deadline = self._host.timers.add(delay_ms, partial(self._on_deadline, hosted))

    def _on_deadline(self, hosted: HostedGroup) -> None:
        hosted.deadline = None
        if hosted.is_removed or self.state is not ShardState.ACTIVE:
            return
        if not self.partition.can_serve:
            # This node stood still: neither the members' silence nor its own leadership mean anything now.
            if not self._is_recovering:
                self._is_recovering = True
                self._host.spawn(self._recover())
            return
        now_ms, at_ms = self._host.now_ms(), hosted.group.deadline_ms
        try:
            if at_ms is not None and at_ms <= now_ms:
                self.carry_out(hosted, hosted.group.tick(now_ms))
            else:
                self.settle(hosted)
        except AssertionError as error:
            self._host.fail(error)
            raise

    async def _recover(self) -> None:
        """After a stall, be sure to lead, then let every session begin anew. If somebody else leads, the shard ends."""
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = await self.confirm(CONFIRM_S)
        self._is_recovering = False
        if error is ErrorCode.NONE:
            self._in_slices(self._restart_sessions())

    def _restart_sessions(self) -> Steps:
        now_ms = self._host.now_ms()
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if not hosted.is_removed:
                hosted.group.restart_sessions(now_ms)
                self.settle(hosted)
            if not number % GROUPS_STEP:
                yield

    # Offsets.

    def has_room_for(self, key: OffsetKey, value: CommittedOffset) -> bool:
        """Tell whether that may be stored: it takes no more than what is there already, or there is room."""
        growth = self.offsets.growth(key, value)
        return growth <= 0 or growth <= self._host.room.for_offsets_bytes or key in self.under_way

    def write_offsets(self, changes: Sequence[Change], done: Done | None) -> bool:
        """Append offsets, or tombstones for None; they show when they are committed. `done` is called once.

        False: not all of them could be appended, and `done` was told why.

        Raises:
            ValueError: a name or a note does not fit its field; nothing was appended.
        """
        batches: list[list[tuple[Change, tuple[bytes, bytes | None]]]] = [[]]
        size = 0
        for change in changes:
            key, value = record = record_of(*change)
            size += len(key) + len(value or b"")
            if size > BATCH_BYTES_MAX and batches[-1]:
                batches.append([])
                size = 0
            batches[-1].append((change, record))
        for number, batch in enumerate(batches):
            written = [change for change, _ in batch]
            # They commit in order, so the last one speaks for all.
            last = done if number == len(batches) - 1 else None
            names, put = [key for key, _ in written], partial(self._put_offsets, written)
            error = self._append([record for _, record in batch], names, put, last)
            if error is not ErrorCode.NONE:
                _tell(done, error)
                return False
        return True

    def _put_offsets(self, changes: Iterable[Change]) -> None:
        for key, value in changes:
            self.offsets.put(key, value)

    # The log.

    def names(self) -> list[Name]:
        """Return the name of everything that is committed now."""
        return at_once(self.names_in_steps())

    def names_in_steps(self) -> Generator[None, None, list[Name]]:
        """Return the same, without some of what goes or comes between two steps."""
        names: list[Name] = list(map(GroupKey, self._replay.saved))
        unseen = 0
        for group_id in list(self.offsets.group_ids()):
            places = self.offsets.of_group(group_id)
            names += [OffsetKey(group_id, *place) for place in places]
            unseen += 1 + len(places)
            if unseen >= APPLIED_STEP:
                unseen = 0
                yield
        return names

    def size_of(self, name: Name) -> int:
        """Return about what the record under that name takes."""
        if isinstance(name, OffsetKey):
            value = self.offsets.get(name)
            return 0 if value is None else size_of(name, value)
        return self._replay.saved.get(name.group_id, (None, 0))[1]

    async def encode_large(self, names: Iterable[Name]) -> dict[Name, tuple[SavedGroup, bytes]]:
        """Return those of these groups that are not encoded in a moment, with their records' values, for `rewrite`."""
        encoded: dict[Name, tuple[SavedGroup, bytes]] = {}
        for name in names:
            saved = self.saved(name.group_id) if isinstance(name, GroupKey) else None
            if saved is not None and len(saved.members) > ENCODED_AT_ONCE:
                encoded[name] = saved, await taken(encode_group_in_steps(saved))
        return encoded

    def rewrite(
        self, names: Iterable[Name], encoded: Mapping[Name, tuple[SavedGroup, bytes]] = MappingProxyType({})
    ) -> ErrorCode:
        """Append what is committed under these names once more, so that the older records may go.

        `encoded` are the values of some, which count as long as what is committed is the same. A name that has a newer
        record under way is left out: a replay must not come back to the older one.
        """
        records: list[tuple[bytes, bytes | None]] = []
        for name in names:
            if name in self.under_way:
                continue
            if isinstance(name, OffsetKey):
                value = self.offsets.get(name)
                if value is not None:
                    records.append(record_of(name, value))
            else:
                saved = self.saved(name.group_id)
                if saved is not None:
                    known, made = encoded.get(name, (None, b""))
                    body = made if known is saved else encode_group(saved)
                    records.append((encode_group_key(name.group_id), body))
        return self._append(records, (), _nothing, None) if records else ErrorCode.NONE

    def _append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        names: Sequence[Name],
        apply: Callable[[], None],
        done: Done | None,
    ) -> ErrorCode:
        """Append one batch of records that change what is known under `names`.

        `apply` is called when it commits, `done` then or later: when as many replicas have it as the topic asks for, or
        when nobody here will know. Or return why it is not appended, and call neither.
        """
        timestamp_ms = self._host.wall_ms()
        frame = build_batch(NewRecord(key, value, timestamp_ms) for key, value in records)
        try:
            if self.state is not ShardState.ACTIVE:
                raise NotLeaderError
            _, index = self.partition.append(parse_header(frame), frame)
        except NotLeaderError:
            return ErrorCode.NOT_COORDINATOR
        except StorageFailedError:
            # The disk is behind or full, or the log has failed: in time this coordinator or another can again.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.under_way.add(index, names, apply)
        self._settle_account()
        if done is not None:
            is_pending = self.partition.wait_for(index, _Answer(done))
            assert is_pending, "what was appended a moment ago cannot be committed yet"
        self._appended_bytes += len(frame)
        self._consider_compaction()
        return ErrorCode.NONE

    def _consider_compaction(self) -> None:
        size_bytes = self.partition.log.size_bytes
        if self.is_compacting or self._appended_bytes < COMPACT_BYTES // 4 or size_bytes <= COMPACT_BYTES:
            return
        if size_bytes > COMPACT_FACTOR * self.live_bytes:
            self.is_compacting, self._appended_bytes = True, 0
            self._host.compact(self)

    async def wait_committed(self) -> bool:
        """Return when everything appended so far is committed; False when leadership ended before."""
        return await self._wait_applied(self.partition.log.last_index)

    async def _wait_applied(self, index: int) -> bool:
        """Return when what is committed up to `index` is taken in; False when leadership ended before."""
        if self.state is not ShardState.ACTIVE:
            return False
        if index <= self._replay.applied_index:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._commit_waits.add(index, future)
        return await future


def _nothing() -> None:
    pass


def _give(answers: Collection[Answer]) -> Steps:
    """Give the answers to whoever is parked."""
    unsaid, begun = iter(answers), 0
    while begun < len(answers):
        if begun:
            yield
        call_each(islice(unsaid, ANSWERS_STEP), _give_one)
        begun += ANSWERS_STEP


def _give_one(answer: Answer) -> None:
    cast("Parked", answer.ticket).on_answer(answer)


def _resolve(future: "asyncio.Future[bool]", *, is_committed: bool) -> None:
    if not future.done():
        future.set_result(is_committed)


def _tell(done: Done | None, error: ErrorCode) -> None:
    if done is not None:
        done(error)
