"""Fetching one range of a partition from its leader, each part of it once.

`fetch` brings what lies at a position and says where the next fetch must begin: at the end of the last whole
batch. A range therefore ends by position, not by record, for its last offsets may hold none. Nothing is asked for
twice, except what a lost connection swallowed, a batch that a broker cut off at the end of an answer, and at the edges
of a range whatever else is in the batches that the range begins and ends in.

*Sizes.* A request cannot name an end. To bring little from behind it, the first request of a range is small, and
every further one asks for at most what the bytes an offset took so far let expect.

*Leaders.* A broker that does not lead any more says so; the metadata is asked anew, or the hint in the answer taken
(KIP-951), until the deadline. A topic that was deleted and created again has another id and is never misread for the
old one.
"""

import asyncio
import logging
from typing import NamedTuple, cast

from barnabas_clients.admin import OffsetSpec, list_offsets
from barnabas_clients.cluster_view import BrokerAddress
from barnabas_clients.connections import Cluster
from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas_raftlog.records.reader import batches

from .options import ReadOptions
from .planning import DataLossError, Split

__all__ = ["Fetched", "RangeFetcher"]

logger = logging.getLogger(__name__)

FIRST_FETCH_BYTES = 1 << 20
LAST_FETCH_BYTES_MIN = 64 << 10
_NO_ID = bytes(16)


class Fetched(NamedTuple):
    """Whole batches, perhaps with a cut-off one behind, and the position after them. Empty at a gap in the log."""

    records: memoryview
    next_offset: int


class RangeFetcher:
    """Fetches one split, one request at a time, in order. Lives on the loop of `connections`."""

    def __init__(self, cluster: Cluster, split: Split, options: ReadOptions) -> None:
        self._cluster, self._split, self._options = cluster, split, options
        self._bytes_per_offset: float | None = None
        self._name = f"{split.topic}-{split.partition}"

    async def fetch(self, position: int) -> Fetched:
        """Return what lies at `position`, which is in the range; waits for records that are not readable yet.

        Raises:
            DataLossError: the position is no longer, or not yet, in the log, or the topic is another one.
            DeadlineExceededError: nothing came within `poll_timeout_ms`.
            KafkaError: the broker refuses for good.
            CorruptBatchError: what came is no sequence of batches.
        """
        timeout_s = self._options.poll_timeout_ms / 1000

        async def attempt(deadline: float) -> Fetched:
            return await self._fetch_by(position, deadline)

        try:
            fetched = await self._cluster.retry(
                f"fetching {self._name} at {position}", timeout_s, attempt, (self._split.topic,)
            )
        except DataLossError as error:
            return self._skip(str(error), self._split.end_offset, error)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await self._after_loss(position, timeout_s)
        if len(fetched.records):
            self._bytes_per_offset = len(fetched.records) / (fetched.next_offset - position)
        return fetched

    async def _fetch_by(self, position: int, deadline: float) -> Fetched:
        loop = asyncio.get_running_loop()
        leader = await self._cluster.find_leader(self._split.topic, self._split.partition, deadline)
        topic = self._cluster.view.topics[self._split.topic]
        if self._split.topic_id is not None and topic.topic_id != self._split.topic_id:
            raise DataLossError(f"topic {self._split.topic} was deleted and created again since the query was planned")
        epoch = max(topic.partitions[self._split.partition].leader_epoch, self._split.leader_epoch)
        while True:
            request = self._request(position, epoch)
            response: FetchResponse = await self._cluster.ask_broker(leader.node_id, request, deadline - loop.time())
            fetched = self._take(response, position)
            if fetched.next_offset > position:
                return fetched
            if loop.time() >= deadline:
                raise DeadlineExceededError(f"{self._name} has nothing at {position} yet, and more was promised")

    def _request(self, position: int, epoch: int) -> FetchRequest:
        size = self._size_bytes(self._split.end_offset - position)
        row = FetchPartition(
            partition=self._split.partition,
            current_leader_epoch=epoch,
            fetch_offset=position,
            partition_max_bytes=size,
        )
        topic = FetchTopic(topic=self._split.topic, topic_id=self._split.topic_id or _NO_ID, partitions=[row])
        return FetchRequest(max_wait_ms=self._options.fetch_wait_ms, min_bytes=1, max_bytes=size, topics=[topic])

    def _size_bytes(self, offsets_left: int) -> int:
        most = self._options.fetch_bytes
        if self._bytes_per_offset is None:
            return min(most, FIRST_FETCH_BYTES)
        expected = int(offsets_left * self._bytes_per_offset * 1.1)
        return min(most, max(expected, LAST_FETCH_BYTES_MIN))

    def _take(self, response: FetchResponse, position: int) -> Fetched:
        """Look for an error, then for the end of the last whole batch."""
        if response.error_code:
            raise error_for(response.error_code, self._name)
        rows = [row for topic in response.responses for row in topic.partitions]
        if len(rows) != 1 or rows[0].partition_index != self._split.partition:
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{self._name}: the answer is about other partitions")
        row = rows[0]
        if row.error_code:
            self._learn(response, row)
            raise error_for(row.error_code, f"{self._name} at {position}")
        # Decoded records are one view of the answer; only an encoder is given several.
        records = cast("memoryview", row.records) if row.records else memoryview(b"")
        next_offset = position
        for header, _ in batches(records, check_crc=False):
            next_offset = max(next_offset, header.end_offset)
        return Fetched(records, next_offset)

    def _learn(self, response: FetchResponse, row: PartitionData) -> None:
        leader = row.current_leader
        if leader.leader_id < 0:
            return
        address = next(
            (
                BrokerAddress(node.node_id, node.host, node.port, node.rack)
                for node in response.node_endpoints
                if node.node_id == leader.leader_id
            ),
            None,
        )
        self._cluster.learn_leader(
            self._split.topic, self._split.partition, leader.leader_id, leader.leader_epoch, address
        )

    async def _after_loss(self, position: int, timeout_s: float) -> Fetched:
        """Go on where the log begins now, or give the rest of the range up when it ends before the position."""
        key = (self._split.topic, self._split.partition)
        start_offset = (await list_offsets(self._cluster, {key: OffsetSpec.EARLIEST}, timeout_s))[key].offset
        end_offset = self._split.end_offset
        if start_offset > position:
            lost = f"{self._name}: offsets {position} to {min(start_offset, end_offset)} are gone since it was planned"
            return self._skip(lost, min(start_offset, end_offset))
        return self._skip(f"{self._name}: offset {position} is beyond the end of the log", end_offset)

    def _skip(self, lost: str, next_offset: int, cause: DataLossError | None = None) -> Fetched:
        if self._options.fail_on_data_loss:
            raise cause or DataLossError(lost)
        logger.warning("%s; failOnDataLoss is false, so it is left out", lost)
        return Fetched(memoryview(b""), next_offset)
