"""DescribeOffsetRanges against brokers of this process, its bytes, and what no client should ask."""

from typing import Any

import pytest

from barnabas_broker.server.handlers import describe_offset_ranges
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_clients.protocol.describe_offset_ranges import (
    DescribeOffsetRangesRequest,
    DescribeOffsetRangesResponse,
    OffsetRange,
    OffsetRangePart,
    OffsetRangeResult,
    OffsetRangesTopic,
    OffsetRangesTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire_client import Wire, batch

BATCHES = 50
RECORDS = 10  # of each
BODY_BYTES = 5_000
BATCH_BYTES = len(batch(RECORDS, body_bytes=BODY_BYTES))
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


@pytest.fixture
def topic_id(wire: Wire, topic: str) -> bytes:
    """The id of a topic with one partition and 50 batches of 10 records."""
    for _ in range(BATCHES):
        assert wire.produce(topic, batch(RECORDS, body_bytes=BODY_BYTES)).error_code == ErrorCode.NONE
    return id_of(wire, topic)


def id_of(wire: Wire, topic: str) -> bytes:
    found: bytes = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0].topic_id
    return found


def ask(wire: Wire, topic_id: bytes, *ranges: OffsetRange) -> list[OffsetRangeResult]:
    request = DescribeOffsetRangesRequest(topics=[OffsetRangesTopic(topic_id=topic_id, partitions=list(ranges))])
    (topic,) = wire.ask(request, 0).topics
    assert topic.topic_id == topic_id
    rows: list[OffsetRangeResult] = topic.partitions
    return rows


def test_these_are_its_bytes() -> None:
    row = OffsetRange(partition_index=1, start_offset=2, end_offset=3, target_bytes=4, parts_max=5)
    topics = [OffsetRangesTopic(topic_id=b"i" * 16, partitions=[row])]
    expected = "02" + "69" * 16 + "02 00000001 ffffffff 0000000000000002 0000000000000003 0000000000000004 00000005"
    assert DescribeOffsetRangesRequest(topics=topics).to_bytes(0) == bytes.fromhex(f"{expected} 00 00 00")
    result = OffsetRangeResult(partition_index=1, parts=[OffsetRangePart(end_offset=2, size_bytes=3)])
    response = DescribeOffsetRangesResponse(topics=[OffsetRangesTopicResult(topic_id=b"i" * 16, partitions=[result])])
    expected = "00000000 02" + "69" * 16 + "02 00000001 0000 02 0000000000000002 0000000000000003 00 00 00 00"
    assert response.to_bytes(0) == bytes.fromhex(expected)


def test_a_range_is_cut_where_batches_begin(wire: Wire, topic_id: bytes) -> None:
    (row,) = ask(wire, topic_id, OffsetRange(end_offset=500, target_bytes=10 * BATCH_BYTES))
    assert (row.error_code, [part.end_offset for part in row.parts]) == (0, [100, 200, 300, 400, 500])
    assert all(abs(part.size_bytes - 10 * BATCH_BYTES) < 200 for part in row.parts), row.parts


def test_the_size_alone_is_one_part(wire: Wire, topic_id: bytes) -> None:
    whole, half, none = ask(
        wire,
        topic_id,
        OffsetRange(end_offset=500),
        OffsetRange(start_offset=125, end_offset=375),
        OffsetRange(start_offset=125, end_offset=125),
    )
    assert [part.end_offset for part in whole.parts] == [500]
    assert whole.parts[0].size_bytes == pytest.approx(50 * BATCH_BYTES, abs=200)
    assert half.parts[0].size_bytes == pytest.approx(25 * BATCH_BYTES, abs=200)
    assert (none.error_code, none.parts) == (0, [])


def test_no_more_parts_than_wanted(wire: Wire, topic_id: bytes) -> None:
    (row,) = ask(wire, topic_id, OffsetRange(end_offset=500, target_bytes=BATCH_BYTES, parts_max=3))
    assert [part.end_offset for part in row.parts] == [10, 20, 30]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"target_bytes": 0}, ErrorCode.INVALID_REQUEST),
        ({"target_bytes": -5}, ErrorCode.INVALID_REQUEST),
        ({"target_bytes": -(1 << 63)}, ErrorCode.INVALID_REQUEST),
        ({"parts_max": 0}, ErrorCode.INVALID_REQUEST),
        ({"parts_max": -1}, ErrorCode.INVALID_REQUEST),
        ({"start_offset": 9, "end_offset": 8}, ErrorCode.INVALID_REQUEST),
        ({"start_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"start_offset": -(1 << 63)}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"start_offset": -2, "end_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"end_offset": 501}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"start_offset": 501, "end_offset": 501}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"end_offset": INT64_MAX}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"partition_index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 1000}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_rest_answered(
    wire: Wire, topic_id: bytes, given: dict[str, int], code: ErrorCode
) -> None:
    asked = OffsetRange(**({"end_offset": 10} | given))
    refused, answered = ask(wire, topic_id, asked, OffsetRange(end_offset=10))
    assert (ErrorCode(refused.error_code), refused.parts) == (code, [])
    assert answered.parts[0].end_offset == 10


