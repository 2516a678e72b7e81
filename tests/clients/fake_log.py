"""Fake brokers that serve logs made of batches, and further answers of a test."""

import asyncio
from collections.abc import Callable

from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import next_offset

from .fake_broker import FakeBroker, FakeCluster

__all__ = ["FakeLog", "values_of"]

Twist = Callable[[FetchRequest, FetchResponse], None]


def values_of(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


class FakeLog(FakeCluster):
    """Brokers that share the logs of one topic, "t". `twist` may change each answer, or raise CancelledError-like."""

    def __init__(self, *brokers: FakeBroker, partitions: int = 1) -> None:
        super().__init__(*brokers)
        self.topics["t"] = [(brokers[0].node_id, 1)] * partitions
        self.batches: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        self.starts = dict.fromkeys(range(partitions), 0)
        self.twist: Twist | None = None
        self.silent: set[int] = set()
        self.grown = asyncio.Event()
        for broker in brokers:
            broker.answers[ListOffsetsRequest] = self.list_offsets
            broker.answers[FetchRequest] = lambda request, broker=broker: self.fetch(broker, request)  # type: ignore[misc]

    def end(self, partition: int) -> int:
        found = self.batches[partition]
        return next_offset(found[-1]) if found else 0

    def append(self, values: list[bytes], partition: int = 0) -> None:
        """Add one batch."""
        records = [NewRecord(None, value, 1_700_000_000_000) for value in values]
        self.append_batch(bytes(build_batch(records, base_offset=self.end(partition), leader_epoch=1)), partition)

    def append_batch(self, batch: bytes, partition: int = 0) -> None:
        self.batches[partition].append(batch)
        self.grown.set()
        self.grown = asyncio.Event()

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        rows = [
            ListOffsetsPartitionResponse(
                partition_index=row.partition_index,
                offset=self.starts[row.partition_index] if row.timestamp == -2 else self.end(row.partition_index),
            )
            for row in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])

    async def fetch(self, broker: FakeBroker, request: FetchRequest) -> FetchResponse:
        """Answer as a broker does: at once if there is something to say, else when there is, or when time is up."""
        if broker.node_id in self.silent:
            await asyncio.Event().wait()
        response = self.look(broker, request)
        if not any(row.records or row.error_code for topic in response.responses for row in topic.partitions):
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self.grown.wait()
            except TimeoutError:
                pass
            response = self.look(broker, request)
        return response

    def look(self, broker: FakeBroker, request: FetchRequest) -> FetchResponse:
        left = request.max_bytes
        is_empty = True
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                rows.append(self.row(broker, asked, left, is_empty=is_empty))
                size_bytes = sum(map(len, [rows[-1].records or b""]))
                left -= size_bytes
                is_empty = is_empty and not size_bytes
            topics.append(FetchableTopicResponse(topic="t", topic_id=topic.topic_id, partitions=rows))
        response = FetchResponse(responses=topics)
        if self.twist is not None:
            self.twist(request, response)
        return response

    def row(self, broker: FakeBroker, asked: FetchPartition, left: int, *, is_empty: bool) -> PartitionData:
        """Return as much as fits; one batch in any case while the answer is empty (KIP-74)."""
        number, offset = asked.partition, asked.fetch_offset
        row = PartitionData(partition_index=number, high_watermark=self.end(number), log_start_offset=0)
        if self.topics["t"][number][0] != broker.node_id:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.starts[number] <= offset <= self.end(number):
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data = b""
            for batch in self.batches[number]:
                if next_offset(batch) <= offset:
                    continue
                if not (is_empty and not data) and len(data) + len(batch) > min(left, asked.partition_max_bytes):
                    break
                data += batch
            row.records = data
        return row
