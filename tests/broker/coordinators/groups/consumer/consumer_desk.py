"""Gives tests a group of KIP-848 with members, topics and a clock, and checks what must always hold.

`Desk` does what a coordinator's shell does: it plans targets, takes the changes, and keeps a table of them, of which a
new coordinator can be made. A `Client` does what a member does: it keeps its epoch and its partitions, gives up what it
is told to when asked, and says so with its next heartbeat.
"""

import re
import struct
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from barnabas_broker.coordinators.groups.consumer.assignors.roster import MemberSubscription
from barnabas_broker.coordinators.groups.consumer.embedded import read_assignment
from barnabas_broker.coordinators.groups.consumer.group import Change
from barnabas_broker.coordinators.groups.consumer.messages import (
    Beat,
    ConsumerAnswer,
    ConsumerConfig,
    Heard,
    Refusal,
)
from barnabas_broker.coordinators.groups.consumer.mixed import ClassicJoin, MixedGroup
from barnabas_broker.coordinators.groups.consumer.saved import GroupRecords, sizes_of
from barnabas_broker.coordinators.groups.consumer.values import MemberState, Partitions, Target
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.steps import at_once

GROUP = "g"
REBALANCE_MS = 60_000
AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


class SomeTopics:
    """Topics that tests make, delete and enlarge; the id of one is its name and how often there was one."""

    def __init__(self, **counts: int) -> None:
        self.version = 1
        self.is_known = True
        self.changes: list[tuple[int, str]] = []
        self.held: Counter[str] = Counter()
        self.unresolved: set[str] = set()
        self.there = {name: (topic_id(name), count) for name, count in counts.items()}

    def put(self, name: str, count: int | None, incarnation: int = 0) -> None:
        self.version += 1
        self.changes.append((self.version, name))
        if count is None:
            del self.there[name]
        else:
            self.there[name] = (topic_id(name, incarnation), count)

    def want(self) -> None:
        pass

    def find(self, name: str) -> tuple[bytes, int] | None:
        return self.there.get(name) if self.is_known else None

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, (known, _) in self.there.items() if known == topic_id and self.is_known), None)

    def changed_since(self, version: int) -> list[str] | None:
        return [name for changed_at, name in self.changes if changed_at > version] if version % 3 else None

    def pattern_refusal(self, pattern: str) -> Refusal | None:
        try:
            re.compile(pattern)
        except re.error as error:
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error))
        return None

    def hold(self, pattern: str) -> None:
        self.held[pattern] += 1

    def let_go(self, pattern: str) -> None:
        self.held[pattern] -= 1
        assert self.held[pattern] >= 0

    def is_ready(self, pattern: str) -> bool:
        assert self.held[pattern]
        return pattern not in self.unresolved

    def matching_in_steps(self, pattern: str) -> Generator[None, None, list[str]]:
        assert self.is_ready(pattern)
        yield
        return [name for name in self.there if re.fullmatch(pattern, name)]


def topic_id(name: str, incarnation: int = 0) -> bytes:
    return name.encode().ljust(15, b"\0") + bytes([incarnation])


