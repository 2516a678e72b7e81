"""Asks how large ranges are and where batches begin, and makes the tasks of a read from it.

Brokers of Barnabas tell both (DescribeOffsetRanges), from their indexes. Others do not: then sizes are estimated
(planning/sizes.py), and ranges are cut evenly by offsets. Sizes are advice, so that no failure to get them is one of
the query: the next best answer is taken, after `PATIENCE_S` at most.
"""

import logging
from collections.abc import Mapping, Sequence

from barnabas_clients.admin.log_dirs import describe_log_dirs
from barnabas_clients.admin.offset_ranges import WHOLE_BYTES, CutRange, describe_offset_ranges
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError, UnsupportedVersionError
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import TopicPartition as Key
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.options.values import TopicPartition
from barnabas_spark.planning.packing import pack
from barnabas_spark.planning.plan import PartitionState, Split
from barnabas_spark.planning.sizes import estimated
from barnabas_spark.planning.splitting import Told, cut, cut_by_records, parts_wanted

__all__ = ["make_tasks"]

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0
# Beyond so many cuts a question costs more than the batches that are read twice.
CUTS_ASKED_MAX = 100_000


async def make_tasks(
    cluster: Cluster,
    options: ReadOptions,
    ranges: Sequence[Split],
    partitions: Mapping[TopicPartition, PartitionState],
) -> list[tuple[Split, ...]]:
    """Return what each task reads: all of `ranges`, none of which is empty, cut and packed as `options` say.

    Raises:
        OptionError: that would be too many.
    """
    timeout_s = min(PATIENCE_S, options.poll_timeout_ms / 1000)
    if not _needs_sizes(options):
        return pack(cut_by_records(ranges, options), options)
    sized = await _told_sizes(cluster, ranges, timeout_s)
    is_told = sized is not None
    if sized is None:
        sized = await _estimated_sizes(cluster, options, ranges, partitions, timeout_s)
    pieces = cut_by_records(sized, options)
    counts = parts_wanted(pieces, options)
    told: dict[Split, Sequence[Told]] = {}
    if is_told and max(counts) > 1 and sum(counts) <= CUTS_ASKED_MAX:
        told = await _told_cuts(cluster, pieces, counts, timeout_s)
    parts = [
        part
        for piece, count in zip(pieces, counts, strict=True)
        for part in cut(piece, count, told.get(piece, ()), options)
    ]
    return pack(parts, options)


def _needs_sizes(options: ReadOptions) -> bool:
    is_asked = options.partitions_min is not None or options.partition_bytes_max is not None
    return is_asked or options.partitioning == "balanced"


async def _told_sizes(cluster: Cluster, ranges: Sequence[Split], timeout_s: float) -> list[Split] | None:
    asked = [CutRange(one.topic, one.partition, one.start_offset, one.end_offset) for one in ranges]
    try:
        found = await describe_offset_ranges(cluster, asked, timeout_s)
    except UnsupportedVersionError:
        return None
    except (ClientError, KafkaError) as error:
        logger.info("sizes of ranges were not told: %s", error)
        return None
    return [
        one._replace(size_bytes=sum(part.size_bytes for part in parts))
        for one, parts in zip(ranges, found, strict=True)
    ]


async def _told_cuts(
    cluster: Cluster, pieces: Sequence[Split], counts: Sequence[int], timeout_s: float
) -> dict[Split, Sequence[Told]]:
    wanted = [(one, count) for one, count in zip(pieces, counts, strict=True) if count > 1]
    asked = [
        CutRange(one.topic, one.partition, one.start_offset, one.end_offset, _target_bytes(one, count))
        for one, count in wanted
    ]
    try:
        found = await describe_offset_ranges(cluster, asked, timeout_s)
    except (ClientError, KafkaError) as error:
        logger.info("ranges are cut by offsets, because it was not told where batches begin: %s", error)
        return {}
    return {one: [Told(*part) for part in parts] for (one, _), parts in zip(wanted, found, strict=True)}


def _target_bytes(one: Split, count: int) -> int:
    return min(max(1, -(-one.size_bytes // count)), WHOLE_BYTES)


async def _estimated_sizes(
    cluster: Cluster,
    options: ReadOptions,
    ranges: Sequence[Split],
    partitions: Mapping[TopicPartition, PartitionState],
    timeout_s: float,
) -> list[Split]:
    replica_bytes: dict[TopicPartition, int] = {}
    keys = [Key(one.topic, one.partition) for one in ranges]
    leaders = {leader.node_id for key in keys if (leader := cluster.view.leader(*key)) is not None}
    try:
        found = await describe_log_dirs(cluster, timeout_s, leaders, keys)
    except (ClientError, KafkaError) as error:
        logger.info("sizes of replicas were not told: %s", error)
        found = {}
    for directory in (one for directories in found.values() for one in directories):
        for key, replica in directory.replicas.items():
            if not replica.is_future:
                replica_bytes[key] = max(replica.size_bytes, replica_bytes.get(key, 0))
    if options.partition_bytes_max is not None and not replica_bytes:
        logger.warning("maxBytesPerPartition: no broker tells sizes, so that each offset counts as 1 KiB")
    return estimated(ranges, partitions, replica_bytes)
