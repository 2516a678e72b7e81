"""Gives tests a group with a clock, and a log that commits when told.

`Desk` does what a coordinator's shell does, keeps every answer, and checks what must always hold of the traffic: no
ticket is answered twice, none that was never given. Time passes only in `advance`, which ticks at each deadline on the
way.
"""

from collections.abc import Mapping
from itertools import count

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.messages import (
    Answer,
    Effects,
    Fact,
    GroupConfig,
    JoinAnswer,
    JoinRequest,
    SavedGroup,
    SyncAnswer,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.state_machine.room import UNLIMITED_BYTES
from barnabas_broker.coordinators.groups.state_machine.states import GroupEvent, GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"r"),)
_DEFAULTS = GroupConfig()


class Desk:
    def __init__(self, config: GroupConfig = _DEFAULTS, group: ConsumerGroup | None = None, now_ms: int = 0) -> None:
        self.group = group or ConsumerGroup("g", config)
        self.now_ms = now_ms
        self.parked: set[object] = set()
        self.answers: dict[object, Answer] = {}
        self.unsaved: list[SavedGroup] = []
        self.facts: list[Fact] = []
        self.ids = count(1)
        self._tickets = count(1)

    def take(self, effects: Effects) -> None:
        for answer in effects.answers:
            assert answer.ticket in self.parked, "answered twice, or never asked"
            self.parked.discard(answer.ticket)
            self.answers[answer.ticket] = answer
        if effects.save is not None:
            self.unsaved.append(effects.save)
        self.facts.extend(effects.facts)

    def join(
        self,
        member_id: str = "",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        *,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        id_first: bool = False,
        skips: bool = True,
        client_id: str = "client",
        record_bytes_max: int = UNLIMITED_BYTES,
        room_bytes: int = UNLIMITED_BYTES,
    ) -> int:
        """Send JoinGroup and return its ticket. Members that come without an id are called m1, m2, ..."""
        ticket = next(self._tickets)
        self.parked.add(ticket)
        request = JoinRequest(
            ticket=ticket,
            member_id=member_id,
            group_instance_id=instance,
            client_id=client_id,
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_known_member_id=id_first,
            skips_assignment=skips,
            reason="",
            record_bytes_max=record_bytes_max,
            room_bytes=room_bytes,
        )
        self.take(self.group.join(request, self.now_ms, lambda: f"m{next(self.ids)}"))
        return ticket

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
        record_bytes_max: int = UNLIMITED_BYTES,
        room_bytes: int = UNLIMITED_BYTES,
    ) -> int:
        ticket = next(self._tickets)
        self.parked.add(ticket)
        at = self.group.generation_id if generation is None else generation
        request = SyncRequest(
            ticket=ticket,
            member_id=member_id,
            group_instance_id=instance,
            generation_id=at,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments or {},
            record_bytes_max=record_bytes_max,
            room_bytes=room_bytes,
        )
        self.take(self.group.sync(request, self.now_ms))
        return ticket

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        at = self.group.generation_id if generation is None else generation
        return self.group.heartbeat(member_id, instance, at, self.now_ms)

    def commit(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        at = self.group.generation_id if generation is None else generation
        return self.group.check_commit(member_id, instance, at, self.now_ms)

    def leave(self, *member_ids: str, instance: str | None = None) -> tuple[ErrorCode, ...]:
        errors, effects = self.group.leave([(member_id, instance, "") for member_id in member_ids], self.now_ms)
        self.take(effects)
        return errors

    def forget(self, ticket: object) -> None:
        self.group.forget(ticket)
        self.parked.discard(ticket)

    def saved(self, error: ErrorCode = ErrorCode.NONE) -> SavedGroup:
        """Let the oldest save end."""
        save = self.unsaved.pop(0)
        self.take(self.group.on_saved(save.generation_id, error, self.now_ms))
        return save

    def end(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        self.take(self.group.end(error))

    def advance(self, length_ms: int) -> None:
        end_ms = self.now_ms + length_ms
        while (deadline_ms := self.group.deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.tick(self.now_ms))
            next_ms = self.group.deadline_ms
            assert next_ms is None or next_ms > self.now_ms
        self.now_ms = end_ms

    def state(self) -> GroupState:
        """The group's state, as a call: type checkers take it that an attribute does not change between two lines."""
        return self.group.state

    def joined(self, ticket: object) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: object) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def error(self, ticket: object) -> ErrorCode | None:
        """Return the error of the ticket's answer, None while it is parked."""
        return self.answers[ticket].error if ticket in self.answers else None

    def complete(self) -> list[str]:
        """Let everyone of the generation sync and the save be committed; member ids, the leader's first."""
        group = self.group
        assert self.state() is GroupState.COMPLETING_REBALANCE
        members = [member_id for member_id, member in group.members.items() if not member.is_new]
        members.sort(key=lambda member_id: member_id != group.leader_id)
        for member_id in reversed(members):
            self.sync(member_id, {other: other.encode() for other in members})
        while self.unsaved:
            self.saved()
        assert self.state() is GroupState.STABLE
        return members

    def rejoin(self) -> None:
        """Let every member that has not joined yet do so."""
        for member_id, member in list(self.group.members.items()):
            if not member.joining:
                self.join(member_id, member.group_instance_id, member.protocols)

    def stable(self, size: int, instances: tuple[str | None, ...] = ()) -> list[str]:
        """Bring up a new group of `size` members in its first generation; their ids, the leader's first."""
        for instance in instances or (None,) * size:
            self.join(instance=instance)
        self.advance(2 * self.group._config.initial_rebalance_delay_ms)  # Once more because others came.
        return self.complete()

    def kinds(self) -> list[str]:
        return [fact.kind for fact in self.facts]


class RecordingGroup(ConsumerGroup):
    """Remembers each single step from state to state, and by which event."""

    steps: set[tuple[GroupState, GroupEvent, GroupState]]

    def _enter(self, state: GroupState) -> None:
        self.__dict__.setdefault("steps", set()).add((self.state, self._event, state))
        super()._enter(state)
