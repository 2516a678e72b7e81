"""The controller, one claim at a time: brokers, topics, producer ids, retries."""

from typing import Any

import pytest

from barnabas_metadata_quorum.controller.commands import (
    NAMED_MAX,
    AllocateProducerIds,
    AlterConfigs,
    AlterReassignments,
    Answer,
    BrokerHeartbeat,
    BrokerRegistration,
    CheckSessions,
    Command,
    ConfiguredTopic,
    ControlledShutdown,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsAnswer,
    CreateTopics,
    CreateTopicsAnswer,
    DeleteTopics,
    DeleteTopicsAnswer,
    HeartbeatAnswer,
    NewPartitions,
    NewTopic,
    ProducerIdBlock,
    Reassignment,
    RefusalReason,
    Refused,
    RegisterBroker,
    SessionsChecked,
    UnregisterBroker,
    UnregisterBrokerAnswer,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
)
from barnabas_metadata_quorum.controller.controller import ControllerConfig, decide
from barnabas_metadata_quorum.controller.sessions import Sessions
from barnabas_metadata_quorum.image.image import Broker, Image, apply_all
from barnabas_metadata_quorum.image.records import UNREGISTERED_LEVEL, BrokerFenced, ListenerAddress, Record
from barnabas_raftlog.errors import MalformedMessageError


class Controller:
    """Decides, applies at once, and moves its own clock. Every command and answer also crosses the wire format."""

    def __init__(self, brokers: int = 0, *, record_level: int = 0, **config: Any) -> None:
        self.record_level = record_level
        self.config = ControllerConfig(**config)
        self.image = Image("cluster")
        self.sessions = Sessions(self.config.session_timeout_ms)
        self.now_ms = 1_000
        self.ids = 0
        self.records: tuple[Record, ...] = ()
        for node_id in range(brokers):
            self.join(node_id)

    def ask(self, command: Command) -> Answer:
        decision = decide(self.image, self.sessions, decode_command(encode_command(command)), self.config, self.now_ms)
        self.records = decision.records
        self.image = apply_all(self.image, decision.records)
        return decode_answer(encode_answer(decision.answer))

    def refuses(self, command: Command) -> RefusalReason:
        before = self.image
        with pytest.raises(Refused) as caught:
            self.ask(command)
        assert self.image is before
        return caught.value.reason

    def register(self, node_id: int, incarnation: int = 1, rack: str | None = None) -> int:
        answer = self.ask(
            RegisterBroker(
                node_id=node_id,
                incarnation=incarnation,
                host="host",
                port=9000 + node_id,
                rack=rack,
                record_level=self.record_level,
            )
        )
        assert isinstance(answer, BrokerRegistration)
        return answer.epoch

    def beat(self, node_id: int) -> HeartbeatAnswer:
        answer = self.ask(BrokerHeartbeat(node_id, self.image.brokers[node_id].epoch, self.image.version))
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def join(self, node_id: int, incarnation: int = 1, rack: str | None = None) -> int:
        epoch = self.register(node_id, incarnation, rack)
        self.beat(node_id)
        return epoch

    def grow(self, *topics: NewPartitions) -> list[RefusalReason | None]:
        answer = self.ask(CreatePartitions(topics))
        assert isinstance(answer, CreatePartitionsAnswer)
        return [topic.error for topic in answer.topics]

    def create(self, *topics: NewTopic, validate_only: bool = False, command_id: bytes = b"") -> list[CreatedTopic]:
        with_ids = []
        for topic in topics:
            self.ids += 1
            with_ids.append(
                NewTopic(
                    name=topic.name,
                    partition_count=topic.partition_count,
                    replication_factor=topic.replication_factor,
                    assignments=topic.assignments,
                    configs=topic.configs,
                    topic_id=self.ids.to_bytes(16, "big"),
                )
            )
        answer = self.ask(CreateTopics(tuple(with_ids), validate_only, command_id))
        assert isinstance(answer, CreateTopicsAnswer)
        return list(answer.topics)

    def delete(self, *names: str, ids: tuple[bytes, ...] = (), command_id: bytes = b"") -> list[RefusalReason | None]:
        answer = self.ask(DeleteTopics(names, ids, command_id))
        assert isinstance(answer, DeleteTopicsAnswer)
        return [topic.error for topic in answer.topics]

    def topic_names(self) -> list[str]:
        return [topic.name for topic in self.image.topics.values()]


