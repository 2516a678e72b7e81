"""Appends whole batches by hand, for tests that decide on their borders and contents."""

from collections.abc import Sequence

from clients.leader_requests import request_leader

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.errors import error_for
from barnabas_clients.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression

from .conftest import TIMEOUT_S

__all__ = ["append", "append_values"]


async def append(bootstrap: str, topic: str, partition: int, *batches: bytes | bytearray) -> int:
    """Append batches with acks=all, each in a request of its own; return the base offset of the first."""
    first = -1

    def check(response: ProduceResponse) -> None:
        # A new topic's leader may not know of it yet.
        if code := response.responses[0].partition_responses[0].error_code:
            raise error_for(code, f"{topic}-{partition}")

    async with Cluster(bootstrap, client_id="test-batches") as cluster:
        await cluster.refresh((topic,), timeout_s=TIMEOUT_S)
        topic_id = cluster.view.topics[topic].topic_id
        for batch in batches:
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[TopicProduceData(name=topic, topic_id=topic_id or bytes(16), partition_data=[data])],
            )
            response: ProduceResponse = await request_leader(cluster, topic, partition, request, TIMEOUT_S, check)
            offset = response.responses[0].partition_responses[0].base_offset
            first = offset if first < 0 else first
    return first


async def append_values(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    batch_records: int = 100,
    timestamp_ms: int = 1_700_000_000_000,
    compression: Compression = Compression.NONE,
) -> None:
    """Append values; record n has `timestamp_ms` + n."""
    records = [NewRecord(None, value, timestamp_ms + number) for number, value in enumerate(values)]
    batches = [
        build_batch(records[start : start + batch_records], compression=compression)
        for start in range(0, len(records), batch_records)
    ]
    await append(bootstrap, topic, partition, *batches)
