"""CreateSnapshot, DescribeSnapshots and DeleteSnapshot against brokers of this process, and their bytes."""

import uuid
from collections.abc import Iterator

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.create_snapshot import (
    CreateSnapshotRequest,
    CreateSnapshotResponse,
    SnapshotTopicRanges,
)
from barnabas_clients.protocol.delete_snapshot import DeleteSnapshotRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.describe_snapshots import DescribeSnapshotsRequest, DescribeSnapshotsResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.snapshot_rows import (
    DescribedSnapshot,
    DescribedSnapshotTopic,
    SnapshotRange,
)
from barnabas_clients.protocol.snapshot_states import SnapshotTopicState
from broker.wire_client import Wire

PARTITIONS = 10_000


def create(wire: Wire, name: str, topic_id: bytes, *rows: SnapshotRange, **also: bool) -> CreateSnapshotResponse:
    topic = SnapshotTopicRanges(topic_id=topic_id, partitions=list(rows) or [SnapshotRange(end_offset=7)])
    request = CreateSnapshotRequest(name=name, snapshot_id=uuid.uuid4().bytes, topics=[topic], **also)
    response: CreateSnapshotResponse = wire.ask(request, 0)
    return response


def show(wire: Wire, name: str | None) -> DescribeSnapshotsResponse:
    response: DescribeSnapshotsResponse = wire.ask(DescribeSnapshotsRequest(name=name), 0)
    return response


def delete(wire: Wire, name: str, snapshot_id: bytes) -> int:
    code: int = wire.ask(DeleteSnapshotRequest(name=name, snapshot_id=snapshot_id), 0).error_code
    return code


def test_messages_have_these_bytes() -> None:
    one = SnapshotRange(partition=1, leader_epoch=2, start_offset=3, end_offset=4)
    row = "00000001 00000002 0000000000000003 0000000000000004 00"
    topic_id = b"t" * 16
    request = CreateSnapshotRequest(
        name="n",
        snapshot_id=b"s" * 16,
        best_effort=True,
        topics=[SnapshotTopicRanges(topic_id=topic_id, partitions=[one])],
        timeout_ms=5,
    )
    assert request.to_bytes(0) == bytes.fromhex(f"026e {'73' * 16} 01 02 {'74' * 16} 02 {row} 00 00000005 00")
    topic = DescribedSnapshotTopic(
        topic_id=topic_id, name="t", state=SnapshotTopicState.GONE, is_compacted=True, partitions=[one]
    )
    snapshot = DescribedSnapshot(
        name="n", snapshot_id=b"s" * 16, created_at_ms=5, topics_count=1, partitions_count=1, topics=[topic]
    )
    shown = f"02 026e {'73' * 16} 0000000000000005 00 00000001 00000001 02 {'74' * 16} 0274 01 01 02 {row} 00 00 00"
    created = CreateSnapshotResponse(created=True, snapshots=[snapshot])
    assert created.to_bytes(0) == bytes.fromhex(f"00000000 0000 00 01 {shown}")
    assert DescribeSnapshotsResponse(snapshots=[snapshot]).to_bytes(0) == bytes.fromhex(f"00000000 0000 00 {shown}")
    assert DescribeSnapshotsRequest(timeout_ms=5).to_bytes(0) == bytes.fromhex("00 00000005 00")
    deletion = DeleteSnapshotRequest(name="n", snapshot_id=b"s" * 16, timeout_ms=5)
    assert deletion.to_bytes(0) == bytes.fromhex(f"026e {'73' * 16} 00000005 00")


def test_the_second_one_is_answered_with_the_first(wire: Wire, name: str) -> None:
    topic_id = wire.create(name, partitions=2)
    rows = [SnapshotRange(partition=number, leader_epoch=1, start_offset=2, end_offset=9) for number in (1, 0)]
    first = create(wire, name, topic_id, *rows)
    assert (first.error_code, first.created) == (ErrorCode.NONE, True)
    [made] = first.snapshots
    assert made.topics[0].partitions == sorted(rows, key=lambda row: row.partition)
    second = create(wire, name, topic_id)
    assert (second.created, second.snapshots) == (False, [made])
    assert show(wire, name).snapshots == [made]
    [listed] = [row for row in show(wire, None).snapshots if row.name == name]
    assert (listed.topics_count, listed.partitions_count, listed.topics[0].partitions) == (1, 2, [])