# ------------------------------------------------------------------------------------------------ brokers


def test_a_broker_starts_fenced_and_is_unfenced_once_it_has_applied_its_registration() -> None:
    controller = Controller()
    epoch = controller.register(4, incarnation=77)
    assert controller.image.brokers[4] == Broker(
        node_id=4, incarnation=77, epoch=epoch, host="host", port=9004, rack=None, fenced=True
    )
    assert controller.ask(BrokerHeartbeat(4, epoch, epoch)) == HeartbeatAnswer(True, False)
    assert controller.ask(BrokerHeartbeat(4, epoch, epoch + 1)) == HeartbeatAnswer(False, False)
    assert controller.image.brokers[4].is_available


def test_registering_again_with_one_incarnation_gives_the_same_epoch() -> None:
    controller = Controller()
    epoch = controller.join(1)
    assert controller.register(1) == epoch
    assert controller.records == ()
    assert controller.image.brokers[1].is_available


def test_a_process_that_names_other_listeners_is_registered_anew() -> None:
    controller = Controller()
    controller.register(1)
    listeners = (ListenerAddress("INSIDE", "host", 9001),)
    command = RegisterBroker(node_id=1, incarnation=1, host="host", port=9001, listeners=listeners)
    assert decode_command(encode_command(command)) == command
    again = [controller.ask(command), controller.ask(command)]
    assert again[0] == again[1], "the second time says nothing new"
    assert controller.image.brokers[1].listeners == listeners


def test_a_new_incarnation_replaces_the_old_one_at_once() -> None:
    controller = Controller()
    old = controller.join(1, incarnation=1)
    new = controller.register(1, incarnation=2)
    assert new > old
    assert controller.image.brokers[1].fenced
    assert controller.refuses(BrokerHeartbeat(1, old, 99)) is RefusalReason.STALE_BROKER_EPOCH
    assert controller.refuses(ControlledShutdown(1, old, False)) is RefusalReason.STALE_BROKER_EPOCH


def test_an_unknown_broker_cannot_beat() -> None:
    assert Controller().refuses(BrokerHeartbeat(9, 0, 0)) is RefusalReason.BROKER_ID_NOT_REGISTERED


def test_silence_longer_than_the_session_fences_and_says_for_how_long() -> None:
    controller = Controller(2, session_timeout_ms=3_000)
    for _ in range(6):
        controller.now_ms += 500
        controller.beat(0)
        assert controller.ask(CheckSessions()) == SessionsChecked(())
    controller.now_ms += 1
    assert controller.ask(CheckSessions()) == SessionsChecked((1,))
    assert controller.records == (BrokerFenced(1, controller.image.brokers[1].epoch, "no heartbeat for 3001 ms"),)
    assert controller.ask(CheckSessions()) == SessionsChecked(())
    assert controller.beat(1) == HeartbeatAnswer(False, False)


def test_a_new_controller_starts_every_session_anew() -> None:
    controller = Controller(2)
    controller.sessions = Sessions(3_000)  # another node has become the controller
    controller.now_ms += 60_000
    assert controller.ask(CheckSessions()) == SessionsChecked(())
    for _ in range(7):
        controller.now_ms += 500
        controller.beat(0)
        controller.ask(CheckSessions())
    assert controller.image.brokers[1].fenced


def test_time_in_which_the_controller_stood_still_counts_against_nobody() -> None:
    controller = Controller(2)
    controller.ask(CheckSessions())
    controller.now_ms += 60_000
    assert controller.ask(CheckSessions()) == SessionsChecked(())


