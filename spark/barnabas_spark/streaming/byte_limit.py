"""Ends a micro-batch after about a number of bytes, as brokers tell how large its offsets are.

Brokers of Barnabas tell how large a backlog is, and where the first bytes of it end (DescribeOffsetRanges): one
question for a batch that takes everything, and one more for one that does not. The answers are right to a few KiB,
whatever was written before and however records vary.

Others do not tell. Then the mean size of an offset in each partition is what there is: the size of the largest replica,
whole segments and all, by the offsets that are in it, `SIZES_AGE_S` old at most. It serves for a batch in which nothing
was told for another reason, too: a limit is no reason to fail a query.
"""

import asyncio
import logging
from collections.abc import Mapping

from barnabas_clients.admin.log_dirs import describe_log_dirs
from barnabas_clients.admin.offset_ranges import WHOLE_BYTES, CutRange, RangePart, describe_offset_ranges
from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError, UnsupportedVersionError
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import TopicPartition as Partition
from barnabas_spark.options.values import TopicPartition
from barnabas_spark.planning.limits import cut_by_bytes

__all__ = ["ByteLimit"]

logger = logging.getLogger(__name__)

SIZES_AGE_S = 30.0
# A leader that is not there is not waited for: the batch finds out by itself.
PATIENCE_S = 10.0

Positions = Mapping[TopicPartition, int]


class ByteLimit:
    """The limit of one stream. Owned by the loop that has `cluster`."""

    def __init__(self, cluster: Cluster, limit_bytes: int, timeout_s: float) -> None:
        self._cluster = cluster
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s
        self._is_told = True
        self._estimates: Mapping[TopicPartition, float] = {}
        self._estimated_at_s: float | None = None

    async def ends(self, starts: Positions, ends: Positions) -> Positions:
        """Return ends such that the batch has about the number of bytes, or everything; one offset at least.

        Raises:
            KafkaError, DeadlineExceededError: nothing was told, nor could sizes be estimated.
        """
        if self._is_told:
            try:
                return await self._told_ends(starts, ends)
            except UnsupportedVersionError:
                self._is_told = False
            except (ClientError, KafkaError) as error:
                logger.info("sizes of a backlog were not told: %s", error)
        return cut_by_bytes(starts, ends, self._limit_bytes, await self._mean_bytes(ends))

    async def _told_ends(self, starts: Positions, ends: Positions) -> Positions:
        whole = await self._first_parts(starts, ends, {key: WHOLE_BYTES for key in ends if ends[key] > starts[key]})
        total_bytes = sum(part.size_bytes for part in whole.values())
        if total_bytes <= self._limit_bytes:
            return ends
        shares = {key: max(1, self._limit_bytes * part.size_bytes // total_bytes) for key, part in whole.items()}
        parts = await self._first_parts(starts, ends, shares)
        return cut_by_bytes(
            starts,
            {**ends, **{key: part.end_offset for key, part in parts.items()}},
            self._limit_bytes,
            {key: part.size_bytes / (part.end_offset - starts[key]) for key, part in parts.items()},
        )

    async def _first_parts(
        self, starts: Positions, ends: Positions, targets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RangePart]:
        """Return the first part of each backlog, of about so many bytes."""
        asked = [CutRange(*key, starts[key], ends[key], target, parts_max=1) for key, target in targets.items()]
        told = await describe_offset_ranges(self._cluster, asked, min(PATIENCE_S, self._timeout_s))
        return {key: parts[0] for key, parts in zip(targets, told, strict=True)}

    async def _mean_bytes(self, ends: Positions) -> Mapping[TopicPartition, float]:
        """Return the mean size of an offset in each partition that is not empty."""
        now_s = asyncio.get_running_loop().time()
        if self._estimated_at_s is None or now_s - self._estimated_at_s > SIZES_AGE_S:
            begins = await list_offsets(self._cluster, dict.fromkeys(ends, OffsetSpec.EARLIEST), self._timeout_s)
            wanted = [Partition(*key) for key in ends]
            sizes: dict[TopicPartition, int] = {}
            for directories in (await describe_log_dirs(self._cluster, self._timeout_s, partitions=wanted)).values():
                for replicas in (one.replicas for one in directories):
                    for key, replica in replicas.items():
                        sizes[key] = max(replica.size_bytes, sizes.get(key, 0))
            spans = {key: end - begins[key].offset for key, end in ends.items()}
            self._estimates = {key: size / spans[key] for key, size in sizes.items() if spans.get(key, 0) > 0}
            self._estimated_at_s = now_s
        return self._estimates
