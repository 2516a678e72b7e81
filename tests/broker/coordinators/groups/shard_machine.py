"""Lets anything happen to an offsets partition, in any order.

`shard_world` says what must hold after each step. Beside that: a record that was acknowledged is committed; a deletion
covers everything that it was asked to cover; nobody stays in a group without being heard of.
"""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.staging import StagedName
from barnabas_broker.coordinators.groups.state_machine.messages import SavedGroup
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, GroupKey, Name, OffsetKey
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.steps import at_once

from .log_model import Said, Value
from .shard_world import Member, Outcome, World

GROUPS = ("g", "h")
TOPICS = ("t", "u")
KEYS = [OffsetKey(group_id, topic, index) for group_id in GROUPS for topic, index in (("t", 0), ("t", 1), ("u", 0))]
NAMES: list[Name] = [*KEYS, *map(GroupKey, GROUPS)]
SESSION_MS = 10_000
LATE_MS = 2_000
"""After its session ends, a member that is not heard of is gone within so long."""
RETENTION_MS = 60_000
SETTINGS: dict[str, str | int] = {"offsets.retention.check.interval.ms": 7_000, "offsets.retention.minutes": 1}


class Stored(Outcome):
    """An answer that rests on entries: they must be committed when it is given."""

    def __init__(self, world: World, said: Said) -> None:
        super().__init__()
        self.world = world
        self.said = said
        self.entries: list[Entry] = []
        self._begin = world.log.last_index

    def appended(self) -> None:
        """Everything that was asked for has been appended, unless it was refused."""
        log = self.world.log
        self.entries = log.entries[self._begin + 1 - log.first_index :]
        if self.code is None:
            written: Said = {}
            for entry in self.entries:
                written |= self.world.said_in(entry)
            assert written == self.said

    def __call__(self, code: ErrorCode) -> None:
        super().__call__(code)
        if code is ErrorCode.NONE:
            committed = self.world.history
            assert all(committed[entry.index - 1] is entry for entry in self.entries), "acknowledged, and may be lost"


