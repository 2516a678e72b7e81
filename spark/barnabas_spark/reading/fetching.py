"""Fetches one range of a partition from its leader, each part of it once.

`fetch` returns the batches at a position, and the position at which the next fetch must begin: the end of the last
whole batch. So a range ends at a position, not at a record, because its last offsets may hold none. Nothing is fetched
twice, with three exceptions: bytes that a lost connection swallowed, a batch that a broker cut off at the end of an
answer, and the rest of the batches in which a range begins and ends.

*Sizes.* A request cannot name an end. To bring little from behind it, each one asks for the expected size of the rest,
by the bytes that an offset has taken so far, or takes by the plan. If the plan does not tell, the first one is small.

*Racks* (KIP-392). With `kafka.client.rack` the leader names a replica in that rack, if there is one in sync, and the
rest of the range is fetched there. If that replica fails, is slow, or has nothing, the leader is asked for the rest.

*Committed records.* The answer to a fetch of these ends at the last stable offset, and names the aborted transactions
in it. Their batches are left out here (aborted.py), so that nobody behind this module knows of transactions.

*Leaders.* A broker that does not lead any more says so. Then the hint in the answer is taken (KIP-951), or the metadata
is refreshed, until the deadline. A topic that was deleted and created again has another id, and is never mistaken for
the old one.
"""

import asyncio
import logging
import math
from typing import NamedTuple, cast

from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.topic_view import BrokerAddress
from barnabas_clients.errors import ClientError, DeadlineExceededError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.records.reader import batches
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import DataLossError, Split

from .aborted import without_aborted

__all__ = ["Fetched", "RangeFetcher"]

logger = logging.getLogger(__name__)

FIRST_FETCH_BYTES = 1 << 20
LAST_FETCH_BYTES_MIN = 64 << 10
# So long a replica in the rack may take beyond the wait that a request asks for, before the leader is asked instead.
REPLICA_PATIENCE_S = 5.0
AVOIDED_S = 60.0
AVOIDED_MAX = 1_000
# So many answers in a row must name another topic id before the topic counts as created again; about a second.
STRANGERS_MAX = 6
_NO_ID = bytes(16)


# Until when, in the loop's time, replicas that have failed are left alone, by bootstrap servers and id. Of the loop.
_avoided: dict[tuple[str, int], float] = {}


class Fetched(NamedTuple):
    """Whole batches, perhaps with a cut-off one behind them, and the position after them.

    Empty at a gap in the log, or where all of it was aborted.
    """

    records: memoryview
    next_offset: int


class _LostError(BarnabasError):
    """Records are lost. `next_offset` is where reading may go on, if that is allowed."""

    def __init__(self, what: str, next_offset: int) -> None:
        super().__init__(what)
        self.what = what
        self.next_offset = next_offset


