"""Asks how large ranges of offsets are, and where to cut them: a function over a `Cluster`. Only Barnabas tells.

The leaders are asked as in `offsets`. A leader may tell only the first parts of a range; then it is asked for the rest.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.describe_offset_ranges import (
    DescribeOffsetRangesRequest,
    DescribeOffsetRangesResponse,
    OffsetRange,
    OffsetRangeResult,
    OffsetRangesTopic,
)
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_raftlog.wire.schema import NO_UUID

from .offsets import ask_leaders, left_s

__all__ = ["WHOLE_BYTES", "CutRange", "RangePart", "describe_offset_ranges"]

WHOLE_BYTES = (1 << 63) - 1
"""A target that no range reaches: it is one part, which tells its size."""
ALL_PARTS = (1 << 31) - 1
AT_ONCE_MAX = 5_000  # ranges in one round of requests; a broker takes 100,000 things in one


class CutRange(NamedTuple):
    """Offsets [start_offset, end_offset) of a partition, to be cut about every `target_bytes`.

    `parts_max`: so many parts are enough, from 1, also if they do not reach the end.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    target_bytes: int = WHOLE_BYTES
    parts_max: int = ALL_PARTS


class RangePart(NamedTuple):
    """A part of a range: from the end of the one before it up to `end_offset` (exclusive), of about `size_bytes`."""

    end_offset: int
    size_bytes: int


async def describe_offset_ranges(
    cluster: Cluster, ranges: Sequence[CutRange], timeout_s: float
) -> list[list[RangePart]]:
    """Return the parts of each range, in order, cut where batches begin; an empty range has none.

    Raises:
        UnsupportedVersionError: a broker does not have this API: it is not Barnabas, or older.
        KafkaError: a range is not in the log (OFFSET_OUT_OF_RANGE), or makes no sense (INVALID_REQUEST).
        DeadlineExceededError: some partition had no leader that could answer within `timeout_s`, or does not exist.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    question = _Question(cluster, ranges)
    while wanted := question.next_round():
        await ask_leaders(
            cluster,
            "describing offset ranges",
            wanted.keys(),
            question.answered,
            left_s(deadline),
            question.request,
            question.take,
        )
    return question.parts


class _Question:
    """The ranges that are asked for, and their parts so far. In a round each range is asked for once."""

    def __init__(self, cluster: Cluster, ranges: Sequence[CutRange]) -> None:
        self._cluster = cluster
        self._ranges = ranges
        self._left = [number for number, one in enumerate(ranges) if one.start_offset < one.end_offset]
        self._round: dict[tuple[str, int], list[int]] = {}
        self.parts: list[list[RangePart]] = [[] for _ in ranges]
        self.answered: dict[tuple[str, int], bool] = {}

    def next_round(self) -> dict[tuple[str, int], list[int]]:
        """Return the numbers of the ranges to ask for next, by partition."""
        by_partition = defaultdict[tuple[str, int], list[int]](list)
        self._left = [number for number in self._left if self._wants_more(number)]
        for number in self._left[:AT_ONCE_MAX]:
            by_partition[self._ranges[number].topic, self._ranges[number].partition].append(number)
        self._round = dict(by_partition)
        self.answered = {}
        return self._round

    def request(self, wanted: Sequence[tuple[str, int]]) -> DescribeOffsetRangesRequest:
        by_topic = defaultdict[str, list[OffsetRange]](list)
        topics = self._cluster.view.topics
        for topic, partition in wanted:
            by_topic[topic] += [
                OffsetRange(
                    partition_index=partition,
                    current_leader_epoch=topics[topic].partitions[partition].leader_epoch,
                    start_offset=self._position(number),
                    end_offset=self._ranges[number].end_offset,
                    target_bytes=self._ranges[number].target_bytes,
                    parts_max=self._ranges[number].parts_max - len(self.parts[number]),
                )
                for number in self._round[topic, partition]
            ]
        return DescribeOffsetRangesRequest(
            topics=[
                OffsetRangesTopic(topic_id=topics[name].topic_id or NO_UUID, partitions=rows)
                for name, rows in by_topic.items()
            ]
        )

    def take(self, response: DescribeOffsetRangesResponse) -> list[KafkaError]:
        """Take the parts of partitions all of whose ranges were answered; return the refusals of the others."""
        rows_of = defaultdict[tuple[str, int], list[OffsetRangeResult]](list)
        known = self._cluster.view.topics_by_id
        for topic in response.topics:
            if (view := known.get(topic.topic_id)) is not None:
                for row in topic.partitions:
                    rows_of[view.name, row.partition_index].append(row)
        refused = []
        for key, rows in rows_of.items():
            name = f"{key[0]}-{key[1]}"
            numbers = self._round.get(key, ())
            if code := next((row.error_code for row in rows if row.error_code), 0):
                refused.append(error_for(code, name))
            elif len(rows) != len(numbers) or not all(map(self._add, numbers, rows)):
                refused.append(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: ranges were left out"))
            else:
                self.answered[key] = True
        return refused

    def _wants_more(self, number: int) -> bool:
        wanted = self._ranges[number]
        return self._position(number) < wanted.end_offset and len(self.parts[number]) < wanted.parts_max

    def _position(self, number: int) -> int:
        parts = self.parts[number]
        return parts[-1].end_offset if parts else self._ranges[number].start_offset

    def _add(self, number: int, row: OffsetRangeResult) -> bool:
        """Take parts as far as they follow each other within the range; tell whether there was one."""
        before = len(self.parts[number])
        for part in row.parts:
            if not self._position(number) < part.end_offset <= self._ranges[number].end_offset:
                break
            self.parts[number].append(RangePart(part.end_offset, max(0, part.size_bytes)))
        return len(self.parts[number]) > before
