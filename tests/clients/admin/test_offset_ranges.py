"""Ranges are cut with as many questions as it takes, and an answer that makes no sense ends it."""

from collections.abc import Callable

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, FakeCluster, serving

from barnabas_clients.admin.offset_ranges import CutRange, RangePart, describe_offset_ranges
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import UnsupportedVersionError
from barnabas_clients.protocol.describe_offset_ranges import (
    DescribeOffsetRangesRequest,
    DescribeOffsetRangesResponse,
    OffsetRange,
    OffsetRangePart,
    OffsetRangeResult,
    OffsetRangesTopicResult,
)
from barnabas_clients.protocol.errors import ErrorCode, KafkaError

FOREVER_S = 60.0
Answering = Callable[[OffsetRange], OffsetRangeResult]


def told(asked: OffsetRange, *parts: tuple[int, int], error_code: int = 0) -> OffsetRangeResult:
    return OffsetRangeResult(
        partition_index=asked.partition_index,
        error_code=error_code,
        parts=[OffsetRangePart(end_offset=end, size_bytes=size) for end, size in parts],
    )


def ask(run: Run, ranges: list[CutRange], answer: Answering) -> tuple[list[list[RangePart]], list[list[OffsetRange]]]:
    """Return the parts, and the rows of each question that a broker got."""
    asked: list[list[OffsetRange]] = []
    found: list[list[RangePart]] = []

    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1), (1, 1)]

        async def handle(request: DescribeOffsetRangesRequest) -> Answer:
            (topic,) = request.topics
            asked.append(topic.partitions)
            rows = [answer(row) for row in topic.partitions]
            return DescribeOffsetRangesResponse(
                topics=[OffsetRangesTopicResult(topic_id=topic.topic_id, partitions=rows)]
            )

        broker.answers[DescribeOffsetRangesRequest] = handle
        async with serving(broker), client(broker) as cluster:
            found.extend(await describe_offset_ranges(cluster, ranges, FOREVER_S))

    run(main())
    return found, asked


def client(broker: FakeBroker) -> Cluster:
    return Cluster([f"127.0.0.1:{broker.port}"], backoff=Backoff(0.0, 0.0))


def test_ranges_are_answered_in_the_order_of_the_question(run: Run) -> None:
    ranges = [CutRange("t", 1, 0, 10), CutRange("t", 0, 5, 9, 3), CutRange("t", 1, 10, 30), CutRange("t", 0, 7, 7)]
    parts, asked = ask(run, ranges, lambda row: told(row, (row.end_offset, row.start_offset)))
    assert parts == [[(10, 0)], [(9, 5)], [(30, 10)], []]
    assert [[(row.partition_index, row.start_offset, row.target_bytes) for row in rows] for rows in asked] == [
        [(0, 5, 3), (1, 0, (1 << 63) - 1), (1, 10, (1 << 63) - 1)]
    ]


def test_the_rest_is_asked_for_again(run: Run) -> None:
    ranges = [CutRange("t", 0, 0, 4, 1), CutRange("t", 0, 4, 6, 1)]
    parts, asked = ask(run, ranges, lambda row: told(row, (row.start_offset + 1, 100)))
    assert parts == [[(1, 100), (2, 100), (3, 100), (4, 100)], [(5, 100), (6, 100)]]
    assert [[row.start_offset for row in rows] for rows in asked] == [[0, 4], [1, 5], [2], [3]]


@pytest.mark.parametrize("end_offset", [0, -1, 5, 1 << 62])
def test_a_broker_that_tells_places_outside_of_the_range_is_not_asked_for_ever(run: Run, end_offset: int) -> None:
    with pytest.raises(KafkaError, match="t-0: ranges were left out"):
        ask(run, [CutRange("t", 0, 0, 4, 1)], lambda row: told(row, (end_offset, 100)))


def test_a_broker_that_tells_nothing_is_not_asked_for_ever(run: Run) -> None:
    with pytest.raises(KafkaError, match="t-0: ranges were left out"):
        ask(run, [CutRange("t", 0, 0, 4, 1)], told)


def test_a_refusal_for_good_ends_it(run: Run) -> None:
    with pytest.raises(KafkaError) as caught:
        ask(run, [CutRange("t", 0, 0, 4)], lambda row: told(row, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_leader_that_has_moved_is_asked_again(run: Run) -> None:
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE]
    parts, asked = ask(
        run,
        [CutRange("t", 0, 0, 4)],
        lambda row: told(row, error_code=codes.pop()) if codes else told(row, (4, 7)),
    )
    assert (parts, len(asked)) == ([[(4, 7)]], 3)


def test_a_broker_of_another_kind_does_not_offer_it(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker).topics["t"] = [(1, 1)]
        del broker.offered[DescribeOffsetRangesRequest.api_key]
        async with serving(broker), client(broker) as cluster:
            with pytest.raises(UnsupportedVersionError, match="DescribeOffsetRanges"):
                await describe_offset_ranges(cluster, [CutRange("t", 0, 0, 4)], FOREVER_S)

    run(main())