class RangeFetcher:
    """Fetches one split, one request at a time, in order. Lives on the loop of clusters.py."""

    def __init__(self, cluster: Cluster, split: Split, options: ReadOptions) -> None:
        self._cluster = cluster
        self._split = split
        self._options = options
        known = split.size_bytes > 0 and split.offsets > 0
        self._bytes_per_offset = split.size_bytes / split.offsets if known else None
        self._strangers = 0
        self._rack = options.rack
        self._replica_id = -1  # the one in the rack that the leader has named
        self._name = f"{split.topic}-{split.partition}"

    async def fetch(self, position: int) -> Fetched:
        """Return the batches at `position`, which is in the range. Waits for records that are not readable yet.

        Raises:
            DataLossError: the position is no longer, or not yet, in the log, or the topic is another one.
            DeadlineExceededError: nothing came within `poll_timeout_ms`.
            KafkaError: the broker refuses for good.
            CorruptBatchError: the answer is no sequence of batches.
        """
        timeout_s = self._options.poll_timeout_ms / 1000

        async def attempt(deadline: float) -> Fetched:
            return await self._fetch_by(position, deadline)

        try:
            return await self._cluster.retry(
                f"fetching {self._name} at {position}", timeout_s, attempt, (self._split.topic,)
            )
        except _LostError as lost:
            if self._options.fail_on_data_loss:
                raise DataLossError(lost.what) from None
            logger.warning("%s; failOnDataLoss is false, so it is left out", lost.what)
            return Fetched(memoryview(b""), lost.next_offset)

    async def _fetch_by(self, position: int, deadline: float) -> Fetched:
        loop = asyncio.get_running_loop()
        leader = await self._cluster.find_leader(self._split.topic, self._split.partition, deadline)
        topic = self._cluster.view.topics[self._split.topic]
        self._check_topic_id(topic.topic_id)
        epoch = max(topic.partitions[self._split.partition].leader_epoch, self._split.leader_epoch)
        while True:
            if self._replica_id >= 0 and (fetched := await self._fetch_nearby(position, epoch, deadline)) is not None:
                return fetched
            request = self._request(position, epoch)
            response: FetchResponse = await self._cluster.ask_broker(leader.node_id, request, deadline - loop.time())
            rack = self._rack
            try:
                fetched = self._take(response, position)
            except KafkaError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._on_out_of_range(position, deadline)
                raise
            if fetched.next_offset > position:
                return fetched
            if self._replica_id >= 0 or self._rack != rack:
                continue  # The answer only named a replica.
            if loop.time() >= deadline:
                raise DeadlineExceededError(f"{self._name} has nothing at {position} yet, and more was promised")

    async def _fetch_nearby(self, position: int, epoch: int, deadline: float) -> Fetched | None:
        """Fetch from the replica in the rack. None: it is not to be relied on, and the leader is asked from now on."""
        left_s = deadline - asyncio.get_running_loop().time()
        timeout_s = min(left_s, self._options.fetch_wait_ms / 1000 + REPLICA_PATIENCE_S)
        reason = "it has nothing there yet"
        try:
            response: FetchResponse = await self._cluster.ask_broker(
                self._replica_id, self._request(position, epoch), timeout_s
            )
            fetched = self._take(response, position)
            if fetched.next_offset > position:
                return fetched
        except (ClientError, KafkaError) as error:
            reason = str(error)
        text = "%s at %d: the leader is asked instead of broker %d: %s"
        logger.info(text, self._name, position, self._replica_id, reason)
        _avoid((self._options.bootstrap_servers, self._replica_id))
        self._replica_id = -1
        self._rack = ""
        return None

    def _go_to(self, replica_id: int) -> None:
        """Read from the replica that the leader has named, unless it has failed lately."""
        until_s = _avoided.get((self._options.bootstrap_servers, replica_id), -math.inf)
        if asyncio.get_running_loop().time() < until_s:
            self._rack = ""
        else:
            self._replica_id = replica_id

    def _check_topic_id(self, topic_id: bytes | None) -> None:
        """Raise while the metadata has another topic id. The view of this process or of a broker may just be older."""
        if self._split.topic_id in {None, topic_id}:
            return
        self._strangers += 1
        if self._strangers < STRANGERS_MAX:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, self._name)
        what = f"topic {self._split.topic} was deleted and created again since the query was planned"
        raise _LostError(what, self._split.end_offset)

    async def _on_out_of_range(self, position: int, deadline: float) -> None:
        """Raise the error behind an offset out of range. The log may have moved on, or it is a false alarm."""
        key = (self._split.topic, self._split.partition)
        now = asyncio.get_running_loop().time
        start_offset = (await list_offsets(self._cluster, {key: OffsetSpec.EARLIEST}, deadline - now()))[key].offset
        if start_offset > position:
            next_offset = min(start_offset, self._split.end_offset)
            raise _LostError(f"{self._name}: offsets {position} to {next_offset} are gone", next_offset)
        end_offset = (await list_offsets(self._cluster, {key: OffsetSpec.LATEST}, deadline - now()))[key].offset
        if end_offset < position:
            what = f"{self._name}: offset {position} was promised, and now the log ends at {end_offset}"
            raise _LostError(what, self._split.end_offset)
        raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self._name} at {position}")

    def _request(self, position: int, epoch: int) -> FetchRequest:
        size = self._size_bytes(self._split.end_offset - position)
        row = FetchPartition(
            partition=self._split.partition,
            current_leader_epoch=epoch,
            fetch_offset=position,
            partition_max_bytes=size,
        )
        topic = FetchTopic(topic=self._split.topic, topic_id=self._split.topic_id or _NO_ID, partitions=[row])
        return FetchRequest(
            max_wait_ms=self._options.fetch_wait_ms,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._options.read_committed),
            topics=[topic],
            rack_id=self._rack,
        )

    def _size_bytes(self, offsets_left: int) -> int:
        most = self._options.fetch_bytes
        if self._bytes_per_offset is None:
            return min(most, FIRST_FETCH_BYTES)
        expected = int(offsets_left * self._bytes_per_offset * 1.1)
        return min(most, max(expected, LAST_FETCH_BYTES_MIN))

    def _take(self, response: FetchResponse, position: int) -> Fetched:
        """Return the batches of an answer, up to the end of the last whole one, or raise its error."""
        if response.error_code:
            raise error_for(response.error_code, self._name)
        rows = [row for topic in response.responses for row in topic.partitions]
        if len(rows) != 1 or rows[0].partition_index != self._split.partition:
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{self._name}: the answer is about other partitions")
        row = rows[0]
        if row.error_code:
            self._learn(response, row)
            raise error_for(row.error_code, f"{self._name} at {position}")
        if row.preferred_read_replica >= 0 and self._rack:
            self._go_to(row.preferred_read_replica)
        # Decoded records are one view of the answer. Only an encoder is given several.
        records = cast("memoryview", row.records) if row.records else memoryview(b"")
        next_offset = position
        for header, _ in batches(records, check_crc=False):
            next_offset = max(next_offset, header.end_offset)
        if records and next_offset > position:
            self._bytes_per_offset = len(records) / (next_offset - position)
        if self._options.read_committed and row.aborted_transactions:
            aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions]
            records = without_aborted(records, aborted)
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


def _avoid(replica: tuple[str, int]) -> None:
    if len(_avoided) >= AVOIDED_MAX:
        _avoided.clear()
    _avoided[replica] = asyncio.get_running_loop().time() + AVOIDED_S