class Dealing:
    """An assignor that deals partitions out one by one."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def assign_in_steps(
        self, name: str, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, int]
    ) -> Generator[None, None, Mapping[str, Target]]:
        self.asked.append(name)
        dealt: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in members}
        for topic, count in sorted(topics.items()):
            takers = sorted(member_id for member_id, said in members.items() if topic in said.topic_ids)
            for number in range(count):
                dealt[takers[number % len(takers)]].setdefault(topic, []).append(number)
            yield
        return {
            member_id: {topic: tuple(numbers) for topic, numbers in topics.items()}
            for member_id, topics in dealt.items()
        }


class Desk:
    def __init__(self, topics: SomeTopics, config: ConsumerConfig = AT_ONCE, now_ms: int = 1_000_000) -> None:
        self.topics = topics
        self.config = config
        self.assigning = Dealing()
        self.now_ms = now_ms
        self.group = MixedGroup(GROUP, config, self.assigning.assign_in_steps)
        self.table = GroupRecords(GROUP)
        self.changes: list[Change] = []
        self.gone: list[str] = []

    def beat(self, beat: Beat) -> ConsumerAnswer | Refusal:
        before = at_rest(self.group)
        heard = self.hear(beat)
        if isinstance(heard, Refusal):
            assert at_rest(self.group) == before
            assert not self.group.take_changes()
            return heard
        self.plan()
        answer = self.group.answer(heard, self.topics, self.now_ms)
        self.flush()
        return answer

    def hear(self, beat: Beat) -> Heard | Refusal:
        return self.group.hear(beat, self.topics, self.now_ms)

    def leave(self, beat: Beat) -> Refusal | None:
        refusal = self.group.leave(beat, self.topics, self.now_ms)
        self.flush()
        return refusal

    def plan(self) -> None:
        """Make the target that is due."""
        due_ms = self.group.plan_due_ms(self.topics, self.now_ms)
        if due_ms is not None and due_ms <= self.now_ms:
            plan = at_once(self.group.plan_in_steps(self.topics, self.now_ms, 7))
            at_once(self.group.take_plan_in_steps(plan, self.now_ms, 7))

    def flush(self) -> None:
        for change in self.group.take_changes():
            self.changes.append(change)
            self.table.put(change.key, change.value)
        self.check()

    def advance(self, duration_ms: int) -> None:
        """Let time pass, and call `tick` at each deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while (at_ms := self.group.deadline_ms) is not None and at_ms <= end_ms:
            self.now_ms = max(at_ms, self.now_ms + 1)
            self.gone += [member_id for member_id, _ in self.group.tick(self.topics, self.now_ms)]
            self.flush()
        self.now_ms = max(self.now_ms, end_ms)

    def take_over(self) -> None:
        """Let a new coordinator begin with what is in the table."""
        assign_in_steps = self.assigning.assign_in_steps
        steps = MixedGroup.from_saved_in_steps(self.table, self.config, assign_in_steps, self.now_ms)
        before = at_rest(self.group)
        self.group.close(self.topics)
        self.group = at_once(steps)
        assert at_rest(self.group) == before
        self.check()

    def check(self) -> None:
        group = self.group
        assert at_rest(group) == at_rest(self.table)
        had = [
            (topic, number)
            for assignment in group.assignments.values()
            for partitions in (assignment.assigned, assignment.revoking)
            for topic, numbers in partitions.items()
            for number in numbers
        ]
        assert len(had) == len(set(had)), "two members have one partition"
        assert {(topic, number) for topic, numbers in group.owners.items() for number in numbers} == set(had)
        assert group.targets.keys() | group.assignments.keys() <= group.members.keys()
        classic = {member_id for member_id, one in group.members.items() if one.classic is not None}
        assert group._sessions.keys() == group.members.keys() - classic
        assert set(group.classic.sessions) == classic
        assert classic >= {*group.classic.joins, *group.classic.syncs}
        assert group.classic.count == len(classic)
        assert group._revoking.keys() == {
            member_id
            for member_id, one in group.assignments.items()
            if one.state is MemberState.UNREVOKED and one.epoch >= 0 and member_id not in classic
        }
        statics = {one.instance_id: member_id for member_id, one in group.members.items() if one.instance_id}
        assert group.instances == statics
        for records in (group, self.table):
            values = [(key, value) for key in records.keys() if (value := records.get(key)) is not None]  # noqa: SIM118
            sizes = [sizes_of(*one) for one in values]
            assert records.size_bytes == sum(size_bytes for size_bytes, _ in sizes)
            assert records.held_bytes == sum(held_bytes for _, held_bytes in sizes)
            assert records.reconciled == {
                member_id
                for member_id, one in records.assignments.items()
                if one.state is MemberState.STABLE and one.epoch == records.target_number
            }


def at_rest(records: GroupRecords) -> dict[Any, Any]:
    return {key: records.get(key) for key in records.keys()}  # noqa: SIM118


class Client:
    """A member that keeps to the protocol. `has` is what it uses; it gives up what it is told to at once."""

    def __init__(self, desk: Desk, member_id: str, *names: str, instance: str | None = None, **said: Any) -> None:
        self.desk = desk
        self.member_id = member_id
        self.names: Iterable[str] | None = names
        self.instance = instance
        self.said = said
        self.epoch = 0
        self.has: set[tuple[bytes, int]] = set()
        self.gives_up = True
        self.last: ConsumerAnswer | Refusal | None = None
        self._is_unsaid = True

    @property
    def owned(self) -> dict[bytes, list[int]]:
        owned: dict[bytes, list[int]] = {}
        for topic, number in sorted(self.has):
            owned.setdefault(topic, []).append(number)
        return owned

    def next_beat(self, **more: Any) -> Beat:
        if self.epoch == 0 or self._is_unsaid:
            said: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "topic_names": self.names, **self.said}
            said |= {"owned": self.owned, "instance_id": self.instance}
        else:
            said = {"owned": self.owned}
        return Beat(self.member_id, self.epoch, **{"client_id": "c", "client_host": "/h", **said, **more})

    def beat(self, *, is_lost: bool = False, **more: Any) -> ConsumerAnswer | Refusal:
        """Say what there is to say, and keep to the answer, unless it is lost."""
        answer = self.desk.beat(self.next_beat(**more))
        if is_lost:
            self._is_unsaid = True
            return answer
        self.last = answer
        if isinstance(answer, Refusal):
            if answer.error in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
                self.epoch = 0
                self.has = set()
            return answer
        self._is_unsaid = False
        self.epoch = answer.epoch
        if answer.assigned is not None:
            told = pairs(answer.assigned)
            self.has = told if self.gives_up else self.has | told
        return answer

    def leave(self, epoch: int = -1) -> Refusal | None:
        self.epoch = 0
        self.has = set()
        return self.desk.leave(Beat(self.member_id, epoch, instance_id=self.instance))

    def numbers(self, name: str) -> list[int]:
        return sorted(number for topic, number in self.has if topic[:15] == topic_id(name)[:15])