def test_shutdown_first_avoids_the_broker_then_fences_it() -> None:
    controller = Controller(3)
    epoch = controller.image.brokers[0].epoch
    assert controller.ask(ControlledShutdown(0, epoch, False)) == HeartbeatAnswer(False, True)
    assert not controller.image.brokers[0].fenced
    assert controller.beat(0) == HeartbeatAnswer(False, True)
    [created] = controller.create(NewTopic("t", 4, 2))
    assert all(0 not in p.replicas for p in controller.image.topics[created.topic_id].partitions)
    assert controller.ask(ControlledShutdown(0, epoch, True)) == HeartbeatAnswer(True, True)
    assert controller.ask(ControlledShutdown(0, epoch, True)) == HeartbeatAnswer(True, True)
    assert controller.records == ()
    assert controller.beat(0) == HeartbeatAnswer(True, True)
    controller.join(0, incarnation=2)
    assert controller.image.brokers[0].is_available


def test_a_broker_that_is_away_and_holds_nothing_is_forgotten() -> None:
    controller = Controller(4, record_level=UNREGISTERED_LEVEL)
    [created] = controller.create(NewTopic("t", assignments={0: (0, 1, 2)}))
    assert controller.refuses(UnregisterBroker(7)) is RefusalReason.BROKER_ID_NOT_REGISTERED
    assert controller.refuses(UnregisterBroker(3)) is RefusalReason.INVALID_REQUEST  # It runs.
    for node_id in (2, 3):
        controller.ask(ControlledShutdown(node_id, controller.image.brokers[node_id].epoch, True))
    assert controller.refuses(UnregisterBroker(2)) is RefusalReason.INVALID_REQUEST  # It holds a replica.
    for _ in range(2):  # The second one is the same command, whose answer was lost.
        assert controller.ask(UnregisterBroker(3, b"once")) == UnregisterBrokerAnswer()
        assert sorted(controller.image.brokers) == [0, 1, 2]
    assert controller.refuses(UnregisterBroker(3)) is RefusalReason.BROKER_ID_NOT_REGISTERED
    assert created.error is None
    controller.ask(DeleteTopics(("t",)))
    controller.ask(UnregisterBroker(2))
    assert sorted(controller.image.brokers) == [0, 1]
    controller.join(3, incarnation=2)
    assert controller.image.brokers[3].is_available


def test_a_witness_is_not_forgotten() -> None:
    controller = Controller(3, record_level=UNREGISTERED_LEVEL)
    [created] = controller.create(NewTopic("t", 1, 2))
    witness = controller.image.topics[created.topic_id].partitions[0].witness
    controller.ask(ControlledShutdown(witness, controller.image.brokers[witness].epoch, True))
    assert controller.refuses(UnregisterBroker(witness)) is RefusalReason.INVALID_REQUEST


def test_nobody_is_forgotten_before_all_brokers_can_read_it() -> None:
    controller = Controller(0)
    for node_id, level in ((0, UNREGISTERED_LEVEL), (1, UNREGISTERED_LEVEL - 1), (2, 0)):
        controller.ask(RegisterBroker(node_id=node_id, incarnation=1, host="h", port=1, record_level=level))
        if node_id < 2:
            controller.ask(BrokerHeartbeat(node_id, controller.image.brokers[node_id].epoch, controller.image.version))
    assert controller.refuses(UnregisterBroker(2)) is RefusalReason.UNSUPPORTED_VERSION
    controller.ask(ControlledShutdown(1, controller.image.brokers[1].epoch, True))
    controller.ask(UnregisterBroker(2))
    controller.ask(UnregisterBroker(1))
    assert sorted(controller.image.brokers) == [0]


def test_a_broker_that_was_forgotten_while_it_stood_still_joins_again() -> None:
    controller = Controller(2, record_level=UNREGISTERED_LEVEL)
    epoch = controller.image.brokers[1].epoch
    controller.now_ms += controller.config.session_timeout_ms // 3
    controller.ask(CheckSessions())
    for _ in range(4):
        controller.now_ms += controller.config.session_timeout_ms // 3
        controller.beat(0)
        controller.ask(CheckSessions())
    controller.ask(UnregisterBroker(1))
    assert controller.refuses(BrokerHeartbeat(1, epoch, 9)) is RefusalReason.BROKER_ID_NOT_REGISTERED
    assert controller.join(1) > epoch


# ------------------------------------------------------------------------------------------------- topics


def test_a_topic_gets_the_defaults_it_does_not_name() -> None:
    controller = Controller(3, default_partitions=6, default_replication_factor=3)
    [created] = controller.create(NewTopic("events", configs={"flush.mode": "page-cache"}))
    assert (created.error, created.partition_count, created.replication_factor) == (None, 6, 3)
    topic = controller.image.topic_named("events")
    assert topic is not None
    assert topic.topic_id == created.topic_id
    assert topic.configs == created.configs == {"flush.mode": "page-cache"}
    assert sorted(topic.partitions[0].replicas) == [0, 1, 2]


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (NewTopic(""), RefusalReason.INVALID_TOPIC),
        (NewTopic("."), RefusalReason.INVALID_TOPIC),
        (NewTopic(".."), RefusalReason.INVALID_TOPIC),
        (NewTopic("a" * 249), None),
        (NewTopic("a" * 250), RefusalReason.INVALID_TOPIC),
        (NewTopic("sp ace"), RefusalReason.INVALID_TOPIC),
        (NewTopic("ünlaut"), RefusalReason.INVALID_TOPIC),
        (NewTopic("AZaz09._-"), None),
        (NewTopic("old.name"), RefusalReason.TOPIC_ALREADY_EXISTS),
        (NewTopic("old_name"), RefusalReason.INVALID_TOPIC),
        (NewTopic("__cluster_metadata"), RefusalReason.INVALID_REQUEST),
        (NewTopic("__consumer_offsets"), None),
        (NewTopic("__consumer_offsets", configs={"flush.mode": "page-cache"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", 0), RefusalReason.INVALID_PARTITIONS),
        (NewTopic("t", -2), RefusalReason.INVALID_PARTITIONS),
        (NewTopic("t", 9_999), None),
        (NewTopic("t", 1, 0), RefusalReason.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), RefusalReason.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), None),
        (NewTopic("t", 1, 4), RefusalReason.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", assignments={0: (2, 1), 1: (0, 2)}), None),
        (NewTopic("t", 2, assignments={0: (2, 1), 1: (0, 2)}), RefusalReason.INVALID_REQUEST),
        (NewTopic("t", assignments={1: (2, 1)}), RefusalReason.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: ()}), RefusalReason.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: (1, 1)}), RefusalReason.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: (1, 7)}), RefusalReason.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: (1, 2), 1: (0,)}), RefusalReason.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", configs={"retention.ms": "-1", "segment.bytes": "1048576"}), None),
        (NewTopic("t", configs={"retention.ms": "60000"}), None),
        (NewTopic("t", configs={"retention.ms": "-2"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"retention.bytes": "-2"}), None),
        (NewTopic("t", configs={"segment.ms": "0"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"cleanup.policy": ""}), None),
        (NewTopic("__consumer_offsets", configs={"retention.ms": "60000"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"cleanup.policy": "compact, delete"}), None),
        (NewTopic("t", configs={"cleanup.policy": "compact,compact"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"cleanup.policy": "keep"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"min.cleanable.dirty.ratio": "1.5"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"min.cleanable.dirty.ratio": "nan"}), RefusalReason.INVALID_CONFIG),
        (
            NewTopic("t", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}),
            RefusalReason.INVALID_CONFIG,
        ),
        (NewTopic("t", configs={"compression.type": "gzip", "compression.gzip.level": "9"}), None),
        (NewTopic("t", configs={"compression.type": "none"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"compression.gzip.level": "-1"}), None),
        (NewTopic("t", configs={"compression.gzip.level": "0"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"compression.lz4.level": "17"}), None),
        (NewTopic("t", configs={"compression.lz4.level": "0"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"compression.zstd.level": "-131072"}), None),
        (NewTopic("t", configs={"compression.zstd.level": "23"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"message.timestamp.type": "LogTime"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"message.timestamp.type": "LogAppendTime"}), None),
        (NewTopic("t", configs={"record.validation": "some"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"record.validation": "none"}), None),
        (NewTopic("t", configs={"flush.mode": "sometimes"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"segment.bytes": "1048575"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"max.message.bytes": "many"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"max.message.bytes": str(63 << 20)}), None),
        (NewTopic("t", configs={"max.message.bytes": str((63 << 20) + 1)}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"max.message.bytes": "9" * 5_000}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"min.insync.replicas": "0"}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"min.insync.replicas": "2"}), None),
        (NewTopic("t", configs={"min.insync.replicas": None}), RefusalReason.INVALID_CONFIG),
        (NewTopic("t", configs={"no.such.config": "1"}), RefusalReason.INVALID_CONFIG),
    ],
)
def test_topics_are_checked_as_kafka_checks_them(topic: NewTopic, reason: RefusalReason | None) -> None:
    controller = Controller(3)
    controller.create(NewTopic("old.name"))
    version = controller.image.version
    [tried] = controller.create(topic, validate_only=True)
    assert controller.image.version == version
    [created] = controller.create(topic)
    assert created.error == tried.error == reason
    assert bool(created.message) == (reason is not None)
    assert (controller.image.version == version) == (reason is not None)