class ShardMachine(RuleBasedStateMachine):
    """See the module. `listens_since_ms`: when the present coordinator began to listen to its members.

    `asked_for`: tombstones, by entry, that somebody has asked for; all others must have a reason of their own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SETTINGS)
        self.topic_ids = dict[str, bytes]()
        self.asked_for = list[Entry]()
        self.looked_at = list[Entry]()
        self.members = [
            Member(self.world, group_id, f"{group_id}{number}", session_ms=SESSION_MS)
            for group_id in GROUPS
            for number in range(2)
        ]
        self.number = 0
        self.listens_since_ms = 0
        self._known: tuple[GroupShard | None, bool] = (None, True)

    def teardown(self) -> None:
        self.world.close()

    @property
    def shard(self) -> GroupShard:
        assert self.world.shard is not None
        return self.world.shard

    def serves(self) -> bool:
        """Whether requests get through to the shard; after a stall it is confirmed first."""
        return self.world.shard is not None and self.world.shard.runtime.is_certain

    def knows(self) -> bool:
        return self.world.shard is not None

    def hosted(self, group_id: str) -> HostedGroup | None:
        return self.shard.group(group_id)

    def value(self, key: OffsetKey) -> CommittedOffset:
        self.number += 1
        return CommittedOffset(self.number, -1, "", self.world.wall_ms(), topic_id=self.topic_ids[key.topic])

    def make_topic(self, name: str) -> None:
        """Have a topic of that name, another one than before."""
        self.number += 1
        self.world.topic_ids.pop(self.topic_ids.get(name, b""), None)
        self.topic_ids[name] = topic_id = self.number.to_bytes(16, "big")
        self.world.topic_ids[topic_id] = None

    @initialize(min_insync=st.sampled_from([1, 3]))
    def begin(self, min_insync: int) -> None:
        self.world.partition.min_insync = min_insync
        for topic in TOPICS:
            self.make_topic(topic)
        self.world.lead()

    # Offsets.

    def _write(self, changes: Said) -> None:
        stored = Stored(self.world, changes)
        with self.world.step():
            self.shard.write_offsets(list(changes.items()), stored)  # type: ignore[arg-type]
        stored.appended()
        self.asked_for += stored.entries

    @precondition(serves)
    @rule(keys=st.lists(st.sampled_from(KEYS[:3]), min_size=1, max_size=3, unique=True), in_other=st.booleans())
    def a_simple_consumer_commits(self, keys: list[OffsetKey], in_other: bool) -> None:
        group_id = GROUPS[in_other]
        hosted = self.shard.make_group(group_id)
        assert hosted is not None
        if self.shard.check_commit(hosted, "", None, -1) is ErrorCode.NONE:
            self._write({(key := one._replace(group_id=group_id)): self.value(key) for one in keys})

    @precondition(serves)
    @rule(number=st.integers(0, 5))
    def a_simple_consumer_comes_back_after_long(self, number: int) -> None:
        self.world.advance(RETENTION_MS)
        keys = sorted(self.shard.offsets.keys())
        if keys and self.serves():
            key = keys[number % len(keys)]
            self.a_simple_consumer_commits([key], key.group_id == GROUPS[1])

    @precondition(serves)
    @rule(number=st.integers(0, 3), index=st.integers(0, 2))
    def a_member_commits(self, number: int, index: int) -> None:
        member = self.members[number]
        if member.check_commit() is ErrorCode.NONE:
            key = KEYS[index]._replace(group_id=member.group_id)
            self._write({key: self.value(key)})

    @precondition(serves)
    @rule(key=st.sampled_from(KEYS))
    def an_offset_is_deleted(self, key: OffsetKey) -> None:
        if self.shard.offsets.get(key) is not None or key in self.shard.under_way:
            self._write({key: None})

    @precondition(serves)
    @rule(group_id=st.sampled_from(GROUPS))
    def a_group_is_deleted(self, group_id: str) -> None:
        hosted = self.hosted(group_id)
        log = self.world.log
        if hosted is None or hosted.group.state is not GroupState.EMPTY:
            return
        begin = log.last_index
        coming = self.world.truth_of(self.world.all_entries())
        live = {OffsetKey(*name[:3]) if name[1:] else name for name in coming if name.group_id == group_id}
        stored = Stored(self.world, {})
        with self.world.step():
            self.shard.remove_group(hosted, stored)
        self.asked_for += (entries := log.entries[begin + 1 - log.first_index :])
        if stored.code is None:
            stored.said = {name: value for entry in entries for name, value in self.world.said_in(entry).items()}
            assert live <= stored.said.keys(), "not covered by the deletion"
            assert not any(stored.said.values())
            stored.appended()

    # Members.

    @precondition(serves)
    @rule(number=st.integers(0, 3))
    def someone_joins(self, number: int) -> None:
        self.members[number].join()

    @precondition(serves)
    @rule(number=st.integers(0, 3))
    def someone_joins_to_the_end(self, number: int) -> None:
        member = self.members[number]
        for _ in range(2):
            if member.waits_for is None and (member.generation_id < 0 or not member.member_id):
                member.join()
        member.sync()

    @precondition(serves)
    @rule(number=st.integers(0, 3))
    def someone_syncs(self, number: int) -> None:
        self.members[number].sync()

    @precondition(serves)
    @rule(number=st.integers(0, 3))
    def someone_sends_a_heartbeat(self, number: int) -> None:
        self.members[number].heartbeat()

    @precondition(serves)
    @rule(number=st.integers(0, 3))
    def someone_leaves(self, number: int) -> None:
        self.members[number].leave()

    @precondition(serves)
    @rule(number=st.integers(0, 3))
    def someone_leaves_at_once(self, number: int) -> None:
        self.someone_joins_to_the_end(number)
        self.members[number].leave()

    # The log.

    @rule(count=st.integers(1, 4), copies=st.sampled_from([2, 3]))
    def entries_commit(self, count: int, copies: int) -> None:
        if self.world.raft.leads:
            self.world.commit(count, copies=copies)

    @rule()
    def every_replica_has_what_is_committed(self) -> None:
        self.world.copy()

    @rule(turns=st.integers(1, 3))
    def tasks_go_on(self, turns: int) -> None:
        self.world.breathe(turns)

    @precondition(knows)
    @rule(names=st.lists(st.sampled_from(NAMES), unique=True))
    def some_of_it_is_written_again(self, names: Iterable[Name]) -> None:
        with self.world.step():
            self.shard.runtime.append_again(names, at_once(self.shard.runtime.standby.table.prepare_in_steps(names)))

    @precondition(knows)
    @rule()
    def the_log_is_compacted(self) -> None:
        if not self.shard.runtime.is_rewriting:
            self.shard.runtime.is_rewriting = True
            with self.world.step():
                self.world.coordinator.runtime.rewrite(self.shard.runtime)

    @precondition(knows)
    @rule(turns=st.integers(1, 3))
    def upkeep_looks_at_everything(self, turns: int) -> None:
        with self.world.step():
            self.world.coordinator.host.spawn(self.world.coordinator.expiry.round())
        self.world.breathe(turns)

    @rule(topic=st.sampled_from(TOPICS), is_known_at_once=st.booleans())
    def a_topic_is_deleted_and_made_again(self, topic: str, is_known_at_once: bool) -> None:
        old_id = self.topic_ids[topic]
        self.make_topic(topic)
        if is_known_at_once:
            with self.world.step():
                self.world.coordinator.expiry.forget_topics([(topic, old_id)])

    # Leaders.

    def _said_elsewhere(self, names: Iterable[Name], is_deletion: bool) -> list[Said]:
        said: list[Said] = []
        for name in names:
            self.number += 1
            saved = SavedGroup(
                protocol_type="consumer",
                generation_id=self.number,
                protocol_name=None,
                leader=None,
                current_state_timestamp_ms=self.world.wall_ms(),
                members=(),
            )
            value = self.value(name) if isinstance(name, OffsetKey) else saved
            said.append({name: None if is_deletion else value})
        return said

    @precondition(lambda self: self.world.raft.leads)
    @rule(
        kept=st.integers(0, 2),
        names=st.lists(st.sampled_from(NAMES), max_size=2),
        is_deletion=st.booleans(),
        is_told_late=st.booleans(),
    )
    def another_one_leads(self, kept: int, names: list[Name], is_deletion: bool, is_told_late: bool) -> None:
        uncommitted = self.world.log.last_index - self.world.partition.producers.commit_index
        said = self._said_elsewhere(names, is_deletion)
        self.world.lose(kept=min(kept, uncommitted), said=said, is_told_late=is_told_late)

    @precondition(lambda self: not self.world.raft.leads)
    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), is_deletion=st.booleans())
    def another_one_writes(self, names: list[Name], is_deletion: bool) -> None:
        self.world.follow(self._said_elsewhere(names, is_deletion))

    @precondition(lambda self: not self.world.raft.leads)
    @rule(turns=st.sampled_from([0, 10]))
    def this_one_leads_again(self, turns: int) -> None:
        self.world.win()
        self.world.breathe(turns)

    @precondition(lambda self: not self.world.raft.leads)
    @rule()
    def another_one_rewrites(self) -> None:
        self.world.rewrite_elsewhere()

    @precondition(knows)
    @rule(length_ms=st.sampled_from([0, SESSION_MS]))
    def this_one_stands_still(self, length_ms: int) -> None:
        self.world.stall(length_ms)

    @rule(turns=st.integers(0, 3))
    def a_majority_confirms(self, turns: int) -> None:
        self.world.recover()
        self.world.breathe(turns)

    # Time.

    @rule(length_ms=st.sampled_from([1, 1_000, 3_000, SESSION_MS, 25_000, RETENTION_MS]))
    def time_passes(self, length_ms: int) -> None:
        self.world.advance(length_ms)

    # Invariants.

    @invariant()
    def everything_is_as_the_log_says(self) -> None:
        self.world.check()

    @invariant()
    def nothing_is_deleted_without_a_reason(self) -> None:
        entries = self.world.all_entries()
        same = 0
        while same < min(len(entries), len(self.looked_at)) and entries[same] is self.looked_at[same]:
            same += 1
        for position in range(same, len(entries)):
            entry = entries[position]
            if entry.term % 2 and not any(entry is one for one in self.asked_for):  # By this node's upkeep.
                before = self.world.model_of(entries[:position])
                for name, value in self.world.said_in(entry).items():
                    if isinstance(name, StagedName):
                        continue
                    if value is None and (last := before.known.get(name)) is not None:
                        assert self._has_outlived_its_use(last), f"{name} was in use: {last}"
                    assert value is not None or name not in before.pending(), f"{name} was pending"
        self.looked_at = entries

    def _has_outlived_its_use(self, value: Value) -> bool:
        assert isinstance(value, CommittedOffset | SavedGroup)
        if isinstance(value, SavedGroup):
            return not value.members
        is_old = value.commit_timestamp_ms + RETENTION_MS <= self.world.wall_ms()
        return is_old or value.topic_id not in self.world.topic_ids

    @invariant()
    def nobody_stays_without_being_heard_of(self) -> None:
        world = self.world
        shard, was_sure = self._known
        is_sure = world.shard is not None and world.shard.runtime.is_certain and not world.shard.runtime.is_recovering
        if is_sure and (shard is not world.shard or not was_sure):
            self.listens_since_ms = world.now_ms
        self._known = world.shard, is_sure
        if not is_sure:
            return
        heard = {member.member_id: member.heard_ms for member in self.members}
        for hosted in self.shard.groups.values():
            for member in hosted.group.members.values():
                if not (member.waits or member.is_new):
                    since_ms = max(heard.get(member.member_id, 0), self.listens_since_ms)
                    assert world.now_ms - since_ms <= member.session_timeout_ms + LATE_MS, f"{member.member_id} stays"


def make_small(patch: Any) -> None:
    """Have small batches, and tasks that let others go first at every occasion."""
    patch.setattr("barnabas_broker.coordinators.groups.shard.BATCH_BYTES_MAX", 150)
    patch.setattr("barnabas_broker.coordinators.groups.staging.BATCH_BYTES_MAX", 150)
    patch.setattr("barnabas_broker.coordinators.groups.table.ENDED_STEP", 1)
    patch.setattr("barnabas_broker.coordinators.runtime.rewriting.BATCH_BYTES_MAX", 150)
    patch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    patch.setattr("barnabas_broker.coordinators.runtime.coordinator.STANDBY_ENTRIES", 2)
