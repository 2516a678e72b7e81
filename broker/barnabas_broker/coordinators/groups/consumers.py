"""Serves the groups of KIP-848 of one offsets partition, on the broker that leads it: the part of the shard that does.

A group's rules decide (`consumer.group`), and what they change is appended at once; it is answered when it is
committed. So the group that members talk to is ahead of the table, and what is told of it never goes back. If the log
does not take something, the group takes it back.

*Targets* are made in slices, beside what else there is to do, one at a time for each group. Members that join wait for
theirs; those who are there go on with the old one. A plan that comes to nothing, because its group has changed too
much, is followed by another.

*One batch.* What a member that waits has changed is held back, and written with its target and the answer, or with
whatever is written of the group before: nobody was told of it. So a group of a few members that start together is one
batch in the log.

*Two kinds of groups.* A name is a group of the one kind or of the other. An empty one becomes the other kind when a
member of that kind joins: its offsets stay. A classic one that has members becomes one of these when the first of the
other kind joins, and one of these that is left with classic members becomes a classic one (`consumer.conversion`), if
the settings have it. That is one batch, so that a new coordinator finds the one or the other; while it is being made
the group stands still (`is_moving`), and whoever wants to change it comes again in a moment.

*Members of the classic protocol* in one of these join, sync and leave by the methods of their names, and are answered
when what they hear is committed.

Limits: as for all groups (`state_machine.room`); of one group, `consumer.group`. A request that waits for a target is
its connection's, and is answered when it has waited for too long (`handlers.consumer_group_heartbeat`).
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

from barnabas_broker.coordinators.room import Room
from barnabas_broker.coordinators.runtime.contracts import Done, Steps
from barnabas_broker.coordinators.runtime.shard import ShardRuntime, ShardState
from barnabas_clients.protocol.error_codes import ErrorCode

from .consumer.conversion import classic_members_in_steps, take_over_in_steps
from .consumer.group import Change
from .consumer.messages import Assign, Beat, ConsumerAnswer, ConsumerConfig, Plan, Refusal, Topics
from .consumer.mixed import ClassicJoin, MixedGroup
from .consumer.pace import Gathering, Pace
from .consumer.saved import STABLE, GroupRecords
from .consumer_batches import Batch, in_batches
from .hosted_consumers import Flight, HostedConsumers, ParkedBeat, Waiting
from .migration import Way, saved_of
from .state_machine.messages import SavedGroup
from .state_machine.records import GroupKey, encode_group_in_steps
from .table import GroupTable

__all__ = ["ConsumerSettings", "Consumers"]

GROUPS_STEP = 100  # groups that begin or end, and their members, between two yields
ANSWERS_STEP = 20  # members that are taken a step further
RECORDS_STEP = 50  # that are encoded
_TOPICS_UNKNOWN = Refusal(
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The broker does not know yet which topics there are."
)
REFUSED_MS = 1_000
"""So long after the log has refused a target no other one is made."""
_OVER = object()


class ConsumerSettings(NamedTuple):
    """Everything that the groups of all shards have in common. `of_group`: the settings that hold for one of them."""

    config: ConsumerConfig
    of_group: Callable[[str], ConsumerConfig]
    assign_in_steps: Assign
    topics: Topics
    pace: Pace
    settled_pace: Pace
    gathering: Gathering


class Classics(Protocol):
    """The classic groups of the same partition."""

    def way_from(self, group_id: str) -> Way | Refusal:
        """Say whether a name may become a group of KIP-848, and what it is now."""

    def refusal_of_other(self, group_id: str, member_id: str, instance_id: str | None) -> Refusal | None:
        """Say what somebody hears who takes a classic group for one of KIP-848. None: there is no such group."""

    def take_back(self, group_id: str, saved: SavedGroup) -> None:
        """Have a name be a classic group, whose record is appended."""


class Consumers:
    """See the module. Owned by its shard; `groups` has every group of this kind that the partition knows.

    `tell` remembers an event of a group.
    """

    def __init__(
        self,
        runtime: ShardRuntime[GroupTable, Any],
        settings: ConsumerSettings,
        room: Room,
        tell: Callable[[str, str, str], None],
        classics: Classics,
    ) -> None:
        self.groups: dict[str, HostedConsumers] = {}
        self.held_bytes = 0
        self._runtime = runtime
        self._host = runtime.host
        self._settings = settings
        self._topics = settings.topics
        self._room = room
        self._tell = tell
        self._classics = classics

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

    def configure(self, group_id: str) -> None:
        """Have a group go by what is set for it now, if it is here."""
        hosted = self.hosted(group_id)
        if hosted is not None:
            hosted.group.configure(self._settings.of_group(group_id), self._host.now_ms())
            self._settle(hosted)

    # The beginning and the end, as the shard's.

    def build_in_steps(self, table: GroupTable) -> Steps:
        assign_in_steps = self._settings.assign_in_steps
        if table.consumers:
            self._topics.want()
        for group_id, saved in list(table.consumers.items()):
            now_ms = self._host.now_ms()
            config = self._settings.of_group(group_id)
            group = yield from MixedGroup.from_saved_in_steps(saved, config, assign_in_steps, now_ms)
            self.groups[group_id] = HostedConsumers(group_id, group)
            yield

    def begin_in_steps(self) -> Steps:
        work = 0
        for hosted in list(self.groups.values()):
            if self._is_alive(hosted):
                hosted.group.restart_sessions(self._host.now_ms())
                self._settle(hosted)
            work += 1 + len(hosted.group.members) // 10
            if work >= GROUPS_STEP:
                work = 0
                yield

    def recover_in_steps(self) -> Steps:
        yield from self.begin_in_steps()

    def end_in_steps(self, error: ErrorCode) -> Steps:
        for number, hosted in enumerate(list(self.groups.values()), 1):
            if hosted.deadline is not None:
                self._host.timers.cancel(hosted.deadline)
            hosted.is_removed = True
            hosted.group.close(self._topics)
            yield from self._refuse_waiting_in_steps(hosted, error)
            if not number % GROUPS_STEP:
                yield

    def _is_alive(self, hosted: HostedConsumers) -> bool:
        return not hosted.is_removed and self._runtime.state is ShardState.ACTIVE

    # Heartbeats.

    def beat(self, group_id: str, beat: Beat, ticket: ParkedBeat) -> None:
        """Hear of a member that joins or stays; `ticket` is answered once, now or later."""
        hosted = self.groups.get(group_id)
        if hosted is None and beat.joins:
            way = self._classics.way_from(group_id)
            if isinstance(way, Refusal):
                ticket.on_answer(way)
                return
            self._topics.want()
            if way.classic is not None and not self._topics.is_known:
                ticket.on_answer(_TOPICS_UNKNOWN)
                return
            config = self._settings.of_group(group_id)
            group = MixedGroup(group_id, config, self._settings.assign_in_steps)
            hosted = HostedConsumers(group_id, group)
            if way.is_new and not self._has_classic_record(group_id):
                self._begin(hosted, beat, ticket)
            else:
                self._runtime.in_slices(self._come_over(hosted, way, beat, ticket))
        elif hosted is None or hosted.is_busy:
            refusal = self._classics.refusal_of_other(group_id, beat.member_id, beat.instance_id)
            ticket.on_answer(refusal or _missing(group_id, hosted))
        else:
            self._hear(hosted, beat, ticket)

    def _begin(self, hosted: HostedConsumers, beat: Beat, ticket: ParkedBeat) -> None:
        """Begin a group of whose name nothing is known."""
        self.groups[hosted.group_id] = hosted
        if not self._hear(hosted, beat, ticket) and not hosted.is_removed:
            self.take_out(hosted)

    def _come_over(self, hosted: HostedConsumers, way: Way, beat: Beat, ticket: ParkedBeat) -> Steps:
        """Begin a group, with the members of the classic one that has its name, if there are any."""
        batch = Batch()
        refusal: Refusal | None = None
        if way.classic is not None:
            way.hold()
            refusal = yield from take_over_in_steps(hosted.group, way.classic, self._topics)
            yield from _fill(batch, hosted.group.take_changes())
            # Who has died as a classic member is not heard of here, but must not stay.
            hosted.group.restart_sessions(self._host.now_ms())
        if self._runtime.state is not ShardState.ACTIVE:
            refusal = Refusal(ErrorCode.NOT_COORDINATOR, "The group has another coordinator.")
        if refusal is not None:
            ticket.on_answer(refusal)
            way.let_go()
        elif self._hear(hosted, beat, ticket, batch):
            self.groups[hosted.group_id] = hosted
            if way.classic is not None:
                count = len(way.classic.members)
                self._tell("group converted", hosted.group_id, f"{count} classic members, and the first of KIP-848")
            way.leave()
            self._settle(hosted)
        else:
            hosted.group.close(self._topics)
            way.let_go()

    def join(self, group_id: str, join: ClassicJoin, ticket: ParkedBeat, *, wants_id: bool) -> None:
        """Hear of a member that joins with the classic protocol; `wants_id`: it has no member id, and wants one first.

        The group must be there, and have members.
        """
        hosted = self.groups[group_id]
        config = self._settings.config
        group = hosted.group
        if hosted.is_busy:
            ticket.on_answer(Refusal(ErrorCode.REBALANCE_IN_PROGRESS, "The group is being converted."))
            return
        if not self._topics.is_known:
            ticket.on_answer(_TOPICS_UNKNOWN)
            return
        if not (config.upgrades or config.downgrades):
            text = "Classic members may not join the group: the migration of groups is disabled."
            ticket.on_answer(Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text))
            return
        is_there = join.member_id in group.members or (join.instance_id or "") in group.instances
        if len(group.members) >= config.size_max and not is_there:
            ticket.on_answer(Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group is full."))
            return
        beat = group.beat_of(join, self._topics)
        if isinstance(beat, Beat) and wants_id:
            beat = Refusal(ErrorCode.MEMBER_ID_REQUIRED, "The member is to join with its id.")
        if isinstance(beat, Refusal):
            ticket.on_answer(beat)
            return
        if self._hear(hosted, beat, ticket) and group.becomes_classic:
            self._go_back(hosted, [], is_whole=group.state == STABLE)

    def _hear(self, hosted: HostedConsumers, beat: Beat, ticket: ParkedBeat, first: Batch | None = None) -> bool:
        """Hear of a member of a group; `first`: what it begins with. False: it was refused."""
        now_ms = self._host.now_ms()
        heard = hosted.group.hear(beat, self._topics, now_ms)
        refusal = heard if isinstance(heard, Refusal) else self._room_refusal(hosted, beat)
        if isinstance(heard, Refusal) or refusal is not None:
            hosted.group.undo()
            ticket.on_answer(refusal or heard)  # type: ignore[arg-type]  # one of both is one
            self._settle(hosted)
            return False
        if first is not None:
            error = self._flush(hosted, [], first)
            if error is not ErrorCode.NONE:
                ticket.on_answer(Refusal(error, "The group could not be written."))
                return False
        self._consider_plan(hosted)
        if beat.joins and hosted.group.target_number < heard.epoch:
            # It is written with its target: nobody hears of it before.
            if hosted.group.gathers_since_ms is not None:
                self._settings.gathering.come(now_ms)
            hosted.waiting.append(Waiting(heard, ticket))
            hosted.held += hosted.group.take_changes()
        else:
            self._answer(hosted, [Waiting(heard, ticket)])
        self._settle(hosted)
        return True

    def leave(self, group_id: str, beat: Beat, ticket: ParkedBeat) -> None:
        """Hear of a member that leaves, for good or for a while; likewise."""
        hosted = self.groups.get(group_id)
        if hosted is None or hosted.is_busy:
            ticket.on_answer(_missing(group_id, hosted))
            return
        refusal = hosted.group.leave(beat, self._topics, self._host.now_ms())
        if refusal is not None:
            ticket.on_answer(refusal)
            return
        answer = ConsumerAnswer(beat.member_id, beat.epoch, None, 0)
        self._conclude(hosted, [partial(_give, ticket, answer)])

    def leave_classic(self, group_id: str, leaving: Sequence[tuple[str, str | None]]) -> Sequence[ErrorCode]:
        """Take members out that say so with the classic protocol: (member id, instance id) of each; an error for each.

        The group must be there.
        """
        hosted = self.groups[group_id]
        if hosted.is_busy:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leaving)
        errors = hosted.group.leave_classic(leaving, self._topics, self._host.now_ms())
        self._conclude(hosted, [])
        return errors

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Hear of a classic member of a group, which must be there (`MixedGroup.heartbeat`)."""
        hosted = self.groups[group_id]
        code = hosted.group.heartbeat(member_id, instance_id, generation_id, self._host.now_ms())
        self._settle(hosted)
        return code

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        protocol: tuple[str | None, str | None],
        ticket: "ParkedSync",
    ) -> None:
        """Give a classic member of a group, which must be there, what it may use, when that is committed."""
        hosted = self.groups[group_id]
        if hosted.is_busy or not self._topics.is_known:
            # Members of this protocol name topics, whose ids the group has. They join again.
            ticket.on_answer(ErrorCode.REBALANCE_IN_PROGRESS)
            return
        now_ms = self._host.now_ms()
        found = hosted.group.sync(member_id, instance_id, generation_id, protocol, self._topics, now_ms)
        if isinstance(found, ErrorCode):
            ticket.on_answer(found)
        else:
            self._attach(hosted, [lambda error: ticket.on_answer(found if error is ErrorCode.NONE else error)])
        self._settle(hosted)

    def _conclude(self, hosted: HostedConsumers, dones: list[Done]) -> None:
        """Write that members have gone; of those who are left the group may become a classic one."""
        if hosted.group.becomes_classic and self._topics.is_known:
            self._go_back(hosted, dones, is_whole=False)
            return
        self._flush(hosted, dones)
        self._consider_plan(hosted)
        self._settle(hosted)

    def _go_back(self, hosted: HostedConsumers, dones: list[Done], *, is_whole: bool) -> None:
        """Have a group be a classic one, together with what it has changed; `is_whole`: its members have everything."""
        hosted.is_moving = True
        self._runtime.in_slices(self._going_back(hosted, dones, is_whole))

    def _going_back(self, hosted: HostedConsumers, dones: list[Done], is_whole: bool) -> Steps:
        group = hosted.group
        protocol = group.chosen_protocol()
        members = yield from classic_members_in_steps(group, protocol, self._topics)
        saved = saved_of(group.epoch_number, protocol, members, self._host.wall_ms(), is_whole=is_whole)
        value = yield from encode_group_in_steps(saved)
        batch = Batch()
        unsaid = hosted.take_changes()
        yield from _fill(batch, chain(unsaid, group.tombstones()))
        batch.put_classic(hosted.group_id, saved, value)
        if not self._is_alive(hosted):
            Flight(dones).land(ErrorCode.NOT_COORDINATOR)
            return
        error = self._append(hosted, batch, Flight(dones))
        hosted.is_moving = False
        if error is ErrorCode.NONE:
            self.take_out(hosted)
            self._tell("group converted", hosted.group_id, f"{len(members)} classic members are left")
            self._classics.take_back(hosted.group_id, saved)
            # Of the others nobody is there any more: an instance may have been taken over before it was answered.
            error = ErrorCode.REBALANCE_IN_PROGRESS
            yield from self._refuse_waiting_in_steps(hosted, error, of_others=ErrorCode.UNKNOWN_MEMBER_ID)
            return
        self._tell("group not converted", hosted.group_id, f"the log does not take it: {error.name}")
        group.give_back(unsaid)
        group.stay(self._host.now_ms())
        self._flush(hosted, dones)
        self._consider_plan(hosted)
        self._settle(hosted)

    def _room_refusal(self, hosted: HostedConsumers, beat: Beat) -> Refusal | None:
        # What is held is held twice: here and, once committed, in the table.
        growth = 2 * (hosted.group.held_total_bytes - hosted.held_bytes)
        left_bytes = self._room.for_newcomers_bytes if beat.joins else self._room.for_additions_bytes
        if growth <= 0 or growth <= left_bytes:
            return None
        return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The groups of this broker hold as much as they may.")

    def _answer(self, hosted: HostedConsumers, waiting: Iterable[Waiting]) -> ErrorCode:
        """Take members a step further, and tell them when that is committed, with all else that has changed.

        An error: nothing could be appended, and they are told so.
        """
        now_ms = self._host.now_ms()
        dones: list[Done] = []
        for heard, ticket in waiting:
            answer = hosted.group.answer(heard, self._topics, now_ms)
            if isinstance(answer, ConsumerAnswer):
                paced_ms = self._paced_ms(hosted.group, answer.interval_ms, now_ms)
                answer = answer._replace(interval_ms=paced_ms)
                if heard.beat.classic is not None:
                    hosted.group.told(heard.beat.member_id, now_ms)
            dones.append(partial(_give, ticket, answer))
        return self._flush(hosted, dones)

    def _paced_ms(self, group: MixedGroup, wanted_ms: int, now_ms: int) -> int:
        longest_ms = group.config.heartbeat_interval_ms
        if group.state != STABLE:
            return self._settings.pace.interval_ms(wanted_ms, longest_ms, now_ms)
        soonest_ms = min(group.config.settled_interval_ms, wanted_ms)
        return self._settings.settled_pace.interval_ms(soonest_ms, longest_ms, now_ms)

    def _refuse_waiting_in_steps(
        self, hosted: HostedConsumers, error: ErrorCode, *, of_others: ErrorCode | None = None
    ) -> Steps:
        """Answer all who wait; `of_others`: who does not speak the classic protocol may hear another error."""
        text = "The group's target could not be made."
        refusal, other = Refusal(error, text), Refusal(of_others or error, text)
        waiting, hosted.waiting = hosted.waiting, deque()
        for number, one in enumerate(waiting, 1):
            one.ticket.on_answer(other if one.heard.beat.classic is None else refusal)
            if not number % ANSWERS_STEP:
                yield

    # Targets.

    def _consider_plan(self, hosted: HostedConsumers) -> None:
        """Begin to make a target if one is due."""
        now_ms = self._host.now_ms()
        due_ms = self._plan_due_ms(hosted, now_ms)
        if due_ms is not None and due_ms <= now_ms and not hosted.is_planning and not hosted.is_moving:
            hosted.is_planning = True
            self._runtime.in_slices(self._plan(hosted))

    def _plan_due_ms(self, hosted: HostedConsumers, now_ms: int) -> int | None:
        group = hosted.group
        due_ms = group.plan_due_ms(self._topics, now_ms)
        if due_ms is not None and group.gathers_since_ms is not None:
            alone_ms = group.config.initial_delay_ms
            due_ms = max(due_ms, self._settings.gathering.until_ms(group.gathers_since_ms, alone_ms))
        return None if due_ms is None else max(due_ms, hosted.plan_not_before_ms)

    def _plan(self, hosted: HostedConsumers) -> Steps:
        group = hosted.group
        plan = yield from group.plan_in_steps(self._topics, self._host.now_ms(), self._host.wall_ms())
        error = yield from self._take_plan(hosted, plan)
        hosted.is_planning = False
        if error is ErrorCode.NONE and self._is_alive(hosted) and not hosted.is_moving:
            if group.left_out and plan.targets is not None:
                text = f"{group.left_out}, of which no member may have more"
                self._tell("partitions left out", hosted.group_id, text)
            error = yield from self._answer_waiting(hosted)
        if error is not ErrorCode.NONE:
            hosted.plan_not_before_ms = self._host.now_ms() + REFUSED_MS
            yield from self._refuse_waiting_in_steps(hosted, error)
        self._settle(hosted)

    def _take_plan(self, hosted: HostedConsumers, plan: Plan) -> Generator[None, None, ErrorCode]:
        """Take a plan in, and append each part at once: a member that is refused meanwhile takes nothing of it back.

        But the last one, which waits for the first answers (`_answer_waiting`).
        """
        steps = hosted.group.take_plan_in_steps(plan, self._host.now_ms(), self._host.wall_ms())
        while self._is_alive(hosted) and not hosted.is_busy and next(steps, _OVER) is not _OVER:
            error = self._flush(hosted, [])
            if error is not ErrorCode.NONE:
                return error
            yield
        return ErrorCode.NONE

    def _answer_waiting(self, hosted: HostedConsumers) -> Generator[None, None, ErrorCode]:
        """Answer those whose target is there, a few at a time; append what is left of it together with the first."""
        error = self._answer(hosted, hosted.pop_ready(ANSWERS_STEP))
        while error is ErrorCode.NONE and hosted.is_any_ready:
            yield
            if not self._is_alive(hosted) or hosted.is_moving:
                break
            error = self._answer(hosted, hosted.pop_ready(ANSWERS_STEP))
        return error

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
        if not self._is_alive(hosted) or hosted.is_moving:
            return
        if not self._runtime.partition.can_serve:
            # This node stood still: the members' silence means nothing now.
            self._runtime.recover()
            return
        try:
            gone = hosted.group.tick(self._topics, self._host.now_ms())
            for member_id, why in gone:
                self._tell("member thrown out", hosted.group_id, f"{member_id} {why}")
            if gone or hosted.group.becomes_classic:
                self._conclude(hosted, [])
            else:
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

    def _flush(self, hosted: HostedConsumers, dones: list[Done], first: Batch | None = None) -> ErrorCode:
        """Append what a group has changed, behind what it begins with; call `dones` when it is committed, or cannot be.

        If nothing has changed they are called when what is under way of the group is committed: what it knows may be
        of that. If something cannot be appended, the group takes it back, and who waits is told if it may be theirs.
        """
        is_theirs = bool(hosted.held)
        changes = hosted.take_changes()
        if first is not None:
            self._end_classic(hosted, first)
            for change in changes:
                first.add(change)
        elif not changes:
            self._attach(hosted, dones)
            return ErrorCode.NONE
        batches = list(in_batches(changes)) if first is None else [first]
        for number, batch in enumerate(batches):
            flight = Flight(dones if number + 1 == len(batches) else [])
            error = self._append(hosted, batch, flight)
            if error is not ErrorCode.NONE:
                hosted.group.undo(change for rest in batches[number:] for change in rest.changes)
                Flight(dones).land(error)
                if is_theirs:
                    self._runtime.in_slices(self._refuse_waiting_in_steps(hosted, error))
                if hosted.group.is_empty and not hosted.flights and self.saved(hosted.group_id) is None:
                    self.take_out(hosted)  # Nothing was ever written of it.
                return error
        return ErrorCode.NONE

    def _attach(self, hosted: HostedConsumers, dones: list[Done]) -> None:
        if hosted.flights:
            hosted.flights[-1].dones += dones
        else:
            Flight(dones).land(ErrorCode.NONE)

    def _end_classic(self, hosted: HostedConsumers, first: Batch) -> None:
        if self._has_classic_record(hosted.group_id):
            first.put_classic(hosted.group_id, None, None)

    def _has_classic_record(self, group_id: str) -> bool:
        return group_id in self._runtime.standby.table.saved or GroupKey(group_id) in self._runtime.under_way

    def _append(self, hosted: HostedConsumers, batch: Batch, flight: Flight) -> ErrorCode:
        longest = batch.longest_bytes
        if longest > self._runtime.record_bytes_max:
            self._tell("group not saved", hosted.group_id, f"a record of {longest} bytes does not fit into the log")
            return ErrorCode.UNKNOWN_SERVER_ERROR
        # The log may tell before it returns.
        hosted.flights.append(flight)
        put = batch.putting(self._runtime.standby.table)
        error = self._runtime.append(batch.records, batch.names, put, partial(self._land, hosted, flight))
        if error is not ErrorCode.NONE:
            hosted.flights.pop()
        return error

    def _land(self, hosted: HostedConsumers, flight: Flight, error: ErrorCode) -> None:
        if flight in hosted.flights:
            hosted.flights.remove(flight)
        self._runtime.in_slices(flight.land_in_steps(error))


class ParkedSync(Protocol):
    """A SyncGroup that waits for its answer."""

    def on_answer(self, answer: bytes | ErrorCode) -> None: ...


def _fill(batch: Batch, changes: Iterable[Change]) -> Steps:
    """Put changes into a batch, whose records are made."""
    for number, change in enumerate(changes, 1):
        batch.add(change)
        if not number % RECORDS_STEP:
            yield


def _missing(group_id: str, hosted: HostedConsumers | None) -> Refusal:
    if hosted is None:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    if hosted.is_moving:
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"Consumer group {group_id} is being converted.")
    # There may be a new one in a moment.
    return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Consumer group {group_id} is being deleted.")


def _give(ticket: ParkedBeat, answer: ConsumerAnswer | Refusal, error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        answer = Refusal(error, "What the group has changed is not committed.")
    ticket.on_answer(answer)
