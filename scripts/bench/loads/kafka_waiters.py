"""Consumers that wait: thousands of connections in one process, each with a fetch.

A fetch is answered when records come. With librdkafka each of them would be three threads, and the machine would
measure those. A connection of `barnabas_clients` to the leader of one partition asks as librdkafka does: half a second
at most, one byte at least.
"""

import asyncio
import threading
from itertools import cycle

from barnabas_clients.cluster.connection import Connection
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_raftlog.records.header import parse_header

__all__ = ["Waiters"]

WAIT_MS = 500
FETCH_BYTES = 1 << 20
OPENED_AT_ONCE = 50
DEADLINE_S = 60.0


class Waiters:
    """`received` counts answers with records in them. `run` belongs to a loop, the rest to any thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, count: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._count = count
        self.received = 0
        self.are_waiting = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Let `run` return."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self) -> None:
        """Connect all of them, and let them wait until `stop`."""
        self._loop = asyncio.get_running_loop()
        metadata = await self._metadata()
        brokers = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        [topic] = metadata.topics
        leaders = cycle([(one.partition_index, brokers[one.leader_id]) for one in topic.partitions])
        tasks = list[asyncio.Task[None]]()
        for number in range(self._count):
            index, (host, port) = next(leaders)
            connection = await Connection.open(host, port, timeout_s=DEADLINE_S)
            tasks.append(asyncio.create_task(self._wait(connection, topic.topic_id, index)))
            if not number % OPENED_AT_ONCE:
                await asyncio.sleep(0)
        self.are_waiting.set()
        await self._stopped.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _metadata(self) -> MetadataResponse:
        host, _, port = self._bootstrap.partition(",")[0].rpartition(":")
        connection = await Connection.open(host, int(port), timeout_s=DEADLINE_S)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        answer: MetadataResponse = await connection.request(request, DEADLINE_S)
        await connection.close()
        return answer

    async def _wait(self, connection: Connection, topic_id: bytes, index: int) -> None:
        offset = 0
        try:
            while True:
                wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
                topic = FetchTopic(topic=self._topic, topic_id=topic_id, partitions=[wanted])
                request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, topics=[topic])
                answer = await connection.request(request, DEADLINE_S)
                records = memoryview(answer.responses[0].partitions[0].records) if answer.responses else memoryview(b"")
                position = 0
                while position < len(records):
                    header = parse_header(records, position)
                    position += header.size_bytes
                    offset = header.end_offset
                self.received += bool(records)
        finally:
            connection.abandon()
