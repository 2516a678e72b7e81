"""Answers what members of one consumer group ask, as the classic protocol wants it. Pure.

`ConsumerGroup` is the whole interface of the state machine: one method a request, `tick` for time, `on_saved` for the
log. Each is an ordinary function of the state, the arguments and `now_ms`; none waits, and equal calls on equal groups
return equal effects. The life of the group as a whole is in `phases.py`; here is who may ask for what, and which error
they get, exactly as Kafka 4.x answers:

- *Who are you?* An instance id that nobody has, or a member id that is not in the group: UNKNOWN_MEMBER_ID. The
  instance id of a member with another member id: FENCED_INSTANCE_ID, because a newer process has replaced this one.
- *Since when?* Another generation than the present one: ILLEGAL_GENERATION.
- *How?* A protocol type that is not the group's, or no protocol that all others have: INCONSISTENT_GROUP_PROTOCOL.
- *How much?* More than the group's record may take: GROUP_MAX_SIZE_REACHED; more than the node has room for, which
  passes: COORDINATOR_NOT_AVAILABLE (`room`).
- *Not now:* REBALANCE_IN_PROGRESS. A member that hears it joins again. COORDINATOR_NOT_AVAILABLE: this coordinator
  has ended.

A first JoinGroup without member id is not let in (if the client knows that answer, KIP-394): MEMBER_ID_REQUIRED
carries an id, and with it the client comes back. One that never comes back leaves an id behind, not a member.

A member that joins again is let in anew if that changes anything: the leader always (it has seen something, such as
new partitions, that its subscription does not say), others if their protocols differ from what they said before.
Otherwise they are told the generation once more, since the first answer may have been lost.

A static member that comes back without its member id (a restarted process) takes over the place of the old one. In a
STABLE group that changes nothing for the others unless another protocol would win; it is saved, and only then
answered.

Not here: offsets (offsets.py), the format of what is saved (records.py), the wire, KIP-848's protocol, and the
check that a group id is not empty.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Self

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.steps import at_once

from .members import Member, Sizes, sizes_of, subscribed_topics
from .messages import Effects, GroupConfig, JoinAnswer, JoinRequest, SavedGroup, SyncAnswer, SyncRequest
from .phases import NEW_MEMBER_JOIN_TIMEOUT_MS, Phases, Replacement
from .room import PENDING_ID_BYTES, text_bytes
from .states import GroupEvent, GroupState

__all__ = ["ConsumerGroup"]

_CONSUMER = "consumer"
TOPICS_STEP_BYTES = 32 << 10
SUBSCRIPTION_OVERHEAD_BYTES = 64
MEMBERS_STEP = 500
NAMES_SHOWN = 5
_DRAWN = "-" + 36 * "0"


class ConsumerGroup(Phases):
    """One group, as its coordinator knows it.

    Public to read: `group_id`, `state`, `generation_id` (0 before the first), `protocol_type`, `protocol_name`,
    `leader_id`, `members`, `deadline_ms`. After every call the owner carries out the `Effects` in any order, and sees
    to it that `tick` is called when `deadline_ms` has come. Limits: see `Phases`.
    """

    __slots__ = ()

    @classmethod
    def from_saved(cls, group_id: str, saved: SavedGroup, config: GroupConfig, now_ms: int) -> Self:
        """Return the same as `from_saved_in_steps`."""
        return at_once(cls.from_saved_in_steps(group_id, saved, config, now_ms))

    @classmethod
    def from_saved_in_steps(
        cls, group_id: str, saved: SavedGroup, config: GroupConfig, now_ms: int
    ) -> Generator[None, None, Self]:
        """Return the group as a new coordinator finds it: its sessions start now, nobody is parked.

        A generation that was never saved is not there; its members are told ILLEGAL_GENERATION and join again. One that
        nobody leads was left behind in a group of KIP-848, and all of it are to join again. A group of more than
        `config.size_max` members starts a rebalance, in which the last ones find no place.
        """
        group = cls(group_id, config)
        group._saved = saved
        group.generation_id = saved.generation_id
        group.protocol_type = saved.protocol_type or None
        group.protocol_name = saved.protocol_name
        for number, known in enumerate(saved.members, 1):
            if not number % MEMBERS_STEP:
                yield
            member = Member(
                known.member_id,
                known.group_instance_id,
                (known.client_id, known.client_host),
                (known.session_timeout_ms, known.rebalance_timeout_ms),
                ((saved.protocol_name or "", known.subscription),),
            )
            member.assignment = known.assignment
            member.is_new = False
            group._members.add(member)
            group._start_session(member, now_ms)
        if group._members:
            if saved.leader in group._members.by_id:
                group._members.leader_id = saved.leader
            group._enter(GroupState.STABLE)
            group._spacing.settled(now_ms)
            if saved.leader is None:
                group._begin("members of another protocol have left", now_ms)
            elif len(group._members) > config.size_max:
                group._begin(f"more than {config.size_max} members were loaded", now_ms)
        return group

    @property
    def is_settled(self) -> bool:
        """True if the generation works, and nobody has come or gone since it was formed."""
        return self.state is GroupState.STABLE and not (self._member_departed or self._members.new_count)

    @property
    def leader_id(self) -> str | None:
        return self._members.leader_id

    @property
    def members(self) -> Mapping[str, Member]:
        """A read-only view by member id, newcomers included that wait for the next generation."""
        return MappingProxyType(self._members.by_id)

    def member_of_instance(self, instance_id: str) -> str | None:
        """Return the member id that an instance has now. None: it is not here."""
        return self._members.by_instance.get(instance_id)

    def topics(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to, None if the group's protocol does not say or says it wrongly."""
        return at_once(self.topics_in_steps())

    def topics_in_steps(self) -> Generator[None, None, frozenset[str] | None]:
        """Return the same of the members that there are now, even if some come or go between two steps."""
        if self.protocol_type != _CONSUMER:
            return None
        # Most members say the same, byte for byte.
        said = dict.fromkeys(
            member.metadata(self.protocol_name if not member.is_new else member.protocols[0][0])
            for member in self._members
        )
        all_topics: set[str] = set()
        read_bytes = 0
        for subscription in said:
            topics = subscribed_topics(subscription)
            if topics is None:
                return None
            all_topics |= topics
            read_bytes += len(subscription) + SUBSCRIPTION_OVERHEAD_BYTES
            if read_bytes >= TOPICS_STEP_BYTES:
                read_bytes = 0
                yield
        return frozenset(all_topics)

    # JoinGroup.

    def join(self, request: JoinRequest, now_ms: int, new_member_id: Callable[[], str]) -> Effects:
        """Let a member in, or in again. `new_member_id` returns an id that no member has; called at most once."""
        self._event = GroupEvent.JOIN
        error = self._join_refusal(request, now_ms)
        if error is not None:
            known = "" if error == ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
            self._answers.append(JoinAnswer(request.ticket, error, member_id=known))
        elif request.member_id == "":
            self._join_unknown(request, now_ms, new_member_id())
        elif request.member_id in self._pending_ids:
            self._add(request, request.member_id, now_ms)
        else:
            self._join_again(request, self._members.by_id[request.member_id], now_ms)
        return self._effects()

    def _join_refusal(self, request: JoinRequest, now_ms: int) -> ErrorCode | None:
        config = self._config
        member = self._members.by_id.get(request.member_id)
        if not config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room_for(member):
            if member is not None:
                self._remove(member, f"found no place: the group has {config.size_max} members")
                self._members.elect_successor()
                self._changed("a member found no place", now_ms)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_nobody_yet = request.member_id in self._pending_ids and request.group_instance_id is None
        if request.member_id != "" and not is_nobody_yet:
            error = self._member_error(request.member_id, request.group_instance_id)
            if error != ErrorCode.NONE:
                return error
        return self._growth_refusal(request, member)

    def _growth_refusal(self, request: JoinRequest, member: Member | None) -> ErrorCode | None:
        """Return why the group cannot hold what a member brings, if that is more than it holds of it already."""
        saving_bytes = 0
        if member is None and request.group_instance_id is not None:
            member = self._members.by_id.get(self._members.by_instance.get(request.group_instance_id, ""))
            if member is not None and self.state is GroupState.STABLE:
                saving_bytes = self.saving_bytes(None)
        # An id that is not drawn yet is made of one of these names.
        member_id = request.member_id or f"{request.group_instance_id or request.client_id}{_DRAWN}"
        if member is None and request.member_id == "" and self._gives_id_out(request):
            held_bytes = PENDING_ID_BYTES + text_bytes(member_id)
            record_bytes = 0
        else:
            names = (member_id, request.group_instance_id, request.client_id, request.client_host)
            now = sizes_of(names, request.protocols)
            before = Sizes(0, 0) if member is None else member.sizes
            held_bytes = now.held_bytes - before.held_bytes
            record_bytes = now.record_bytes - before.record_bytes
        if record_bytes > 0 and self.record_bytes_with(record_bytes, request.protocol_type) > request.record_bytes_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if held_bytes + saving_bytes > max(0, request.room_bytes):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def _has_room_for(self, member: Member | None) -> bool:
        """As in Kafka, those who have joined count during the join phase: of too many, the last to join go."""
        if self.state is GroupState.PREPARING_REBALANCE:
            has_joined = member is not None and member.joining
            return has_joined or self._members.joining_count < self._config.size_max
        return self.state is GroupState.EMPTY or member is not None or len(self._members) < self._config.size_max

    def _supports(self, request: JoinRequest) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self._members.supports(request.protocols)

    def _join_unknown(self, request: JoinRequest, now_ms: int, member_id: str) -> None:
        assert member_id not in self._members.by_id
        if request.group_instance_id is not None:
            old_id = self._members.by_instance.get(request.group_instance_id)
            if old_id is None:
                self._add(request, member_id, now_ms)
            else:
                self._replace(request, old_id, member_id, now_ms)
        elif self._gives_id_out(request):
            self._give_out(member_id, now_ms + max(1, request.session_timeout_ms))
            self._answers.append(JoinAnswer(request.ticket, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        else:
            self._add(request, member_id, now_ms)

    @staticmethod
    def _gives_id_out(request: JoinRequest) -> bool:
        return request.requires_known_member_id and request.group_instance_id is None

    def _add(self, request: JoinRequest, member_id: str, now_ms: int) -> None:
        self._forget_pending(member_id)
        if self.state is GroupState.EMPTY:
            self.protocol_type = request.protocol_type
        member = Member(
            member_id,
            request.group_instance_id,
            (request.client_id, request.client_host),
            (request.session_timeout_ms, request.rebalance_timeout_ms),
            request.protocols,
        )
        self._members.add(member)
        self._members.start_joining(member, request.ticket)
        self._initial_last_id = member_id
        # A newcomer cannot send heartbeats yet, and a client that hung up may come again under another id.
        self._start_session(member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._changed(f"{member_id} joined: {request.reason or 'no reason given'}", now_ms)

    def _join_again(self, request: JoinRequest, member: Member, now_ms: int) -> None:
        is_working = self.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
        leads_stable = self.state is GroupState.STABLE and member.member_id == self._members.leader_id
        if is_working and not member.is_new and not leads_stable and member.protocols == request.protocols:
            self._start_session(member, now_ms)
            self._answers.append(self.generation_answer(member)._replace(ticket=request.ticket))
            return
        self._supersede_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._members.update(member, request)
        self._members.start_joining(member, request.ticket)
        cause = f"{member.member_id} joined again: {request.reason or 'no reason given'}"
        if is_working and not member.is_new:
            self._begin(cause, now_ms)
        else:
            self._changed(cause, now_ms)

    def _replace(self, request: JoinRequest, old_id: str, new_id: str, now_ms: int) -> None:
        """Let a new process of a static member take the place of the old one."""
        old_leader = self._members.leader_id or ""
        member = self._members.by_id[old_id]
        self._supersede_join(member, ErrorCode.FENCED_INSTANCE_ID)
        self._answer_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        self._members.rename(old_id, new_id, (request.client_id, request.client_host))
        self._members.update(member, request)
        self._members.start_joining(member, request.ticket)
        self._start_session(member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else None)
        cause = f"{new_id} replaces {old_id}: {request.reason or 'no reason given'}"
        if member.is_new or self.state is GroupState.PREPARING_REBALANCE:
            self._changed(cause, now_ms)
        elif self.state is GroupState.STABLE and self._members.vote() == self.protocol_name:
            self._tell("static member replaced", cause)
            replacement = Replacement(new_id, old_leader, request.skips_assignment)
            self._save_group(None, replacement=replacement)
        else:  # The leader may already have been told of the old id and would assign to that; or the protocol changes.
            self._begin(cause, now_ms)

    def _supersede_join(self, member: Member, error: ErrorCode) -> None:
        self._answer_join(member, JoinAnswer(None, error, member_id=member.member_id))

    # SyncGroup.

    def sync(self, request: SyncRequest, now_ms: int) -> Effects:
        """Give a member its assignment, or park it until there is one; take the leader's."""
        self._event = GroupEvent.SYNC
        error = self._member_error(request.member_id, request.group_instance_id, request.generation_id)
        if error == ErrorCode.NONE:
            if request.protocol_type not in {None, self.protocol_type} or request.protocol_name not in {
                None,
                self.protocol_name,
            }:
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            elif self.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if error != ErrorCode.NONE:
            self._answers.append(SyncAnswer(request.ticket, error))
            return self._effects()
        member = self._members.by_id[request.member_id]
        self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)  # An earlier request of the same member.
        member.awaits_sync = False
        self._members.start_syncing(member, request.ticket)
        if self.state is GroupState.STABLE:
            self._answer_sync(member, ErrorCode.NONE)
            self._start_session(member, now_ms)
        elif member.member_id == self._members.leader_id and self._assigning is None:
            self._take_assignment(request, now_ms)
        return self._effects()

    def _take_assignment(self, request: SyncRequest, now_ms: int) -> None:
        """Save what the leader has assigned. If that cannot be saved, it ends as in Kafka when the log refuses it."""
        given = request.assignments.get
        shares = {member.member_id: given(member.member_id, b"") for member in self._members if not member.is_new}
        assigned_bytes = sum(map(len, shares.values()))
        if self.record_bytes_with(assigned_bytes, self.protocol_type) > request.record_bytes_max:
            self._tell("group not saved", f"its assignment of {assigned_bytes} bytes makes its record too large")
            self._refuse_assignment(ErrorCode.MESSAGE_TOO_LARGE, now_ms)
        elif assigned_bytes + self.saving_bytes(shares) > max(0, request.room_bytes):
            self._tell("group not saved", "the groups of this broker hold as much as they may")
            self._refuse_assignment(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
        else:
            self._assigning = shares
            self._save_group(shares, assigns=True)

    # Heartbeat, LeaveGroup, OffsetCommit.

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Keep a member's session alive and tell it whether to join again."""
        error = self._member_error(member_id, group_instance_id, generation_id)
        if error != ErrorCode.NONE:
            return error
        self._start_session(self._members.by_id[member_id], now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, leaving: Sequence[tuple[str, str | None, str]], now_ms: int
    ) -> tuple[tuple[ErrorCode, ...], Effects]:
        """Take members out: (member id, instance id, reason) of each. Return an error for each, in their order.

        An empty member id removes the static member with that instance id, whoever asks (an operator's tool).
        """
        self._event = GroupEvent.LEAVE
        errors = tuple(self._leave(member_id, instance_id, reason) for member_id, instance_id, reason in leaving)
        self._members.elect_successor()
        gone = [who[0] or str(who[1]) for who, error in zip(leaving, errors, strict=True) if not error]
        if gone and self.state is not GroupState.EMPTY:
            more = f" and {len(gone) - NAMES_SHOWN} more" if len(gone) > NAMES_SHOWN else ""
            self._changed(f"{', '.join(gone[:NAMES_SHOWN])}{more} left", now_ms)
        return errors, self._effects()

    def _leave(self, member_id: str, instance_id: str | None, reason: str) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._forget_pending(member_id):
            return ErrorCode.NONE
        known_id: str | None = member_id
        if member_id == "" and instance_id is not None:
            known_id = self._members.by_instance.get(instance_id)
        error = self._member_error(known_id or "", instance_id)
        if error == ErrorCode.NONE:
            self._remove(self._members.by_id[known_id or ""], f"left: {reason or 'no reason given'}")
        return error

    def check_commit(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Say whether these may commit offsets now; a member that may is heard of, as by a heartbeat.

        Without member and generation (-1), as simple consumers and operators' tools commit, only in an empty group.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._member_error(member_id, group_instance_id, generation_id)
        if generation_id < 0 and member_id == "" and group_instance_id is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error == ErrorCode.NONE and self.state is GroupState.COMPLETING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error == ErrorCode.NONE:
            self._start_session(self._members.by_id[member_id], now_ms)
        return error

    def check_staging(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Say whether these may commit offsets as part of a transaction now (TxnOffsetCommit).

        Members of before Kafka 2.5 name neither themselves nor a generation: member, instance and generation are looked
        at only if any of them is given. The state of the group does not matter, and nobody counts as heard of.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        is_anonymous = generation_id < 0 and member_id == "" and group_instance_id is None
        if is_anonymous or (generation_id < 0 and self.state is GroupState.EMPTY):
            return ErrorCode.NONE
        return self._member_error(member_id, group_instance_id, generation_id)

    # The caller's side of it.

    def forget(self, ticket: object) -> None:
        """Note that nobody waits for that answer: its connection has ended. The request itself still counts.

        A newcomer that has hung up is left out of the generation that forms next, unless it asks again before; a member
        that was in one before stays until its session ends.
        """
        self._members.forget(ticket)

    def restart_sessions(self, now_ms: int) -> None:
        """Let every session begin now: for a coordinator that stood still and could not hear anyone."""
        for member in self._members:
            self._start_session(member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else None)

    def _member_error(self, member_id: str, instance_id: str | None, generation_id: int | None = None) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            holder = self._members.by_instance.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        member = self._members.by_id.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id is not None and (generation_id != self.generation_id or member.is_new):
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE
