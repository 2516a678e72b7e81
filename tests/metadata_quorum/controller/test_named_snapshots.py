"""Named snapshots, one claim at a time: first come, bounds, deletion, and brokers that are too old."""

import struct

import pytest

from barnabas_metadata_quorum.controller import named_snapshots
from barnabas_metadata_quorum.controller.commands import (
    BrokerHeartbeat,
    CheckSessions,
    Command,
    CreateSnapshot,
    CreateSnapshotAnswer,
    CreateTopics,
    DeleteSnapshot,
    DeleteSnapshotAnswer,
    DeleteTopics,
    NewTopic,
    RefusalReason,
    Refused,
    RegisterBroker,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
)
from barnabas_metadata_quorum.controller.controller import ControllerConfig, decide
from barnabas_metadata_quorum.controller.sessions import Sessions
from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import RECORD_LEVEL, NamedSnapshot, NamedSnapshotCreated, PinnedTopic

ORDERS = b"orders".ljust(16)
OTHERS = b"others".ljust(16)
ONE_RANGE = struct.pack(">iiqq", 0, 3, 0, 10)


class Controller:
    """Decides and applies at once; brokers that it has understand `levels`. Commands and answers cross the wire."""

    def __init__(self, *levels: int) -> None:
        self.image = Image("cluster")
        self.sessions = Sessions(100)
        self.config = ControllerConfig(default_partitions=2)
        self.now_ms = 0
        for node_id, level in enumerate(levels, 1):
            self.join(node_id, level)
        self.create("orders", ORDERS)

    def ask(self, command: Command) -> object:
        sent = decode_command(encode_command(command))
        decision = decide(self.image, self.sessions, sent, self.config, self.now_ms)
        self.image = apply_all(self.image, decision.records)
        return decode_answer(encode_answer(decision.answer))

    def refuses(self, command: Command, match: str) -> RefusalReason:
        before = self.image
        with pytest.raises(Refused, match=match) as caught:
            self.ask(command)
        assert self.image is before
        return caught.value.reason

    def join(self, node_id: int, level: int, incarnation: int = 1) -> None:
        self.ask(RegisterBroker(node_id, incarnation, "host", 9000 + node_id, record_level=level))
        self.beat(node_id, level)

    def beat(self, node_id: int, level: int) -> None:
        self.ask(BrokerHeartbeat(node_id, self.image.brokers[node_id].epoch, self.image.version, level))

    def create(self, name: str, topic_id: bytes) -> None:
        self.ask(CreateTopics((NewTopic(name, topic_id=topic_id),)))
        assert self.image.topic_named(name) is not None


def snapshot(number: int, name: str = "month-end", *topics: PinnedTopic) -> NamedSnapshot:
    pinned = topics or (PinnedTopic(ORDERS, "orders", ONE_RANGE),)
    return NamedSnapshot(number.to_bytes(16, "big"), name, 1_700_000_000_000, pinned)


def test_the_first_one_stays_and_the_second_is_told_of_it() -> None:
    controller = Controller(RECORD_LEVEL)
    first = snapshot(1)
    assert controller.ask(CreateSnapshot(first)) == CreateSnapshotAnswer(first.snapshot_id, created=True)
    before = controller.image
    assert controller.ask(CreateSnapshot(snapshot(2))) == CreateSnapshotAnswer(first.snapshot_id, created=False)
    assert controller.image.named_snapshots == {"month-end": first} == before.named_snapshots


def test_a_retry_is_told_that_it_made_the_snapshot() -> None:
    controller = Controller(RECORD_LEVEL)
    for command_id in (b"a" * 16, b"a" * 16, b"b" * 16):
        answer = controller.ask(CreateSnapshot(snapshot(1), command_id))
        assert answer == CreateSnapshotAnswer(snapshot(1).snapshot_id, created=True)


def test_a_retry_of_before_does_not_bring_a_deleted_snapshot_back() -> None:
    controller = Controller(RECORD_LEVEL)
    controller.ask(CreateSnapshot(snapshot(1), b"a" * 16))
    controller.ask(DeleteSnapshot("month-end", snapshot(1).snapshot_id))
    controller.ask(CreateSnapshot(snapshot(1), b"a" * 16))
    assert not controller.image.named_snapshots


def test_deletion_never_hits_a_successor() -> None:
    controller = Controller(RECORD_LEVEL)
    first = DeleteSnapshot("month-end", snapshot(1).snapshot_id)
    assert controller.refuses(first, "there is no snapshot 'month-end'") is RefusalReason.RESOURCE_NOT_FOUND
    controller.ask(CreateSnapshot(snapshot(1)))
    assert controller.ask(first) == DeleteSnapshotAnswer()
    controller.ask(CreateSnapshot(snapshot(2)))
    assert controller.refuses(first, "is another one now") is RefusalReason.RESOURCE_NOT_FOUND
    assert controller.image.named_snapshots_bytes == snapshot(2).size_bytes


def test_a_snapshot_outlives_its_topics() -> None:
    controller = Controller(RECORD_LEVEL)
    controller.ask(CreateSnapshot(snapshot(1)))
    controller.ask(DeleteTopics(("orders",)))
    assert controller.image.named_snapshots == {"month-end": snapshot(1)}