def test_refused_configs_are_explained() -> None:
    controller = Controller(1)
    [created] = controller.create(NewTopic("t", configs={"compression.type": "none"}))
    assert created.message == (
        "Topic config compression.type=none: must be producer or uncompressed or gzip or snappy or lz4 or zstd"
    )
    [created] = controller.create(NewTopic("t", configs={"compression.gzip.level": "0"}))
    assert created.message == "Topic config compression.gzip.level=0: must be -1, or between 1 and 9"


def test_one_bad_topic_harms_no_other() -> None:
    controller = Controller(1)
    fates = controller.create(NewTopic("a.b"), NewTopic("a_b"), NewTopic("twice"), NewTopic("c"), NewTopic("twice"))
    assert [fate.error for fate in fates] == [
        None,
        RefusalReason.INVALID_TOPIC,
        RefusalReason.INVALID_REQUEST,
        None,
        RefusalReason.INVALID_REQUEST,
    ]
    assert controller.topic_names() == ["a.b", "c"]


def test_too_many_partitions_in_one_command_refuse_all_of_it() -> None:
    controller = Controller(1)
    topics = tuple(NewTopic(name, 5_001, 1, topic_id=name.encode() * 16) for name in "ab")
    assert controller.refuses(CreateTopics(topics)) is RefusalReason.POLICY_VIOLATION


