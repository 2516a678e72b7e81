"""Serves the groups of KIP-848 of one offsets partition, on the broker that leads it: the part of the shard that does.

A group's rules decide (`consumer.group`), and what they change is appended at once; it is answered when it is
committed. So the group that members talk to is ahead of the table, and what is told of it never goes back. If the log
does not take something, the group takes it back.

*Targets* are made in slices, beside what else there is to do, one at a time for each group. Members that join wait for
theirs; those who are there go on with the old one. A plan that comes to nothing, because its group has changed too
much, is followed by another.

*Two kinds of groups.* A name is a group of the one kind or of the other. An empty one becomes the other kind when a
member of that kind joins: its offsets stay. While it has members it stays what it is.

Limits: as for all groups (`state_machine.room`); of one group, `consumer.group`. A request that waits for a target is
its connection's, and is answered when it has waited for too long (`handlers.consumer_group_heartbeat`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas_broker.coordinators.room import Room
from barnabas_broker.coordinators.runtime.contracts import Done, KeyAndValue, Name, Steps
from barnabas_broker.coordinators.runtime.shard import BATCH_BYTES_MAX, ShardRuntime, ShardState
from barnabas_clients.protocol.error_codes import ErrorCode

from .consumer.group import Change, ConsumerProtocolGroup
from .consumer.messages import Assign, Beat, ConsumerAnswer, ConsumerConfig, Plan, Refusal, Topics
from .consumer.pace import Pace
from .consumer.saved import GroupRecords
from .consumer.values import ConsumerKey, Kind
from .hosted_consumers import Flight, HostedConsumers, ParkedBeat, Waiting
from .state_machine.records import GroupKey, encode_group_key
from .table import GroupTable, record_of_consumer

__all__ = ["ConsumerSettings", "Consumers"]

GROUPS_STEP = 100  # groups that begin or end, between two yields
ANSWERS_STEP = 20  # members that are taken a step further
REFUSED_MS = 1_000
"""So long after the log has refused a target no other one is made."""
_OVER = object()


class ConsumerSettings(NamedTuple):
    """Everything that the groups of all shards have in common."""

    config: ConsumerConfig
    assign_in_steps: Assign
    topics: Topics
    pace: Pace


class Consumers:
    """See the module. Owned by its shard; `groups` has every group of this kind that the partition knows.

    `tell` remembers an event of a group. `convert` is asked whether a name may become a group of this kind, and returns
    what is to be called when it is one; None: it may not.
    """

    def __init__(
        self,
        runtime: ShardRuntime[GroupTable, Any],
        settings: ConsumerSettings,
        room: Room,
        tell: Callable[[str, str, str], None],
        convert: Callable[[str], Callable[[], None] | None],
    ) -> None:
        self.groups: dict[str, HostedConsumers] = {}
        self.held_bytes = 0
        self._runtime = runtime
        self._host = runtime.host
        self._settings = settings
        self._topics = settings.topics
        self._room = room
        self._tell = tell
        self._convert = convert

    def saved(self, group_id: str) -> GroupRecords | None:
        """Return what is committed of a group; None: there is no such group."""
        return self._runtime.standby.table.consumers.get(group_id)

    def all_saved(self) -> list[GroupRecords]:
        """Return what is committed of every group."""
        return list(self._runtime.standby.table.consumers.values())

    def hosted(self, group_id: str) -> HostedConsumers | None:
        """Return the group, unless there is none, or not much longer."""
        hosted = self.groups.get(group_id)
        return None if hosted is None or hosted.is_deleting else hosted

    # The beginning and the end, as the shard's.

    def build_in_steps(self, table: GroupTable) -> Steps:
        config, assign_in_steps = self._settings[:2]
        for group_id, saved in list(table.consumers.items()):
            now_ms = self._host.now_ms()
            group = yield from ConsumerProtocolGroup.from_saved_in_steps(saved, config, assign_in_steps, now_ms)
            self.groups[group_id] = HostedConsumers(group_id, group)
            yield

    def begin_in_steps(self) -> Steps:
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if self._is_alive(hosted):
                hosted.group.restart_sessions(self._host.now_ms())
                self._settle(hosted)
            if not number % GROUPS_STEP:
                yield

    def recover_in_steps(self) -> Steps:
        yield from self.begin_in_steps()

    def end_in_steps(self, error: ErrorCode) -> Steps:
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if hosted.deadline is not None:
                self._host.timers.cancel(hosted.deadline)
            hosted.is_removed = True
            hosted.group.close(self._topics)
            self._refuse_waiting(hosted, error)
            if not number % GROUPS_STEP:
                yield

    def _is_alive(self, hosted: HostedConsumers) -> bool:
        return not hosted.is_removed and self._runtime.state is ShardState.ACTIVE

    # Heartbeats.

    def beat(self, group_id: str, beat: Beat, ticket: ParkedBeat) -> None:
        """Hear of a member that joins or stays; `ticket` is answered once, now or later."""
        hosted = self.groups.get(group_id)
        became: Callable[[], None] | None = None
        if hosted is None and beat.joins:
            became = self._convert(group_id)
            if became is not None:
                config, assign_in_steps = self._settings[:2]
                hosted = HostedConsumers(group_id, ConsumerProtocolGroup(group_id, config, assign_in_steps))
        if hosted is None or hosted.is_deleting:
            ticket.on_answer(_missing(group_id, hosted))
            return
        now_ms = self._host.now_ms()
        heard = hosted.group.hear(beat, self._topics, now_ms)
        refusal = heard if isinstance(heard, Refusal) else self._room_refusal(hosted, beat)
        if isinstance(heard, Refusal) or refusal is not None:
            hosted.group.undo()
            ticket.on_answer(refusal or heard)  # type: ignore[arg-type]  # one of both is one
            self._settle(hosted)
            return
        if became is not None and not self._begin(hosted, became, ticket):
            return
        self._consider_plan(hosted)
        if beat.joins and hosted.group.target_number < heard.epoch:
            hosted.waiting.append(Waiting(heard, ticket))
            self._flush(hosted, [])
        else:
            self._answer(hosted, [Waiting(heard, ticket)])
        self._settle(hosted)

    def leave(self, group_id: str, beat: Beat, ticket: ParkedBeat) -> None:
        """Hear of a member that leaves, for good or for a while; likewise."""
        hosted = self.groups.get(group_id)
        if hosted is None or hosted.is_deleting:
            ticket.on_answer(_missing(group_id, hosted))
            return
        refusal = hosted.group.leave(beat, self._topics, self._host.now_ms())
        if refusal is not None:
            ticket.on_answer(refusal)
            return
        answer = ConsumerAnswer(beat.member_id, beat.epoch, None, 0)
        self._flush(hosted, [partial(_give, ticket, answer)])
        self._consider_plan(hosted)
        self._settle(hosted)

    def _begin(self, hosted: HostedConsumers, became: Callable[[], None], ticket: ParkedBeat) -> bool:
        """Write the first records of a group; it is one from then on."""
        error = self._flush(hosted, [])
        if error is not ErrorCode.NONE:
            ticket.on_answer(Refusal(error, "The group could not be written."))
            return False
        became()
        self.groups[hosted.group_id] = hosted
        return True

    def _room_refusal(self, hosted: HostedConsumers, beat: Beat) -> Refusal | None:
        # What is held is held twice: here and, once committed, in the table.
        growth = 2 * (hosted.group.held_total_bytes - hosted.held_bytes)
        left_bytes = self._room.for_newcomers_bytes if beat.joins else self._room.for_additions_bytes
        if growth <= 0 or growth <= left_bytes:
            return None
        return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The groups of this broker hold as much as they may.")

    def _answer(self, hosted: HostedConsumers, waiting: Iterable[Waiting]) -> None:
        """Take members a step further, and tell them when that is committed."""
        now_ms = self._host.now_ms()
        dones: list[Done] = []
        for heard, ticket in waiting:
            answer = hosted.group.answer(heard, self._topics, now_ms)
            if isinstance(answer, ConsumerAnswer):
                answer = answer._replace(interval_ms=self._paced_ms(answer.interval_ms, now_ms))
            dones.append(partial(_give, ticket, answer))
        self._flush(hosted, dones)

    def _paced_ms(self, wanted_ms: int, now_ms: int) -> int:
        longest_ms = self._settings.config.heartbeat_interval_ms
        if wanted_ms >= longest_ms:
            return longest_ms
        return self._settings.pace.interval_ms(wanted_ms, longest_ms, now_ms)

    def _refuse_waiting(self, hosted: HostedConsumers, error: ErrorCode) -> None:
        while hosted.waiting:
            hosted.waiting.popleft().ticket.on_answer(Refusal(error, "The group's target could not be made."))

    # Targets.

    def _consider_plan(self, hosted: HostedConsumers) -> None:
        """Begin to make a target if one is due."""
        now_ms = self._host.now_ms()
        due_ms = self._plan_due_ms(hosted, now_ms)
        if due_ms is not None and due_ms <= now_ms and not hosted.is_planning:
            hosted.is_planning = True
            self._runtime.in_slices(self._plan(hosted))

    def _plan_due_ms(self, hosted: HostedConsumers, now_ms: int) -> int | None:
        due_ms = hosted.group.plan_due_ms(self._topics, now_ms)
        return None if due_ms is None else max(due_ms, hosted.plan_not_before_ms)

    def _plan(self, hosted: HostedConsumers) -> Steps:
        group = hosted.group
        plan = yield from group.plan_in_steps(self._topics, self._host.now_ms(), self._host.wall_ms())
        yield from self._take_plan(hosted, plan)
        hosted.is_planning = False
        if not self._is_alive(hosted):
            return
        if group.left_out and plan.targets is not None:
            self._tell("partitions left out", hosted.group_id, f"{group.left_out}, of which no member may have more")
        ready = [one for one in hosted.waiting if one.heard.epoch <= group.target_number]
        hosted.waiting = deque(one for one in hosted.waiting if one.heard.epoch > group.target_number)
        for begin in range(0, len(ready), ANSWERS_STEP):
            if begin:
                yield
            if self._is_alive(hosted):
                self._answer(hosted, ready[begin : begin + ANSWERS_STEP])
        self._settle(hosted)

    def _take_plan(self, hosted: HostedConsumers, plan: Plan) -> Steps:
        """Take a plan in, and append each part at once: a member that is refused meanwhile takes nothing of it back."""
        steps = hosted.group.take_plan_in_steps(plan, self._topics, self._host.now_ms(), self._host.wall_ms())
        is_over = False
        while self._is_alive(hosted) and not hosted.is_deleting:
            is_over = next(steps, _OVER) is _OVER
            error = self._flush(hosted, [])
            if error is not ErrorCode.NONE:
                hosted.plan_not_before_ms = self._host.now_ms() + REFUSED_MS
                self._refuse_waiting(hosted, error)
                return
            if is_over:
                return
            yield

    # Time.

    def _settle(self, hosted: HostedConsumers) -> None:
        """Count a group anew and arm its deadline."""
        if hosted.is_removed or self.groups.get(hosted.group_id) is not hosted:
            return
        self._account(hosted)
        if self._runtime.state is not ShardState.ACTIVE:
            return
        at_ms = self._deadline_ms(hosted)
        if at_ms is None or (hosted.deadline is not None and hosted.deadline.at_ms <= at_ms):
            return
        if hosted.deadline is not None:
            self._host.timers.cancel(hosted.deadline)
        hosted.deadline = self._host.timers.add(at_ms - self._host.now_ms(), partial(self._on_deadline, hosted))

    def _deadline_ms(self, hosted: HostedConsumers) -> int | None:
        plan_ms = None
        if not hosted.is_planning and (hosted.waiting or hosted.group.target_number < hosted.group.epoch_number):
            plan_ms = self._plan_due_ms(hosted, self._host.now_ms())
        found = [at_ms for at_ms in (plan_ms, hosted.group.deadline_ms) if at_ms is not None]
        return min(found, default=None)

    def _on_deadline(self, hosted: HostedConsumers) -> None:
        hosted.deadline = None
        if not self._is_alive(hosted):
            return
        if not self._runtime.partition.can_serve:
            # This node stood still: the members' silence means nothing now.
            self._runtime.recover()
            return
        try:
            for member_id, why in hosted.group.tick(self._topics, self._host.now_ms()):
                self._tell("member thrown out", hosted.group_id, f"{member_id} {why}")
            self._flush(hosted, [])
            self._consider_plan(hosted)
            self._settle(hosted)
        except AssertionError as error:
            self._host.fail(error)
            raise

    def _account(self, hosted: HostedConsumers) -> None:
        held_bytes = 0 if hosted.is_removed else hosted.group.held_total_bytes
        self.held_bytes += held_bytes - hosted.held_bytes
        hosted.held_bytes = held_bytes
        self._runtime.shard.settle_account()

    # The end of a group.

    def remove(self, hosted: HostedConsumers, done: Done | None) -> ErrorCode:
        """Write tombstones for an empty group; it is gone at once. `done` says when that can be relied on."""
        hosted.group.remove()
        error = self._flush(hosted, [] if done is None else [done])
        if error is ErrorCode.NONE:
            self.take_out(hosted)
        return error

    def take_out(self, hosted: HostedConsumers) -> None:
        """Forget a group, of which nothing is left."""
        hosted.is_removed = True
        hosted.group.close(self._topics)
        if hosted.deadline is not None:
            self._host.timers.cancel(hosted.deadline)
        if self.groups.get(hosted.group_id) is hosted:
            del self.groups[hosted.group_id]
        self._account(hosted)

    # The log.

    def _flush(self, hosted: HostedConsumers, dones: list[Done]) -> ErrorCode:
        """Append what a group has changed; call `dones` when it is committed, or cannot be.

        If nothing has changed they are called when what is under way of the group is committed: what it knows may be
        of that. If something cannot be appended, the group takes it back.
        """
        changes = hosted.group.take_changes()
        if not changes:
            self._attach(hosted, dones)
            return ErrorCode.NONE
        batches = list(_in_batches(changes))
        for number, batch in enumerate(batches):
            flight = Flight(dones if number + 1 == len(batches) else [])
            error = self._append(hosted, batch, flight)
            if error is not ErrorCode.NONE:
                hosted.group.undo(change for rest in batches[number:] for change in rest.changes)
                Flight(dones).land(error)
                return error
        return ErrorCode.NONE

    def _attach(self, hosted: HostedConsumers, dones: list[Done]) -> None:
        if hosted.flights:
            hosted.flights[-1].dones += dones
        else:
            Flight(dones).land(ErrorCode.NONE)

    def _append(self, hosted: HostedConsumers, batch: "_Batch", flight: Flight) -> ErrorCode:
        longest = max(len(key) + len(value or b"") for key, value in batch.records)
        if longest > self._runtime.record_bytes_max:
            self._tell("group not saved", hosted.group_id, f"a record of {longest} bytes does not fit into the log")
            return ErrorCode.UNKNOWN_SERVER_ERROR
        records: list[KeyAndValue] = batch.records
        names: list[Name] = [*batch.names]
        table = self._runtime.standby.table
        old = GroupKey(hosted.group_id)
        is_first = hosted.group_id not in self.groups
        if is_first and (hosted.group_id in table.saved or old in self._runtime.under_way):
            records, names = [(encode_group_key(hosted.group_id), None), *records], [old, *names]
        put = partial(self._put, batch, hosted.group_id if is_first else None)
        # The log may tell before it returns.
        hosted.flights.append(flight)
        error = self._runtime.append(records, names, put, partial(self._land, hosted, flight))
        if error is not ErrorCode.NONE:
            hosted.flights.pop()
        return error

    def _put(self, batch: "_Batch", converted: str | None) -> None:
        table = self._runtime.standby.table
        if converted is not None:
            table.put_group(converted, None, 0)
        for change in batch.changes:
            table.put_consumer(change.key, change.value)

    def _land(self, hosted: HostedConsumers, flight: Flight, error: ErrorCode) -> None:
        if flight in hosted.flights:
            hosted.flights.remove(flight)
        flight.land(error)


class _Batch:
    """Changes that are appended together, with their records."""

    __slots__ = ("changes", "names", "records", "size_bytes")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.names: list[ConsumerKey] = []
        self.records: list[KeyAndValue] = []
        self.size_bytes = 0

    def add(self, change: Change) -> None:
        record = record_of_consumer(change.key, change.value)
        self.changes.append(change)
        self.names.append(change.key)
        self.records.append(record)
        self.size_bytes += len(record[0]) + len(record[1] or b"")


def _in_batches(changes: Sequence[Change]) -> Iterator[_Batch]:
    """Yield the changes in batches; targets may be in batches of their own, all else stays together."""
    batch = _Batch()
    for change in changes:
        if batch.size_bytes >= BATCH_BYTES_MAX and change.key.kind is Kind.TARGET:
            yield batch
            batch = _Batch()
        batch.add(change)
    yield batch


def _missing(group_id: str, hosted: HostedConsumers | None) -> Refusal:
    if hosted is not None:  # It is being deleted, and there may be a new one in a moment.
        return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Consumer group {group_id} is being deleted.")
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def _give(ticket: ParkedBeat, answer: ConsumerAnswer | Refusal, error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        answer = Refusal(error, "What the group has changed is not committed.")
    ticket.on_answer(answer)