@pytest.mark.parametrize(
    ("wanted", "reason", "match"),
    [
        (snapshot(1, ""), RefusalReason.INVALID_REQUEST, "cannot be the name of a snapshot"),
        (snapshot(1, "a b"), RefusalReason.INVALID_REQUEST, "cannot be the name of a snapshot"),
        (snapshot(1, "n" * 250), RefusalReason.INVALID_REQUEST, "maximum of 249"),
        (NamedSnapshot(b"i" * 16, "n", 0, ()), RefusalReason.INVALID_REQUEST, "needs topics"),
        (snapshot(1, "n", PinnedTopic(ORDERS, "orders", b"")), RefusalReason.INVALID_REQUEST, "needs topics"),
        (
            snapshot(1, "n", PinnedTopic(OTHERS, "o", ONE_RANGE)),
            RefusalReason.UNKNOWN_TOPIC_ID,
            "deleted meanwhile",
        ),
        (snapshot(1, "n", *[PinnedTopic(ORDERS, "orders", ONE_RANGE)] * 2), RefusalReason.INVALID_REQUEST, "twice"),
        (snapshot(1, "n", PinnedTopic(ORDERS, "orders", bytes(25))), RefusalReason.INVALID_REQUEST, "cut off"),
        (
            snapshot(1, "n", PinnedTopic(ORDERS, "orders", struct.pack(">iiqq", 2, 0, 0, 1))),
            RefusalReason.INVALID_REQUEST,
            "no partition 2",
        ),
        (
            snapshot(1, "n", PinnedTopic(ORDERS, "orders", ONE_RANGE * 10_001)),
            RefusalReason.POLICY_VIOLATION,
            "10001 partitions in one snapshot; 10000 is the maximum",
        ),
        (
            snapshot(1, "n", *[PinnedTopic(bytes(16), "t", ONE_RANGE)] * 2_001),
            RefusalReason.POLICY_VIOLATION,
            "2001 topics in one snapshot; 2000 is the maximum",
        ),
        (
            snapshot(1, "n", *[PinnedTopic(n.to_bytes(16, "big"), "t" * 249, ONE_RANGE) for n in range(2_000)]),
            RefusalReason.POLICY_VIOLATION,
            "524288 is the maximum",
        ),
    ],
)
def test_what_is_impossible_is_refused_with_its_reason(
    wanted: NamedSnapshot, reason: RefusalReason, match: str
) -> None:
    assert Controller(RECORD_LEVEL).refuses(CreateSnapshot(wanted), match) is reason


def test_a_cluster_holds_a_thousand_snapshots_and_no_more() -> None:
    controller = Controller(RECORD_LEVEL)
    many = [NamedSnapshotCreated(snapshot(number, f"s{number}")) for number in range(named_snapshots.SNAPSHOTS_MAX)]
    controller.image = apply_all(controller.image, many)
    reason = controller.refuses(CreateSnapshot(snapshot(1, "one-more")), "1000 snapshots, which is the maximum")
    assert reason is RefusalReason.POLICY_VIOLATION
    # One that is there is found all the same.
    assert controller.ask(CreateSnapshot(snapshot(9_999, "s7"))) == CreateSnapshotAnswer(snapshot(7).snapshot_id, False)


def test_all_snapshots_together_have_a_bound_in_bytes() -> None:
    controller = Controller(RECORD_LEVEL)
    huge = [
        NamedSnapshotCreated(snapshot(number, f"s{number}", PinnedTopic(ORDERS, "orders", ONE_RANGE * 10_000)))
        for number in range(named_snapshots.ALL_BYTES_MAX // 240_000)
    ]
    controller.image = apply_all(controller.image, huge)
    last = snapshot(100, "last", PinnedTopic(ORDERS, "orders", ONE_RANGE * 10_000))
    assert controller.refuses(CreateSnapshot(last), "16777216 is the maximum") is RefusalReason.POLICY_VIOLATION


def test_nobody_makes_a_snapshot_while_a_broker_serves_that_could_not_read_it() -> None:
    controller = Controller(RECORD_LEVEL, 0)
    reason = controller.refuses(CreateSnapshot(snapshot(1)), "broker 2 runs, or last ran, a version")
    assert reason is RefusalReason.UNSUPPORTED_VERSION
    controller.join(2, RECORD_LEVEL, incarnation=2)
    assert controller.ask(CreateSnapshot(snapshot(1))) == CreateSnapshotAnswer(snapshot(1).snapshot_id, created=True)


def test_a_broker_that_an_older_controller_registered_tells_its_level_by_heartbeat() -> None:
    controller = Controller(0)
    epoch = controller.image.brokers[1].epoch
    controller.beat(1, RECORD_LEVEL)
    assert controller.image.brokers[1].record_level == RECORD_LEVEL
    assert controller.image.brokers[1].epoch == epoch
    before = controller.image
    controller.beat(1, RECORD_LEVEL)
    assert controller.image is before or controller.image == before, "it is written down once"


def test_a_broker_that_is_gone_counts_as_long_as_it_holds_replicas() -> None:
    """It would stop at the record when it came back. One that holds nothing may be gone for good."""
    controller = Controller(0)
    controller.join(2, RECORD_LEVEL)
    for _ in range(4):
        controller.now_ms += 40
        controller.ask(CheckSessions())
        controller.beat(2, RECORD_LEVEL)
    assert controller.image.brokers[1].fenced
    assert 1 in controller.image.loads
    controller.refuses(CreateSnapshot(snapshot(1)), "broker 1")
    controller.ask(DeleteTopics(("orders",)))
    controller.create("others", OTHERS)
    wanted = snapshot(1, "n", PinnedTopic(OTHERS, "others", ONE_RANGE))
    assert controller.ask(CreateSnapshot(wanted)) == CreateSnapshotAnswer(wanted.snapshot_id, created=True)