@pytest.mark.parametrize(
    "command",
    [
        CreateTopics(tuple([NewTopic("t", 1, 1)] * (NAMED_MAX + 1))),
        CreatePartitions(tuple([NewPartitions("t", 1)] * (NAMED_MAX + 1))),
        AlterConfigs(tuple([ConfiguredTopic("t", ())] * (NAMED_MAX + 1))),
        AlterReassignments(tuple([Reassignment("t", 0, (0,))] * (NAMED_MAX + 1))),
        DeleteTopics(("t",) * NAMED_MAX, (bytes(16),)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_that_names_too_much_is_refused_as_a_whole(command: Command) -> None:
    controller = Controller(1)
    controller.create(NewTopic("t", 1, 1))
    assert controller.refuses(command) is RefusalReason.POLICY_VIOLATION


def test_a_cluster_has_so_many_topics_and_partitions_and_no_more() -> None:
    controller = Controller(3, topics_max=4, partitions_max=10)
    wanted = [NewTopic(name, count, 3) for name, count in [("a", 6), ("b", 5), ("c", 4), ("d", 1)]]
    made = controller.create(*wanted, NewTopic("e", assignments={0: (0, 1)}))
    violated = RefusalReason.POLICY_VIOLATION
    assert [topic.error for topic in made] == [None, violated, None, violated, violated]
    assert made[1].message == "The cluster has 6 partitions; 10 is the maximum (max.partitions)"
    (offsets,) = controller.create(NewTopic("__consumer_offsets", 16, 3))
    assert offsets.error is None, "no group could go on without it"
    assert controller.grow(NewPartitions("c", 5)) == [violated]
    controller.ask(DeleteTopics(("__consumer_offsets",)))
    assert controller.grow(NewPartitions("a", 7), NewPartitions("c", 5)) == [violated, violated]
    controller.ask(DeleteTopics(("a",)))
    assert controller.grow(NewPartitions("c", 10)) == [None]
    controller.ask(DeleteTopics(("c",)))
    controller.create(NewTopic("c", 2, 1))
    names = [topic.error for topic in controller.create(*[NewTopic(name, 1, 1) for name in "defgh"])]
    assert names == [None, None, None, violated, violated]


def test_two_replicas_without_a_third_broker_come_with_a_warning() -> None:
    controller = Controller(3)
    controller.ask(ControlledShutdown(0, controller.image.brokers[0].epoch, True))
    assert [fate.warning != "" for fate in controller.create(*(NewTopic(f"t{n}", 1, n) for n in (1, 2, 3)))] == [
        False,
        True,
        False,
    ]


def test_a_hundred_topics_of_one_command_spread_over_the_brokers() -> None:
    controller = Controller(4)
    controller.create(*(NewTopic(f"topic-{number}", 1, 3) for number in range(100)))
    assert {(load.leaders, load.replicas) for load in controller.image.loads.values()} == {(25, 75)}


def test_topics_are_deleted_by_name_or_by_id() -> None:
    controller = Controller(1)
    first, second, third = controller.create(NewTopic("first"), NewTopic("second"), NewTopic("third"))
    assert controller.delete("first", "nope", ids=(second.topic_id, bytes(15) + b"\xff")) == [
        None,
        RefusalReason.UNKNOWN_TOPIC,
        None,
        RefusalReason.UNKNOWN_TOPIC_ID,
    ]
    assert controller.delete("third", ids=(third.topic_id,)) == [RefusalReason.INVALID_REQUEST] * 2
    assert controller.topic_names() == ["third"]
    [again] = controller.create(NewTopic("first"))
    assert again.topic_id != first.topic_id


# ------------------------------------------------------------------------------------ retries, producer ids


def test_a_retried_creation_gets_the_first_answer() -> None:
    controller = Controller(1)
    first = controller.create(NewTopic("a"), NewTopic("a.b"), NewTopic("a_b"), command_id=b"one")
    assert controller.create(NewTopic("a"), NewTopic("a.b"), NewTopic("a_b"), command_id=b"one") == first
    assert controller.records == ()
    [other] = controller.create(NewTopic("a"), command_id=b"two")
    assert other.error is RefusalReason.TOPIC_ALREADY_EXISTS


def test_a_retried_deletion_does_not_delete_the_successor() -> None:
    controller = Controller(1)
    controller.create(NewTopic("a"))
    assert controller.delete("a", command_id=b"one") == [None]
    controller.create(NewTopic("a"))
    assert controller.delete("a", command_id=b"one") == [None]
    assert controller.topic_names() == ["a"]


def test_producer_ids_are_given_out_once() -> None:
    controller = Controller()
    assert controller.ask(AllocateProducerIds()) == ProducerIdBlock(0, 1_000)
    assert controller.ask(AllocateProducerIds(5)) == ProducerIdBlock(1_000, 5)
    assert controller.ask(AllocateProducerIds()) == ProducerIdBlock(1_005, 1_000)
    assert controller.refuses(AllocateProducerIds(0)) is RefusalReason.INVALID_REQUEST


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", b"\x81\xa4type\xa4nope"])
def test_what_is_no_command_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_command(body)
    with pytest.raises(MalformedMessageError):
        decode_answer(body)
