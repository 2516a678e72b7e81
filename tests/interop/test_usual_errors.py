"""Raw requests, right and wrong, in every version: Barnabas answers as Apache Kafka 4.4 does, but for a few rows.

Against Barnabas this holds Barnabas to the rows; with `BARNABAS_INTEROP_BOOTSTRAP` of a Kafka it holds the rows to
Kafka. `in_kafka` are the fields in which Kafka's answer is another one, and docs/protocol.md says why.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from broker.wire_client import Wire, batch, fetch_request, produce_request

from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_clients.protocol.describe_topic_partitions import (
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas_clients.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_clients.protocol.registry import Message

from .conftest import NewTopicMaker

pytestmark = pytest.mark.interop

DESCRIBE_HEALTH = 25185  # which Barnabas alone has
IDS_SINCE = 13
LATE = ErrorCode.OFFSET_OUT_OF_RANGE
NONE = ErrorCode.NONE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ABSENT = "interop-absent"
Fields = Mapping[str, Any]


class Place(NamedTuple):
    """A topic of one partition with three records in one batch, and connections to its leader and to a follower.

    There has been another leader before. `follower` is the leader's, too, where there is one broker only.
    """

    wire: Wire
    follower: Wire
    topic: str
    topic_id: bytes
    epoch: int
    is_kafka: bool

    def fetch(self, version: int, offset: int = 0, *, absent: bool = False, **fields: Any) -> FetchRequest:
        topic_id = b"y" * 16 if absent else self.topic_id
        name = ABSENT if absent else self.topic
        return fetch_request(name, offset, topic_id=topic_id if version >= IDS_SINCE else bytes(16), **fields)

    def lists(self, timestamp: int, name: str = "", **fields: Any) -> ListOffsetsRequest:
        rows = [ListOffsetsPartition(timestamp=timestamp, **fields)]
        return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name or self.topic, partitions=rows)])

    def epochs(self, epoch: int, name: str = "", **fields: Any) -> OffsetForLeaderEpochRequest:
        rows = [OffsetForLeaderPartition(leader_epoch=epoch, **fields)]
        return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name or self.topic, partitions=rows)])

    def deletes(self, offset: int, name: str = "", **fields: Any) -> DeleteRecordsRequest:
        rows = [DeleteRecordsPartition(offset=offset, **fields)]
        topics = [DeleteRecordsTopic(name=name or self.topic, partitions=rows)]
        return DeleteRecordsRequest(topics=topics, timeout_ms=10_000)

    def produces(self, version: int, records: bytes, name: str = "", **fields: Any) -> Message:
        topic_id = b"y" * 16 if name else self.topic_id
        return produce_request(
            name or self.topic, records, topic_id=topic_id if version >= IDS_SINCE else bytes(16), **fields
        )


@pytest.fixture(scope="module")
def place(bootstrap: str, new_topic: NewTopicMaker) -> Iterator[Place]:
    topic = new_topic(1)
    host, _, port = bootstrap.partition(",")[0].partition(":")
    first = Wire(host, int(port))
    keys = {row.api_key for row in first.ask(ApiVersionsRequest(), 2).api_keys}
    wires = {broker.node_id: Wire(broker.host, broker.port) for broker in known(first, topic).brokers}
    leader_id, *others = another_leads(first, topic, wires)
    found = known(first, topic)
    first.close()
    wire = wires[leader_id]
    assert wire.produce(topic, batch(3)).error_code == NONE
    place = Place(
        wire,
        wires[others[0] if others else leader_id],
        topic,
        found.topics[0].topic_id,
        found.topics[0].partitions[0].leader_epoch,
        DESCRIBE_HEALTH not in keys,
    )
    deadline = time.monotonic() + 20
    while wire.fetch(topic, 0, version=12).high_watermark < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)  # followers of Kafka tell their leader with their next fetch
    yield place
    for one in wires.values():
        one.close()


def known(wire: Wire, topic: str) -> Any:
    return wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)


def another_leads(wire: Wire, topic: str, wires: Mapping[int, Wire]) -> list[int]:
    """Have the last replica lead, where there are several, and return all when every broker knows; the leader first."""
    partition = known(wire, topic).topics[0].partitions[0]
    order = [*partition.replica_nodes[-1:], *partition.replica_nodes[:-1]]
    move = ReassignablePartition(partition_index=0, replicas=order)
    moves = [ReassignableTopic(name=topic, partitions=[move])]
    assert wire.ask(AlterPartitionReassignmentsRequest(topics=moves), 0).error_code == NONE
    elections = [ElectLeadersTopic(topic=topic, partitions=[0])]
    deadline = time.monotonic() + 20
    while {known(one, topic).topics[0].partitions[0].leader_id for one in wires.values()} != {order[0]}:
        assert time.monotonic() < deadline
        wire.ask(ElectLeadersRequest(election_type=0, topic_partitions=elections, timeout_ms=5_000), 1)
        time.sleep(0.02)  # between two questions; nothing announces a leader to a client
    return order


class Probe(NamedTuple):
    """One request, and what the row of its answer says. `ask` is given the version."""

    what: str
    versions: range
    ask: Callable[[Place, int], Message]
    expected: Fields
    in_kafka: Fields | None = None
    of_follower: bool = False


def error(code: ErrorCode) -> dict[str, Any]:
    """Return what a partition of Fetch says with an error."""
    return {"error_code": code, "high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "records": b""}


FOUND = {"error_code": NONE, "high_watermark": 3, "last_stable_offset": 3, "preferred_read_replica": -1}
NOTHING_ABORTED: dict[str, Any] = {"aborted_transactions": []}
FETCHES = [
    Probe("records", range(4, 19), lambda p, v: p.fetch(v), FOUND | {"aborted_transactions": None}),
    Probe(
        "committed records",
        range(4, 19),
        lambda p, v: with_isolation(p.fetch(v)),
        FOUND | {"aborted_transactions": []},
    ),
    Probe(
        "the end",
        range(5, 19),
        lambda p, v: p.fetch(v, 3),
        FOUND | {"log_start_offset": 0, "aborted_transactions": None},
    ),
    Probe("beyond the end", range(4, 19), lambda p, v: p.fetch(v, 9), error(LATE) | {"aborted_transactions": None}),
    Probe("below nought", range(4, 19), lambda p, v: p.fetch(v, -1), error(LATE) | {"aborted_transactions": None}),
    Probe(
        "beyond the end, committed",
        range(4, 19),
        lambda p, v: with_isolation(p.fetch(v, 9)),
        error(LATE) | {"aborted_transactions": None},
    ),
    Probe(
        "a newer epoch",
        range(9, 19),
        lambda p, v: p.fetch(v, current_leader_epoch=p.epoch + 1),
        error(ErrorCode.UNKNOWN_LEADER_EPOCH) | {"aborted_transactions": None},
    ),
    Probe(
        "an older epoch",
        range(9, 19),
        lambda p, v: p.fetch(v, current_leader_epoch=p.epoch - 1),
        error(ErrorCode.FENCED_LEADER_EPOCH) | {"aborted_transactions": None},
    ),
    Probe(
        "not the leader",
        range(4, 11),
        lambda p, v: p.fetch(v),
        error(NOT_LEADER) | {"aborted_transactions": None},
        of_follower=True,
    ),
    Probe(
        "no topic", range(4, 13), lambda p, v: p.fetch(v, absent=True), error(UNKNOWN) | {"aborted_transactions": []}
    ),
    Probe(
        "no topic id",
        range(13, 19),
        lambda p, v: p.fetch(v, absent=True),
        error(ErrorCode.UNKNOWN_TOPIC_ID) | NOTHING_ABORTED,
    ),
    Probe(
        "no partition", range(4, 19), lambda p, v: elsewhere(p.fetch(v)), error(UNKNOWN) | {"aborted_transactions": []}
    ),
    Probe(
        "a last epoch that is still to come",
        range(12, 19),
        lambda p, v: p.fetch(v, 3, last_fetched_epoch=p.epoch + 1),
        {"error_code": NONE, "high_watermark": 3, "records": b""},
        in_kafka=error(LATE),
    ),
]
AT_NOUGHT = {"error_code": NONE, "offset": 0, "timestamp": -1}
AT_NONE = {"error_code": NONE, "offset": -1, "timestamp": -1, "leader_epoch": -1}
TOO_OLD = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "offset": -1, "timestamp": -1, "leader_epoch": -1}
LISTS = [
    Probe("latest", range(1, 12), lambda p, _: p.lists(-1), {"error_code": NONE, "offset": 3, "timestamp": -1}),
    Probe("earliest", range(1, 12), lambda p, _: p.lists(-2), AT_NOUGHT),
    Probe("the largest timestamp", range(7, 12), lambda p, _: p.lists(-3), {"error_code": NONE, "timestamp": 1_000}),
    Probe("the largest timestamp", range(1, 7), lambda p, _: p.lists(-3), TOO_OLD),
    Probe("earliest local", range(8, 12), lambda p, _: p.lists(-4), AT_NOUGHT),
    Probe("earliest local", range(1, 8), lambda p, _: p.lists(-4), TOO_OLD),
    Probe("latest tiered", range(9, 12), lambda p, _: p.lists(-5), AT_NONE),
    Probe("latest tiered", range(1, 9), lambda p, _: p.lists(-5), TOO_OLD),
    Probe("earliest to be tiered", range(11, 12), lambda p, _: p.lists(-6), AT_NONE),
    Probe("earliest to be tiered", range(1, 11), lambda p, _: p.lists(-6), TOO_OLD),
    Probe("no such name", range(1, 12), lambda p, _: p.lists(-7), TOO_OLD),
    Probe("a time behind all", range(1, 12), lambda p, _: p.lists(99_999), AT_NONE),
    Probe("no topic", range(1, 12), lambda p, _: p.lists(-1, ABSENT), AT_NONE | {"error_code": UNKNOWN}),
    Probe("no partition", range(1, 12), lambda p, _: p.lists(-1, partition_index=9), AT_NONE | {"error_code": UNKNOWN}),
    Probe(
        "a newer epoch",
        range(4, 12),
        lambda p, _: p.lists(-1, current_leader_epoch=p.epoch + 1),
        AT_NONE | {"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH},
    ),
    Probe(
        "an older epoch",
        range(4, 12),
        lambda p, _: p.lists(-1, current_leader_epoch=p.epoch - 1),
        AT_NONE | {"error_code": ErrorCode.FENCED_LEADER_EPOCH},
    ),
    Probe(
        "not the leader",
        range(1, 12),
        lambda p, _: p.lists(-1),
        AT_NONE | {"error_code": NOT_LEADER},
        of_follower=True,
    ),
]
NOWHERE = {"leader_epoch": -1, "end_offset": -1}
EPOCHS = [
    Probe("its own", range(2, 5), lambda p, _: p.epochs(p.epoch), {"error_code": NONE, "end_offset": 3}),
    Probe(
        "one to come",
        range(2, 5),
        lambda p, _: p.epochs(p.epoch + 1),
        {"error_code": NONE, "end_offset": 3},
        in_kafka=NOWHERE,
    ),
    Probe("none", range(2, 5), lambda p, _: p.epochs(-1), NOWHERE | {"error_code": NONE}),
    Probe("no topic", range(2, 5), lambda p, _: p.epochs(0, ABSENT), NOWHERE | {"error_code": UNKNOWN}),
    Probe("no partition", range(2, 5), lambda p, _: p.epochs(0, partition=9), NOWHERE | {"error_code": UNKNOWN}),
    Probe(
        "a newer leader",
        range(2, 5),
        lambda p, _: p.epochs(0, current_leader_epoch=p.epoch + 1),
        NOWHERE | {"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH},
    ),
    Probe(
        "an older leader",
        range(2, 5),
        lambda p, _: p.epochs(0, current_leader_epoch=p.epoch - 1),
        NOWHERE | {"error_code": ErrorCode.FENCED_LEADER_EPOCH},
    ),
    Probe(
        "not the leader", range(2, 5), lambda p, _: p.epochs(0), NOWHERE | {"error_code": NOT_LEADER}, of_follower=True
    ),
]
DELETIONS = [
    Probe("nothing", range(3), lambda p, _: p.deletes(0), {"error_code": NONE, "low_watermark": 0}),
    Probe("beyond the end", range(3), lambda p, _: p.deletes(9), {"error_code": LATE, "low_watermark": -1}),
    Probe("below nought", range(3), lambda p, _: p.deletes(-2), {"error_code": LATE, "low_watermark": -1}),
    Probe("no topic", range(3), lambda p, _: p.deletes(0, ABSENT), {"error_code": UNKNOWN, "low_watermark": -1}),
    Probe(
        "no partition",
        range(3),
        lambda p, _: p.deletes(0, partition_index=9),
        {"error_code": UNKNOWN, "low_watermark": -1},
    ),
    Probe(
        "not the leader",
        range(3),
        lambda p, _: p.deletes(0),
        {"error_code": NOT_LEADER, "low_watermark": -1},
        of_follower=True,
    ),
]
DAMAGED = bytes(batch(2)[:-1]) + b"\x7f"
REFUSED = {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1, "record_errors": []}
PRODUCES = [
    Probe("no topic", range(3, 13), lambda p, v: p.produces(v, batch(), ABSENT), REFUSED | {"error_code": UNKNOWN}),
    Probe(
        "no topic id",
        range(13, 14),
        lambda p, v: p.produces(v, batch(), ABSENT),
        REFUSED | {"error_code": ErrorCode.UNKNOWN_TOPIC_ID},
    ),
    Probe(
        "no partition",
        range(3, 14),
        lambda p, v: p.produces(v, batch(), partition=9),
        REFUSED | {"error_code": UNKNOWN},
    ),
    Probe(
        "acks that are none",
        range(3, 14),
        lambda p, v: p.produces(v, batch(), acks=5),
        REFUSED | {"error_code": ErrorCode.INVALID_REQUIRED_ACKS},
    ),
    Probe(
        "damage",
        range(3, 14),
        lambda p, v: p.produces(v, DAMAGED),
        REFUSED | {"error_code": ErrorCode.CORRUPT_MESSAGE},
    ),
    Probe(
        "two batches",
        range(3, 14),
        lambda p, v: p.produces(v, batch() + batch()),
        REFUSED | {"error_code": ErrorCode.INVALID_RECORD},
    ),
    Probe(
        "too large",
        range(3, 14),
        lambda p, v: p.produces(v, batch(body_bytes=1_200_000)),
        REFUSED | {"error_code": ErrorCode.MESSAGE_TOO_LARGE},
    ),
    Probe(
        "not the leader",
        range(3, 14),
        lambda p, v: p.produces(v, batch()),
        REFUSED | {"error_code": NOT_LEADER},
        of_follower=True,
    ),
]
IDS = range(10, 12)
OPERATIONS = 3576  # every one of topics
METADATA = [
    Probe("no topic", range(4, 14), lambda p, _: named(ABSENT), {"error_code": UNKNOWN, "is_internal": False}),
    Probe("no name", range(4, 14), lambda p, _: named("a b"), {"error_code": ErrorCode.INVALID_TOPIC_EXCEPTION}),
    Probe(
        "what one may do",
        range(8, 14),
        lambda p, _: named(p.topic, include_topic_authorized_operations=True),
        {"error_code": NONE, "topic_authorized_operations": OPERATIONS},
    ),
    Probe(
        "what one may do is not asked",
        range(8, 14),
        lambda p, _: named(p.topic),
        {"error_code": NONE, "topic_authorized_operations": -(2**31)},
    ),
    Probe("by id too early", IDS, lambda p, _: named(None, p.topic_id), {"error_code": ErrorCode.INVALID_REQUEST}),
    Probe("with id too early", IDS, lambda p, _: named(p.topic, p.topic_id), {"error_code": ErrorCode.INVALID_REQUEST}),
    Probe("by id", range(12, 14), lambda p, _: named(None, p.topic_id), {"error_code": NONE}),
    Probe(
        "by no id",
        range(12, 14),
        lambda p, _: named(None, b"y" * 16),
        {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": None},
    ),
]
PAGES = [
    Probe(
        "a page", range(1), lambda p, _: pages(p.topic), {"error_code": NONE, "topic_authorized_operations": OPERATIONS}
    ),
    Probe("no topic", range(1), lambda p, _: pages(ABSENT), {"error_code": UNKNOWN, "partitions": []}),
    Probe("no name", range(1), lambda p, _: pages("a b"), {"error_code": ErrorCode.INVALID_TOPIC_EXCEPTION}),
    Probe(
        "another cursor", range(1), lambda p, _: pages(p.topic, (ABSENT, 0)), {"error_code": ErrorCode.INVALID_REQUEST}
    ),
    Probe(
        "a bad cursor", range(1), lambda p, _: pages(p.topic, (p.topic, -1)), {"error_code": ErrorCode.INVALID_REQUEST}
    ),
]
Rows = Callable[[Any], Any]
CASES: dict[str, tuple[list[Probe], Rows]] = {
    "Fetch": (FETCHES, lambda answer: answer.responses[0].partitions[0]),
    "ListOffsets": (LISTS, lambda answer: answer.topics[0].partitions[0]),
    "OffsetForLeaderEpoch": (EPOCHS, lambda answer: answer.topics[0].partitions[0]),
    "DeleteRecords": (DELETIONS, lambda answer: answer.topics[0].partitions[0]),
    "Produce": (PRODUCES, lambda answer: answer.responses[0].partition_responses[0]),
    "Metadata": (METADATA, lambda answer: answer.topics[0]),
    "DescribeTopicPartitions": (PAGES, lambda answer: answer.topics[0]),
}


def with_isolation(request: FetchRequest) -> FetchRequest:
    request.isolation_level = 1
    return request


def elsewhere(request: FetchRequest) -> FetchRequest:
    request.topics[0].partitions[0].partition = 9
    return request


def named(name: str | None, topic_id: bytes = bytes(16), **more: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name, topic_id=topic_id)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, **more)


def pages(name: str, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    at = None if cursor is None else DescribeTopicPartitionsCursor(topic_name=cursor[0], partition_index=cursor[1])
    return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)], cursor=at)


@pytest.mark.parametrize("api", CASES)
def test_every_version_answers_as_kafka_does(place: Place, api: str) -> None:
    probes, row_of = CASES[api]
    for probe in probes:
        expected = dict(probe.expected) | (dict(probe.in_kafka or {}) if place.is_kafka else {})
        if probe.of_follower and place.follower is place.wire:
            continue
        wire = place.follower if probe.of_follower else place.wire
        for version in probe.versions:
            row = row_of(wire.ask(probe.ask(place, version), version))
            found = {name: getattr(row, name) for name in expected}
            if "records" in found:
                found["records"] = bytes(found["records"])
            assert found == expected, (api, probe.what, version)


class Session:
    """A fetch session of one topic, with the next epoch."""

    def __init__(self, place: Place, version: int) -> None:
        self.place = place
        self.version = version
        self.session_id = self.epoch = 0

    def ask(self, *offsets: int, forget: bool = False, **more: Any) -> Any:
        topic_id = self.place.topic_id if self.version >= IDS_SINCE else bytes(16)
        rows = [FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20) for offset in offsets]
        request = FetchRequest(session_id=self.session_id, session_epoch=self.epoch, **more)
        if rows:
            request.topics = [FetchTopic(topic=self.place.topic, topic_id=topic_id, partitions=rows)]
        if forget:
            request.forgotten_topics_data = [ForgottenTopic(topic=self.place.topic, topic_id=topic_id, partitions=[0])]
        answer = self.place.wire.ask(request, self.version)
        if not answer.error_code:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer


@pytest.mark.parametrize("version", range(7, 19))
def test_sessions_go_on_as_kafkas_do(place: Place, version: int) -> None:
    session = Session(place, version)
    assert session.ask(3).responses
    assert session.session_id > 0
    assert not session.ask().responses, "there is nothing new"
    assert session.ask(9).responses[0].partitions[0].error_code == LATE
    assert session.ask().responses[0].partitions[0].error_code == LATE, "an error is told each time"
    assert session.ask(3).responses[0].partitions[0].high_watermark == 3
    assert not session.ask().responses
    opened, session.epoch = session.epoch, 77
    assert (session.ask().error_code, session.ask().session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    session.epoch = opened
    session.version = 12 if version >= IDS_SINCE else 13
    assert session.ask().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session.version = version
    assert not session.ask().responses
    ended = session.session_id
    answer = session.ask(forget=True)
    assert (answer.responses, answer.session_id, answer.error_code) == ([], 0, NONE), "a session of nothing ends"
    session.session_id = ended
    assert session.ask().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
