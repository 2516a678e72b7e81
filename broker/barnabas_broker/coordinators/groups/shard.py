"""Serves the groups of one offsets partition, on the broker that leads it.

The shard's life, its log and the records under way are the runtime's (`coordinators.runtime.shard`); here is how the
requests of groups use them.

*A promise rests on the log.* An offset commit, a group's new generation, a deletion: each is a batch of ordinary
records (`state_machine.records`), and is answered and shown only when the batch is committed. So no committed offset
ever goes back, whichever broker is asked.

*The group's state machine decides* (`state_machine.group`): requests go in, and what comes out is carried out here:
answers to the requests that carry their tickets, a record to save, a line for the operator. Its next deadline goes into
the node's one heap of deadlines; a deadline that has moved away (every heartbeat does that) costs nothing until the old
one fires.

*Transactions.* Offsets that are part of a transaction are pending until a marker ends it (`staging`). A group with
pending offsets is not forgotten, and they do not expire; a deletion takes them along.

*Many at once.* Work for the thousands of members of one group, or for all groups of a shard, is done in slices
(`ShardRuntime.in_slices`). A step of a state machine has decided everything by then; each later piece looks first
whether the group and the shard are still there. A long record is encoded so, too; the saves of a group are appended in
the order in which it asked.

Limits: the memory of all groups of the node (`state_machine.room`); batches of `BATCH_BYTES_MAX`; a group whose record
exceeds what the log takes is not saved, and says UNKNOWN_SERVER_ERROR as in Kafka.

Not here: the meaning of committed records (`table`), expiry (`expiry`), and the way from a group to its coordinator
(`coordinator`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import cast

from barnabas_broker.coordinators.room import Room
from barnabas_broker.coordinators.runtime.contracts import Done, Steps
from barnabas_broker.coordinators.runtime.shard import BATCH_BYTES_MAX, ShardRuntime, ShardState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.steps import at_once

from .consumer.conversion import CONVERTED_MAX
from .consumer.messages import Refusal
from .consumer.values import ConsumerKey
from .consumers import Consumers, ConsumerSettings
from .hosted_consumers import HostedConsumers
from .hosted_group import HostedGroup, Parked, Save
from .migration import Way, generation_of
from .staging import Staging
from .state_machine.group import ConsumerGroup
from .state_machine.messages import (
    Answer,
    Effects,
    GroupConfig,
    JoinAnswer,
    JoinRequest,
    SavedGroup,
    SyncAnswer,
    SyncRequest,
)
from .state_machine.offsets import OffsetTable, in_batches
from .state_machine.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    encode_group_in_steps,
    encode_group_key,
)
from .state_machine.room import OFFSET_BYTES
from .state_machine.states import GroupState
from .table import GroupTable, TableName

__all__ = ["Change", "GroupShard", "TellGroup"]

# How much is done between two yields.
ANSWERS_STEP = 20  # answers that are given
GROUPS_STEP = 100  # groups that begin or end
DELETED_STEP = 500  # offsets that go with their group

Change = tuple[OffsetKey, CommittedOffset | None]
TellGroup = Callable[[str, str, str], None]
"""Remembers an event of a group: kind, group id, cause."""


class GroupShard:
    """See the module. Owned by the loop; `groups` has every classic group that this partition knows, also empty ones.

    `consumers` has those of KIP-848; no name is in both. `runtime` is the partition and its log, `under_way` the
    runtime's. `offsets` are those of the table, once it is loaded. `staging` has those of transactions.
    """

    def __init__(
        self,
        runtime: "ShardRuntime[GroupTable, GroupShard]",
        config: GroupConfig,
        room: Room,
        tell_group: TellGroup,
        consumers: ConsumerSettings,
    ) -> None:
        self.runtime = runtime
        self.under_way = runtime.under_way
        self.groups: dict[str, HostedGroup] = {}
        self.offsets = OffsetTable()
        self.staging = Staging(runtime, room)
        self.consumers = Consumers(runtime, consumers, room, tell_group, self)
        self._consumer_config = consumers.config
        self._table = GroupTable()
        self._host = runtime.host
        self._config = config
        self._room = room
        self._tell_group = tell_group
        self._groups_bytes = 0
        self._counted_bytes = 0

    def __repr__(self) -> str:
        return repr(self.runtime)

    @property
    def loaded_summary(self) -> str:
        """How much was loaded, in words for an operator."""
        return f"{len(self.groups) + len(self.consumers.groups)} groups, {len(self.offsets)} offsets"

    @property
    def unloaded_summary(self) -> str:
        """How much is served no more, likewise."""
        return f"{len(self.groups) + len(self.consumers.groups)} groups"

    @property
    def held_bytes(self) -> int:
        """Bytes that this shard holds for its clients (`room`): none before it serves, and none afterwards."""
        if self.runtime.state is not ShardState.ACTIVE:
            return 0
        offsets_bytes = self.offsets.held_bytes + self.staging.staged.held_bytes
        offsets_bytes += self.under_way.count * OFFSET_BYTES
        groups_bytes = self._groups_bytes + self._table.group_bytes
        return groups_bytes + self.consumers.held_bytes + self._table.consumer_bytes + offsets_bytes

    @property
    def member_count(self) -> int:
        """How many members all groups have, of both kinds."""
        classic = sum(len(hosted.group.members) for hosted in self.groups.values())
        return classic + sum(len(hosted.group.members) for hosted in self.consumers.groups.values())

    def saved(self, group_id: str) -> SavedGroup | None:
        """Return a group's committed record; None: it has none."""
        return self._table.group(group_id)

    # The beginning and the end (CoordinatorShard).

    def build_in_steps(self, table: GroupTable) -> Steps:
        """Make a group of every one that has a committed record, or offsets."""
        self._table = table
        self.offsets = table.offsets
        yield from self.consumers.build_in_steps(table)
        for group_id, (record, _) in table.saved.items():
            if group_id in self.consumers.groups:
                continue
            now_ms = self._host.now_ms()
            group = yield from ConsumerGroup.from_saved_in_steps(group_id, record, self._config, now_ms)
            hosted = self.groups[group_id] = HostedGroup(group_id, group)
            hosted.changed_at_ms = record.current_state_timestamp_ms
            yield
        for group_id in (*self.offsets.group_ids(), *table.staged.group_ids()):
            if group_id not in self.groups and group_id not in self.consumers.groups:
                self.groups[group_id] = HostedGroup(group_id, ConsumerGroup(group_id, self._config))
                yield

    def begin_in_steps(self) -> Steps:
        """Let deadlines begin, and count what is held."""
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if not hosted.is_removed and self.runtime.state is ShardState.ACTIVE:
                self._account(hosted)
                self._arm(hosted)
            if not number % GROUPS_STEP:
                yield
        yield from self.consumers.begin_in_steps()

    def recover_in_steps(self) -> Steps:
        """Let every session begin anew."""
        now_ms = self._host.now_ms()
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if not hosted.is_removed:
                hosted.group.restart_sessions(now_ms)
                self.settle(hosted)
            if not number % GROUPS_STEP:
                yield
        yield from self.consumers.recover_in_steps()

    def end_in_steps(self, error: ErrorCode, *, was_active: bool) -> Steps:
        """Answer everybody who is parked with `error`."""
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if hosted.deadline is not None:
                self._host.timers.cancel(hosted.deadline)
            hosted.is_removed = True
            if was_active:
                yield from _give(hosted.group.end(error).answers)
            if not number % GROUPS_STEP:
                yield
        yield from self.consumers.end_in_steps(error)

    def is_ending(self, name: TableName) -> bool:
        """Tell whether a transaction with an offset of that name is being committed."""
        return self.staging.is_ending(name)

    def settle_account(self) -> None:
        """Count towards the node's room everything that is held now."""
        counted_bytes = self.held_bytes
        self._room.held_bytes += counted_bytes - self._counted_bytes
        self._counted_bytes = counted_bytes

    def _account(self, hosted: HostedGroup) -> None:
        """Count anew how much a group holds."""
        held_bytes = 0 if hosted.is_removed else hosted.group.held_bytes
        self._groups_bytes += held_bytes - hosted.held_bytes
        hosted.held_bytes = held_bytes
        self.settle_account()

    # Groups.

    def group(self, group_id: str) -> HostedGroup | None:
        """Return the group, unless there is none, or not much longer."""
        hosted = self.groups.get(group_id)
        return None if hosted is None or hosted.is_deleting else hosted

    def make_group(self, group_id: str) -> HostedGroup | None:
        """Return the group, a new one if there is none; None when there is no room for it."""
        hosted = self.groups.get(group_id)
        if hosted is None:
            group = ConsumerGroup(group_id, self._config)
            if group.held_bytes > self._room.for_newcomers_bytes:
                return None
            hosted = self.groups[group_id] = HostedGroup(group_id, group)
            self._account(hosted)
        return None if hosted.is_deleting else hosted

    def join(self, hosted: HostedGroup, request: JoinRequest, new_member_id: Callable[[], str]) -> None:
        """Hear of somebody who joins (`ConsumerGroup.join`), as far as there is room."""
        if hosted.is_moving:
            _give_one(JoinAnswer(request.ticket, ErrorCode.REBALANCE_IN_PROGRESS, member_id=request.member_id))
            return
        room_bytes = self._room.for_newcomers_bytes
        request = request._replace(record_bytes_max=self.runtime.record_bytes_max, room_bytes=room_bytes)
        self.carry_out(hosted, hosted.group.join(request, self._host.now_ms(), new_member_id))

    def sync(self, hosted: HostedGroup, request: SyncRequest) -> None:
        """Hear of somebody who wants an assignment or brings all (`ConsumerGroup.sync`), as far as there is room."""
        if hosted.is_moving:
            _give_one(SyncAnswer(request.ticket, ErrorCode.REBALANCE_IN_PROGRESS))
            return
        room_bytes = self._room.left_bytes
        request = request._replace(record_bytes_max=self.runtime.record_bytes_max, room_bytes=room_bytes)
        self.carry_out(hosted, hosted.group.sync(request, self._host.now_ms()))

    def leave(self, hosted: HostedGroup, leaving: Sequence[tuple[str, str | None, str]]) -> Sequence[ErrorCode]:
        """Let members leave (`ConsumerGroup.leave`)."""
        if hosted.is_moving:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leaving)
        errors, effects = hosted.group.leave(leaving, self._host.now_ms())
        self.carry_out(hosted, effects)
        return errors

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

    def check_staging(
        self, hosted: HostedGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Say whether these may stage offsets now (`ConsumerGroup.check_staging`)."""
        code = hosted.group.check_staging(member_id, group_instance_id, generation_id)
        if code is not ErrorCode.NONE:
            self.settle(hosted)
        return code

    def carry_out(self, hosted: HostedGroup, effects: Effects) -> None:
        """Carry out what a group's state machine has asked for, and see to its next deadline."""
        if hosted.is_removed:
            return
        self._account(hosted)
        for fact in effects.facts:
            self._tell_group(fact.kind, hosted.group_id, f"{fact.cause} (generation {fact.term})")
        if effects.save is not None:
            self._save(hosted, effects.save)
        self.runtime.in_slices(_give(effects.answers))
        self.settle(hosted)

    def settle(self, hosted: HostedGroup) -> None:
        """Arm a group's deadline after anything that it was told; forget it if there is nothing to know of it."""
        if hosted.is_removed or self.runtime.state is not ShardState.ACTIVE:
            return
        self._arm(hosted)
        group_id = hosted.group_id
        if (
            hosted.group.state is GroupState.EMPTY
            and hosted.group.deadline_ms is None
            and not hosted.saves
            and not hosted.is_deleting
            and not hosted.is_moving
            and group_id not in self._table.saved
            and not self.offsets.of_group(group_id)
            and not self.staging.staged.of_group(group_id)
            and not self.under_way.of_owner(group_id)
        ):
            self._take_out(hosted)

    def remove_group(self, hosted: HostedGroup, done: Done | None = None) -> None:
        """Delete an empty group and its offsets, also what is under way: the tombstones come behind that.

        It is gone at once; `done` says when that can be relied on. Of a group with very many offsets they go first, a
        part at a time; nothing of that name can be asked for meanwhile.
        """
        assert hosted.group.state is GroupState.EMPTY
        hosted.is_deleting = True
        self.runtime.in_slices(self._remove(hosted, done))

    def _remove(self, hosted: HostedGroup, done: Done | None) -> Steps:
        group_id = hosted.group_id
        places = self._places_of(group_id)
        is_saved = group_id in self._table.saved or GroupKey(group_id) in self.under_way
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

    def _places_of(self, group_id: str) -> list[tuple[str, int]]:
        """Return where a group has, or may have in a moment, an offset."""
        known = self.offsets.of_group(group_id)
        coming = (name for name in self.under_way.of_owner(group_id) if not isinstance(name, GroupKey | ConsumerKey))
        others = (*self.staging.staged.of_group(group_id), *(name[1:3] for name in coming))
        return [*known, *dict.fromkeys(place for place in others if place not in known)]

    def remove(self, hosted: HostedGroup | HostedConsumers, done: Done | None = None) -> None:
        """Delete an empty group of either kind, as `remove_group` does."""
        if isinstance(hosted, HostedGroup):
            self.remove_group(hosted, done)
            return
        assert not hosted.group.members
        hosted.is_deleting = True
        self.runtime.in_slices(self._remove_consumers(hosted, done))

    def _remove_consumers(self, hosted: HostedConsumers, done: Done | None) -> Steps:
        places = self._places_of(hosted.group_id)
        for begin in range(0, len(places), DELETED_STEP):
            some = places[begin : begin + DELETED_STEP]
            if not self.write_offsets([(OffsetKey(hosted.group_id, *place), None) for place in some], None):
                hosted.is_deleting = False
                _tell(done, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            yield
        if self.consumers.remove(hosted, done) is not ErrorCode.NONE:
            hosted.is_deleting = False

    def make_way_for_classic(self, group_id: str) -> bool:
        """Let an empty group of KIP-848 become a classic one, of which nothing is saved yet; its offsets stay.

        False: there is no way. Who joins a group that has members of the other protocol must be of that one, too.
        """
        hosted = self.consumers.hosted(group_id)
        if hosted is None:
            return group_id not in self.consumers.groups
        if hosted.group.members or self.consumers.remove(hosted, None) is not ErrorCode.NONE:
            return False
        group = ConsumerGroup(group_id, self._config)
        self.groups[group_id] = HostedGroup(group_id, group)
        self._account(self.groups[group_id])
        return True

    def way_from(self, group_id: str) -> Way | Refusal:
        """Say whether a name may become a group of KIP-848, and what it is now (`Consumers`)."""
        hosted = self.groups.get(group_id)
        if hosted is None:
            return Way(None, _nothing, _nothing, _nothing, is_new=True)
        if hosted.is_deleting:
            return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group {group_id} is being deleted.")
        if hosted.is_moving:
            return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"Group {group_id} is being converted.")
        classic = None
        if hosted.group.state is not GroupState.EMPTY:
            config = self._consumer_config
            classic = generation_of(group_id, hosted.group)
            refusal = classic.refusal(upgrades=config.upgrades, size_max=min(config.size_max, CONVERTED_MAX))
            if refusal is not None:
                return refusal
        return Way(
            classic, partial(self._hold, hosted), partial(self._let_go, hosted), partial(self._leave_way, hosted)
        )

    def is_going_over(self, group_id: str) -> bool:
        """Tell whether a classic group has become one of KIP-848 that is not committed yet: it is shown as neither."""
        is_hosted = self.consumers.hosted(group_id) is not None
        return is_hosted and self.consumers.saved(group_id) is None and self.saved(group_id) is not None

    def refusal_of_other(self, group_id: str, member_id: str, instance_id: str | None) -> Refusal | None:
        """Say what a member of KIP-848 hears which was thrown out before its group went back (`Consumers`).

        It joins again, and takes the group along; at GROUP_ID_NOT_FOUND clients end (trap G11). But an instance that
        has another process by now hears of it.
        """
        hosted = self.group(group_id)
        if hosted is None:
            return None
        holder = None if instance_id is None else hosted.group.member_of_instance(instance_id)
        if holder is not None:
            who = f"Static member {member_id} with instance id {instance_id}"
            return Refusal(ErrorCode.FENCED_INSTANCE_ID, f"{who} was fenced by member {holder}.")
        text = f"Member {member_id} is not a member of group {group_id}, which is a classic group."
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, text)

    def _hold(self, hosted: HostedGroup) -> None:
        hosted.is_moving = True

    def _let_go(self, hosted: HostedGroup) -> None:
        hosted.is_moving = False
        self._finish_saves(hosted)
        self.settle(hosted)

    def _leave_way(self, hosted: HostedGroup) -> None:
        """Let a classic group end that is one of KIP-848 now: whoever waits joins that one."""
        effects = hosted.group.end(ErrorCode.REBALANCE_IN_PROGRESS)
        self._take_out(hosted)
        self.runtime.in_slices(_give(effects.answers))

    def take_back(self, group_id: str, saved: SavedGroup) -> None:
        """Have a group that was one of KIP-848 be a classic one, whose record is appended (`Consumers`)."""
        now_ms = self._host.now_ms()
        group = at_once(ConsumerGroup.from_saved_in_steps(group_id, saved, self._config, now_ms))
        hosted = self.groups[group_id] = HostedGroup(group_id, group)
        hosted.changed_at_ms = saved.current_state_timestamp_ms
        self._account(hosted)
        self.settle(hosted)

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
            self.runtime.in_slices(self._append_saves(hosted))

    def _append_saves(self, hosted: HostedGroup) -> Steps:
        """Append the saves that the group has asked for, in its order, and those that it asks for meanwhile."""
        while (save := next((save for save in hosted.saves if not save.is_begun), None)) is not None:
            value = yield from encode_group_in_steps(save.record)
            if hosted.is_removed or hosted.is_deleting or self.runtime.state is not ShardState.ACTIVE:
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
        """Append a group's record, also given as its value, or its tombstone; returns as `ShardRuntime.append`."""
        key = encode_group_key(group_id)
        saved, value = record or (None, None)
        size_bytes = 0 if value is None else len(key) + len(value)
        if size_bytes > self.runtime.record_bytes_max and value is not None:
            bytes_max = self.runtime.partition.rules.message_bytes_max
            text = f"its record of {size_bytes} bytes does not fit into the log: {bytes_max}"
            self._tell_group("group not saved", group_id, text)
            return ErrorCode.MESSAGE_TOO_LARGE
        put = partial(self._table.put_group, group_id, saved, size_bytes)
        return self.runtime.append([(key, value)], [GroupKey(group_id)], put, done)

    def _finish_saves(self, hosted: HostedGroup) -> None:
        """Tell the group of its saves in their order: one that cannot begin fails before an older one is through."""
        if hosted.is_moving:
            return
        while hosted.saves and (outcome := hosted.saves[0].outcome) is not None:
            save = hosted.saves.popleft()
            if not hosted.is_removed and self.runtime.state is ShardState.ACTIVE:
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
        if hosted.is_removed or hosted.is_moving or self.runtime.state is not ShardState.ACTIVE:
            return
        if not self.runtime.partition.can_serve:
            # This node stood still: neither the members' silence nor its own leadership mean anything now.
            self.runtime.recover()
            return
        now_ms = self._host.now_ms()
        at_ms = hosted.group.deadline_ms
        try:
            if at_ms is not None and at_ms <= now_ms:
                self.carry_out(hosted, hosted.group.tick(now_ms))
            else:
                self.settle(hosted)
        except AssertionError as error:
            self._host.fail(error)
            raise

    # Offsets.

    def has_room_for(self, key: OffsetKey, value: CommittedOffset) -> bool:
        """Tell whether that may be stored: it takes no more than what is there already, or there is room."""
        growth = self.offsets.growth(key, value)
        return growth <= 0 or growth <= self._room.for_additions_bytes or key in self.under_way

    def write_offsets(self, changes: Sequence[Change], done: Done | None) -> bool:
        """Append offsets, or tombstones for None; they show when they are committed. `done` is called once.

        False: not all of them could be appended, and `done` was told why.

        Raises:
            ValueError: a name or a note does not fit its field; nothing was appended.
        """
        assert changes
        batches = in_batches(changes, BATCH_BYTES_MAX)
        for number, (batch, records) in enumerate(batches, 1):
            # They commit in order, so the last one speaks for all.
            last = done if number == len(batches) else None
            names = [key for key, _ in batch]
            error = self.runtime.append(records, names, partial(self._put_offsets, batch), last)
            if error is not ErrorCode.NONE:
                _tell(done, error)
                return False
        return True

    def _put_offsets(self, changes: Iterable[Change]) -> None:
        for key, value in changes:
            self._table.put_offset(key, value)


def _give(answers: Collection[Answer]) -> Steps:
    """Give the answers to the requests that are parked."""
    unsaid = iter(answers)
    begun = 0
    while begun < len(answers):
        if begun:
            yield
        call_each(islice(unsaid, ANSWERS_STEP), _give_one)
        begun += ANSWERS_STEP


def _give_one(answer: Answer) -> None:
    cast("Parked", answer.ticket).on_answer(answer)


def _nothing() -> None:
    pass


def _tell(done: Done | None, error: ErrorCode) -> None:
    if done is not None:
        done(error)
