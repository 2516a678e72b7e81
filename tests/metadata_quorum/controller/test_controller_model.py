"""Compares controller, image and snapshots with a list of brokers and topics."""

import struct

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_metadata_quorum.controller.commands import (
    AllocateProducerIds,
    BrokerHeartbeat,
    CheckSessions,
    Command,
    ControlledShutdown,
    CreateSnapshot,
    CreateSnapshotAnswer,
    CreateTopics,
    CreateTopicsAnswer,
    DeleteSnapshot,
    DeleteTopics,
    DeleteTopicsAnswer,
    NewTopic,
    ProducerIdBlock,
    Refused,
    RegisterBroker,
)
from barnabas_metadata_quorum.controller.controller import ControllerConfig, Decision, decide
from barnabas_metadata_quorum.controller.sessions import Sessions
from barnabas_metadata_quorum.image.image import ANSWERS_MAX, Image, apply, apply_all, topic_changes
from barnabas_metadata_quorum.image.records import CommandAnswered, NamedSnapshot, PinnedTopic, Record
from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot, encode_snapshot

NAMES = ("a.b", "a_b", "c", "d", ".", "")
node_ids = st.integers(0, 3)


class ControllerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.config = ControllerConfig(default_partitions=2, default_replication_factor=1, session_timeout_ms=100)
        self.image = Image("cluster")
        self.sessions = Sessions(100)
        self.log: list[Record] = []
        self.now_ms = 0
        # The model: node -> (incarnation, "fenced" | "up" | "leaving" | "gone", last heard), names, next id.
        self.brokers: dict[int, tuple[int, str, int]] = {}
        self.topics: dict[str, tuple[int, int]] = {}
        self.next_producer_id = 0
        self.topic_count = 0
        self.levels: dict[int, int] = {}
        self.snapshots: dict[str, bytes] = {}
        self.snapshot_count = 0

    def ask(self, command: Command) -> Decision | None:
        before = self.image
        tables = ("topics", "brokers", "named_snapshots")
        copy = msgspec.structs.replace(before, **{name: dict(getattr(before, name)) for name in tables})
        try:
            decision = decide(self.image, self.sessions, command, self.config, self.now_ms)
        except Refused:
            return None
        self.log.extend(decision.records)
        self.image = apply_all(self.image, decision.records)
        assert before == copy, "an image never changes"
        one_by_one = before
        for record in decision.records:
            one_by_one = apply(one_by_one, record)
        assert one_by_one == self.image
        return decision

    @rule(node_id=node_ids, incarnation=st.integers(1, 2), level=st.integers(0, 1))
    def register(self, node_id: int, incarnation: int, level: int) -> None:
        assert self.ask(RegisterBroker(node_id, incarnation, "h", node_id, record_level=level)) is not None
        known = self.brokers.get(node_id)
        is_same = known is not None and known[0] == incarnation and known[1] in {"up", "fenced"}
        state = known[1] if known and is_same else "fenced"
        if not is_same:
            self.levels[node_id] = level
        self.brokers[node_id] = (incarnation, state, self.now_ms)

    @rule(node_id=node_ids, stale=st.booleans(), level=st.integers(0, 1))
    def beat(self, node_id: int, stale: bool, level: int) -> None:
        known = self.image.brokers.get(node_id)
        epoch = (known.epoch if known else 0) - stale
        decision = self.ask(BrokerHeartbeat(node_id, epoch, self.image.version, level))
        assert (decision is None) == (known is None or stale)
        if decision is not None:
            incarnation, state, _ = self.brokers[node_id]
            self.brokers[node_id] = (incarnation, "up" if state == "fenced" else state, self.now_ms)
            if state in {"up", "fenced"}:
                self.levels[node_id] = max(level, self.levels[node_id])

    @rule(node_id=node_ids, done=st.booleans())
    def shut_down(self, node_id: int, done: bool) -> None:
        known = self.image.brokers.get(node_id)
        if known is not None:
            self.ask(ControlledShutdown(node_id, known.epoch, done))
            incarnation, state, heard = self.brokers[node_id]
            self.brokers[node_id] = (incarnation, "gone" if done or state in {"fenced", "gone"} else "leaving", heard)

    @rule(steps=st.integers(1, 4))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += 50
            self.ask(CheckSessions())
            for node_id, (incarnation, state, heard) in self.brokers.items():
                if state in {"up", "leaving"} and self.now_ms - heard > 100:
                    self.brokers[node_id] = (incarnation, "fenced" if state == "up" else "gone", heard)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), factor=st.integers(-1, 4))
    def create(self, names: list[str], factor: int) -> None:
        topics = []
        for name in names:
            self.topic_count += 1
            topics.append(NewTopic(name, -1, factor, topic_id=self.topic_count.to_bytes(16, "big")))
        decision = self.ask(CreateTopics(tuple(topics), command_id=self.topic_count.to_bytes(16, "big")))
        assert decision is not None
        assert isinstance(decision.answer, CreateTopicsAnswer)
        replicas = abs(factor)
        up = sum(state == "up" for _, state, _ in self.brokers.values())
        for name, fate in zip(names, decision.answer.topics, strict=True):
            free = not any(name.replace(".", "_") == other.replace(".", "_") for other in self.topics)
            placeable = 0 < replicas <= len(self.brokers) and up > replicas // 2
            allowed = names.count(name) == 1 and name not in {"", "."} and free and placeable
            assert (fate.error is None) == allowed, fate
            if allowed:
                self.topics[name] = (2, replicas)

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=3), by_id=st.booleans())
    def delete(self, names: list[str], by_id: bool) -> None:
        found = [topic for name in names if (topic := self.image.topic_named(name))]
        ids = tuple(topic.topic_id for topic in found)
        decision = self.ask(DeleteTopics(topic_ids=ids) if by_id else DeleteTopics(names=tuple(names)))
        assert decision is not None
        assert isinstance(decision.answer, DeleteTopicsAnswer)
        asked = [topic.name for topic in found] if by_id else names
        for name, fate in zip(asked, decision.answer.topics, strict=True):
            allowed = name in self.topics and asked.count(name) == 1
            assert (fate.error is None) == allowed
        for name in asked:
            if asked.count(name) == 1:
                self.topics.pop(name, None)

    @rule(name=st.sampled_from(("a", "b", "c", "")), topic=st.sampled_from(NAMES), partition=st.integers(0, 2))
    def keep(self, name: str, topic: str, partition: int) -> None:
        self.snapshot_count += 1
        snapshot_id = self.snapshot_count.to_bytes(16, "big")
        there = self.image.topic_named(topic)
        ranges = struct.pack(">iiqq", partition, 0, 0, 5)
        pinned = PinnedTopic(there.topic_id if there else b"no" * 8, topic, ranges)
        decision = self.ask(CreateSnapshot(NamedSnapshot(snapshot_id, name, 0, (pinned,))))
        taken = name in self.snapshots
        members = {node_id for node_id, (_, state, _) in self.brokers.items() if state in {"up", "leaving"}}
        all_read_it = all(self.levels[node_id] for node_id in members | self.image.loads.keys())
        allowed = name != "" and (taken or (topic in self.topics and partition < 2 and all_read_it))
        assert (decision is not None) == allowed
        if decision is not None:
            kept = self.snapshots.setdefault(name, snapshot_id)
            assert decision.answer == CreateSnapshotAnswer(kept, created=not taken)

    @rule(name=st.sampled_from(("a", "b", "c")), stale=st.booleans())
    def drop(self, name: str, stale: bool) -> None:
        snapshot_id = bytes(16) if stale else self.snapshots.get(name, bytes(16))
        decision = self.ask(DeleteSnapshot(name, snapshot_id))
        assert (decision is not None) == (name in self.snapshots and not stale)
        if decision is not None:
            del self.snapshots[name]

    @rule(count=st.integers(1, 3))
    def allocate(self, count: int) -> None:
        decision = self.ask(AllocateProducerIds(count))
        assert decision is not None
        assert decision.answer == ProducerIdBlock(self.next_producer_id, count)
        self.next_producer_id += count

    @invariant()
    def image_agrees_with_model(self) -> None:
        image = self.image
        assert {
            topic.name: (len(topic.partitions), len(topic.partitions[0].replicas)) for topic in image.topics.values()
        } == self.topics
        state = {True: {True: "gone", False: "leaving"}, False: {True: "fenced", False: "up"}}
        assert {n: state[b.shutting_down][b.fenced] for n, b in image.brokers.items()} == {
            n: s for n, (_, s, _) in self.brokers.items()
        }
        assert {name: one.snapshot_id for name, one in image.named_snapshots.items()} == self.snapshots
        assert image.named_snapshots_bytes == sum(one.size_bytes for one in image.named_snapshots.values())
        assert {node_id: broker.record_level for node_id, broker in image.brokers.items()} == self.levels
        assert image.version == len(self.log)

    @invariant()
    def loads_are_what_counting_gives(self) -> None:
        held: dict[int, list[int]] = {}
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                for position, node_id in enumerate(partition.replicas):
                    counts = held.setdefault(node_id, [0, 0])
                    counts[0] += 1
                    counts[1] += position == 0
        assert {node_id: list(load) for node_id, load in self.image.loads.items()} == held

    @invariant()
    def snapshot_and_replay_give_the_same_image(self) -> None:
        snapshot = Snapshot(7, 3, self.image)
        read = decode_snapshot(encode_snapshot(snapshot))
        assert read == snapshot
        assert list(read.image.topics) == list(self.image.topics)
        assert apply_all(Image("cluster"), self.log) == self.image


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_only_the_newest_answers_are_remembered() -> None:
    image = apply_all(Image("c"), (CommandAnswered(n.to_bytes(2, "big"), b"x") for n in range(ANSWERS_MAX + 1)))
    assert len(image.answers) == image.answers_bytes == ANSWERS_MAX
    assert bytes(2) not in image.answers


def test_large_answers_are_forgotten_sooner() -> None:
    image = apply_all(Image("c"), (CommandAnswered(bytes([n]), bytes(2 << 20)) for n in range(4)))
    assert list(image.answers) == [b"\x02", b"\x03"]
    huge = apply(image, CommandAnswered(b"huge", bytes(5 << 20)))
    assert list(huge.answers) == [b"huge"]
    assert huge.answers_bytes == 5 << 20


def test_changes_between_images_are_found() -> None:
    config = ControllerConfig()
    sessions = Sessions(100)
    empty = Image("c")
    registered = apply_all(empty, decide(empty, sessions, RegisterBroker(1, 1, "h", 1), config, 0).records)
    up = apply_all(registered, decide(registered, sessions, BrokerHeartbeat(1, 0, 1), config, 0).records)
    assert topic_changes(empty, up) == ((), (), ())
    one = apply_all(up, decide(up, sessions, CreateTopics((NewTopic("t", topic_id=b"i" * 16),)), config, 0).records)
    assert [topic.name for topic in topic_changes(up, one).created] == ["t"]
    assert [topic.name for topic in topic_changes(one, up).deleted] == ["t"]