@pytest.mark.parametrize("topic_id", [bytes(16), b"x" * 16])
def test_a_topic_that_nobody_knows_is_unknown(wire: Wire, topic_id: bytes) -> None:
    (row,) = ask(wire, topic_id, OffsetRange(end_offset=1))
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_records_that_were_deleted_are_out_of_range(wire: Wire, topic: str, topic_id: bytes) -> None:
    rows = [DeleteRecordsPartition(partition_index=0, offset=100)]
    wire.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=10_000), 2)
    gone, there = ask(wire, topic_id, OffsetRange(end_offset=200), OffsetRange(start_offset=100, end_offset=200))
    assert (gone.error_code, there.parts[-1].end_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 200)


def test_a_billion_parts_are_as_many_as_an_answer_has_room_for_and_the_rest_is_asked_for_again(
    wire: Wire, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_offset_ranges, "PARTS_MAX", 20)
    asked = OffsetRange(end_offset=500, target_bytes=1, parts_max=INT32_MAX)
    first, second, third = ask(wire, topic_id, asked, asked, asked)
    assert [part.end_offset for part in first.parts] == list(range(10, 210, 10))
    assert [len(row.parts) for row in (second, third)] == [1, 1]
    ends: list[int] = []
    while not ends or ends[-1] < 500:
        (row,) = ask(wire, topic_id, OffsetRange(start_offset=ends[-1] if ends else 0, end_offset=500, target_bytes=1))
        ends += [part.end_offset for part in row.parts]
    assert ends == list(range(10, 510, 10))


def test_all_ranges_of_a_question_share_the_parts_of_its_answer(wire: Wire, topic_id: bytes) -> None:
    rows = ask(wire, topic_id, *[OffsetRange(end_offset=500, target_bytes=1)] * 2_000)
    counts = [len(row.parts) for row in rows]
    assert counts[:200] == [50] * 200
    assert counts[200:] == [1] * 1_800


@pytest.mark.slow
def test_only_the_leader_answers_and_a_new_one_says_the_same() -> None:
    with RunningCluster(3) as cluster:
        wires = {node_id: Wire("127.0.0.1", node.port) for node_id, node in cluster.cluster.nodes.items()}
        try:
            moves(cluster, wires)
        finally:
            for wire in wires.values():
                wire.close()


def moves(cluster: RunningCluster, wires: dict[int, Wire]) -> None:
    topic_id = wires[1].create("moving", factor=3)
    leader = leader_of(cluster)
    for _ in range(BATCHES):
        assert wires[leader].produce("moving", batch(RECORDS, body_bytes=BODY_BYTES)).error_code == 0
    asked = OffsetRange(end_offset=500, target_bytes=10 * BATCH_BYTES)
    (before,) = ask(wires[leader], topic_id, asked)
    assert len(before.parts) == 5
    for other in {1, 2, 3} - {leader}:
        (row,) = ask(wires[other], topic_id, asked)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def stop(of: Cluster) -> None:
        await of.stop(leader)
        while (found := leader_in(of)) in {-1, leader} or not can_serve(of, found):
            await next(iter(of.nodes.values())).partitions.known_leaders.leaders_changed()

    cluster.run(stop)
    (after,) = ask(wires[leader_of(cluster)], topic_id, asked)
    assert [part.end_offset for part in after.parts] == [part.end_offset for part in before.parts]


def leader_of(cluster: RunningCluster) -> int:
    async def found(of: Cluster) -> int:
        return leader_in(of)

    return cluster.run(found)


def leader_in(cluster: Cluster) -> int:
    node = next(iter(cluster.nodes.values()))
    return node.broker.leader_of(node.partitions.topics["moving"], 0).leader_id


def can_serve(cluster: Cluster, node_id: int) -> Any:
    return cluster.nodes[node_id].partitions.topics["moving"].partitions[0].can_serve