def test_a_snapshot_is_deleted_by_name_and_id_and_its_name_is_free_again(wire: Wire, name: str) -> None:
    topic_id = wire.create(name)
    snapshot_id = create(wire, name, topic_id).snapshots[0].snapshot_id
    assert delete(wire, name, bytes(16)) == ErrorCode.RESOURCE_NOT_FOUND
    assert delete(wire, name, snapshot_id) == ErrorCode.NONE
    assert delete(wire, name, snapshot_id) == show(wire, name).error_code == ErrorCode.RESOURCE_NOT_FOUND
    successor = create(wire, name, topic_id)
    assert successor.created
    assert delete(wire, name, snapshot_id) == ErrorCode.RESOURCE_NOT_FOUND
    assert show(wire, name).snapshots == successor.snapshots


def test_what_became_of_topics_is_told(wire: Wire, name: str) -> None:
    topic_id = wire.create(name)
    create(wire, name, topic_id)
    assert show(wire, name).snapshots[0].topics[0].state == SnapshotTopicState.THERE
    wire.ask(DeleteTopicsRequest(topic_names=[name]), 5)
    assert show(wire, name).snapshots[0].topics[0].state == SnapshotTopicState.GONE
    wire.create(name)
    assert show(wire, name).snapshots[0].topics[0].state == SnapshotTopicState.CREATED_ANEW


def test_compacted_topics_need_a_word_that_best_effort_will_do(wire: Wire, name: str) -> None:
    topic_id = wire.create(name, cleanup_policy="compact")
    refused = create(wire, name, topic_id)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert f"'{name}' is compacted" in str(refused.error_message)
    allowed = create(wire, name, topic_id, best_effort=True)
    assert allowed.created
    assert allowed.snapshots[0].best_effort
    assert allowed.snapshots[0].topics[0].is_compacted


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([SnapshotRange(start_offset=5, end_offset=4)], ErrorCode.INVALID_REQUEST),
        ([SnapshotRange(), SnapshotRange()], ErrorCode.INVALID_REQUEST),
        ([SnapshotRange(partition=1)], ErrorCode.INVALID_REQUEST),
        ([SnapshotRange(partition=number) for number in range(PARTITIONS + 1)], ErrorCode.POLICY_VIOLATION),
    ],
)
def test_impossible_ranges_are_refused_in_words(
    wire: Wire, name: str, rows: list[SnapshotRange], code: ErrorCode
) -> None:
    response = create(wire, name, wire.create(name), *rows)
    assert response.error_code == code
    assert response.error_message
    assert show(wire, name).error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_a_topic_that_nobody_knows_is_refused(wire: Wire, name: str) -> None:
    assert create(wire, name, b"x" * 16).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.fixture
def wires(three_brokers: RunningCluster) -> Iterator[list[Wire]]:
    found = [Wire("127.0.0.1", node.port) for _, node in sorted(three_brokers.cluster.nodes.items())]
    yield found
    for wire in found:
        wire.close()


@pytest.mark.slow
def test_every_broker_takes_requests_and_sees_at_once_what_another_answered(wires: list[Wire], name: str) -> None:
    topic_id = wires[0].create(name, factor=3)
    for turn, wire in enumerate(wires):
        made = create(wire, f"{name}-{turn}", topic_id)
        while made.error_code == ErrorCode.UNKNOWN_TOPIC_ID:  # It hears of the topic a moment later.
            made = create(wire, f"{name}-{turn}", topic_id)
        assert made.created
        for other in wires:
            assert show(other, f"{name}-{turn}").snapshots == made.snapshots
        assert delete(wires[turn - 1], f"{name}-{turn}", made.snapshots[0].snapshot_id) == ErrorCode.NONE
        assert [show(other, f"{name}-{turn}").error_code for other in wires] == [ErrorCode.RESOURCE_NOT_FOUND] * 3
