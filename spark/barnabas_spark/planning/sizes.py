"""Estimates how large ranges are, where no broker tells. Pure.

Kafka's brokers tell the size of a replica (DescribeLogDirs), compressed and with all that compaction and retention have
left. A range has as large a share of it as it has of the offsets. If not even that is told, all offsets count as
`OFFSET_BYTES`: then cuts are still balanced as far as records are of one size.
"""

from collections.abc import Mapping, Sequence

from barnabas_spark.options.values import TopicPartition

from .plan import PartitionState, Split

__all__ = ["OFFSET_BYTES", "estimated"]

OFFSET_BYTES = 1024


def estimated(
    ranges: Sequence[Split],
    partitions: Mapping[TopicPartition, PartitionState],
    replica_bytes: Mapping[TopicPartition, int],
) -> list[Split]:
    """Return the ranges with sizes, from the sizes of replicas; those that are not known are like the others."""
    spans = {key: state.high_watermark - state.log_start_offset for key, state in partitions.items()}
    known = {key: size for key, size in replica_bytes.items() if spans.get(key, 0) > 0}
    offsets = sum(spans[key] for key in known)
    usual = (sum(known.values()), offsets) if offsets else (OFFSET_BYTES, 1)
    found = []
    for one in ranges:
        key = (one.topic, one.partition)
        size, span = (known[key], spans[key]) if key in known else usual
        found.append(one._replace(size_bytes=size * one.offsets // span))
    return found
