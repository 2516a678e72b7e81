"""Puts records into partitions without the producer, whose own tests are elsewhere."""

from collections.abc import Mapping

from clients.leader_requests import request_leader

from barnabas_clients import TopicPartition
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.errors import ErrorCode, error_for
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_raftlog.records.builder import NewRecord, build_batch

from .conftest import TIMEOUT_S

__all__ = ["fill"]


async def fill(
    bootstrap: str,
    counts: Mapping[TopicPartition, int],
    *,
    first_timestamp_ms: int = 1_700_000_000_000,
    step_ms: int = 1,
) -> None:
    """Append so many records to each partition, with values "0", "1" and so on, and timestamps in even steps."""

    def check(response: ProduceResponse) -> None:
        for topic in response.responses:
            for row in topic.partition_responses:
                if row.error_code:
                    raise error_for(row.error_code, topic.name)

    async with Cluster(bootstrap, client_id="test-fill") as cluster:
        names = {key.topic for key in counts}

        async def find(_: float) -> None:
            view = await cluster.refresh(names, timeout_s=TIMEOUT_S)
            if missing := names - view.topics.keys():
                raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(missing))

        # In a larger cluster of Apache Kafka another broker may not know yet what has just been created.
        await cluster.retry("finding topics to fill", TIMEOUT_S, find)
        for key, count in counts.items():
            records = [NewRecord(b"%d" % (i % 3), b"%d" % i, first_timestamp_ms + i * step_ms) for i in range(count)]
            data = [PartitionProduceData(index=key.partition, records=build_batch(records))]
            topic = TopicProduceData(
                name=key.topic, topic_id=cluster.view.topics[key.topic].topic_id or bytes(16), partition_data=data
            )
            request = ProduceRequest(acks=-1, timeout_ms=int(TIMEOUT_S * 1000), topic_data=[topic])
            await request_leader(cluster, *key, request, TIMEOUT_S, check)