class Classic:
    """A member that speaks the classic protocol. `eager`: it gives everything up before it joins again."""

    def __init__(
        self, desk: Desk, member_id: str, *names: str, instance: str | None = None, eager: bool = True
    ) -> None:
        self.desk = desk
        self.member_id = member_id
        self.names = names
        self.instance = instance
        self.eager = eager
        self.is_known = self.is_synced = False
        self.generation = -1
        self.has: dict[str, tuple[int, ...]] = {}
        self.protocols: tuple[str, ...] = ("range", "sticky")
        self.session_ms = 10_000

    def request(self) -> ClassicJoin:
        if self.eager:
            self.has = {}
        said = subscription(self.names, self.has)
        return ClassicJoin(
            self.member_id,
            self.is_known,
            self.instance,
            "c",
            "/h",
            self.session_ms,
            REBALANCE_MS,
            "consumer",
            tuple((name, said) for name in self.protocols),
        )

    def join(self) -> ErrorCode:
        """Join, again if need be, and hear of one's generation."""
        desk = self.desk
        beat = desk.group.beat_of(self.request(), desk.topics)
        if isinstance(beat, Refusal):
            return beat.error
        answer = desk.beat(beat)
        if isinstance(answer, Refusal):
            return answer.error
        desk.group.told(self.member_id, desk.now_ms)
        self.is_known = True
        self.is_synced = False
        self.generation = answer.epoch
        return ErrorCode.NONE

    def sync(self) -> ErrorCode:
        desk = self.desk
        who = (self.member_id, self.instance, self.generation)
        found = desk.group.sync(*who, ("consumer", self.protocols[0]), desk.topics, desk.now_ms)
        if isinstance(found, ErrorCode):
            return found
        self.is_synced = True
        numbers, _ = read_assignment(found)
        self.has = {name: tuple(some) for name, some in numbers.items()}
        return ErrorCode.NONE

    def heartbeat(self) -> ErrorCode:
        desk = self.desk
        return desk.group.heartbeat(self.member_id, self.instance, self.generation, desk.now_ms)

    def come_by(self) -> None:
        """Send a heartbeat, and do what it asks for."""
        code = ErrorCode.ILLEGAL_GENERATION if self.generation < 0 else self.heartbeat()
        if code is ErrorCode.ILLEGAL_GENERATION:
            self.has = {}
        if code is ErrorCode.NONE and not self.is_synced:
            assert self.sync() in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        elif code is not ErrorCode.NONE:
            assert self.join() is ErrorCode.NONE
            assert self.sync() in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}

    def leave(self) -> ErrorCode:
        (code,) = self.desk.group.leave_classic([(self.member_id, self.instance)], self.desk.topics, self.desk.now_ms)
        self.desk.flush()
        return code


def subscription(names: Iterable[str], owned: Mapping[str, Iterable[int]]) -> bytes:
    """Return a subscription of version 1."""
    parts = [b"\0\1", struct.pack(">i", len(tuple(names)))]
    parts += [struct.pack(">h", len(name)) + name.encode() for name in names]
    parts += [b"\xff\xff\xff\xff", struct.pack(">i", len(owned))]
    for name, numbers in owned.items():
        some = tuple(numbers)
        parts += [struct.pack(">h", len(name)), name.encode(), struct.pack(f">i{len(some)}i", len(some), *some)]
    return b"".join(parts)


def mingle(*members: "Client | Classic", rounds: int = 20) -> None:
    """Let members of both protocols come by until nothing changes any more."""
    for _ in range(rounds):
        before = [all_of(one) for one in members]
        for one in members:
            if isinstance(one, Classic):
                one.come_by()
            else:
                one.beat()
        if before == [all_of(one) for one in members]:
            return
    raise AssertionError("they do not settle")


def all_of(member: "Client | Classic") -> object:
    return (member.generation, member.has) if isinstance(member, Classic) else (member.epoch, set(member.has))


def pairs(partitions: Partitions) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def settle(*clients: Client, rounds: int = 10) -> None:
    """Let all of them say something until nothing changes any more."""
    for _ in range(rounds):
        before = [(one.epoch, set(one.has)) for one in clients]
        for one in clients:
            one.beat()
        if before == [(one.epoch, one.has) for one in clients]:
            return
    raise AssertionError("they do not settle")
