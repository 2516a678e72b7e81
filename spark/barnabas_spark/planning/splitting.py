"""Cuts ranges into parts of equal work. Pure.

A range is cut, first, into parts of at most `maxRecordsPerPartition` offsets, equal but for one. What is too large then
is cut by bytes:

- With `maxBytesPerPartition`, into as few parts as keep to it.
- With `minPartitions`, the range with the largest parts is cut into one more, until there are enough.
- With neither of the three, and unless one split for each topic partition is wanted (`partitioning`), ranges much
  larger than `balanced_bytes` are cut into parts of about that. So a topic that has most of its bytes in one partition
  is read by many tasks, and one whose partitions are of similar size stays as it is.

*Where.* The broker may have told where batches begin that are about so many bytes apart (measuring.py): there it is
cut, and no batch is read by two tasks. Elsewhere it is cut evenly by offsets. So it is, too, where there are fewer
batches than `minPartitions` wants parts; the other options never cut a batch that the broker has told of.

Sizes are advice: whatever they say, the parts of a range have each of its offsets once, in order.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions

from .plan import Split

__all__ = ["SPLITS_MAX", "Told", "balanced_bytes", "cut", "cut_by_records", "parts_wanted"]

# A guard against a misplaced digit: Spark itself becomes unusable long before.
SPLITS_MAX = 1_000_000

# Without any option: so many parts of the whole, unless those would be smaller or larger than is reasonable. A Spark
# partition costs 5 to 25 ms, in which a core reads 2 to 12 MiB; 128 MiB is what Spark's file sources take.
BALANCED_PARTS = 16
BALANCED_BYTES_MIN = 16 << 20
BALANCED_BYTES_MAX = 128 << 20


class Told(NamedTuple):
    """A part of a range, as a broker tells it: up to `end_offset` (exclusive), about `size_bytes`."""

    end_offset: int
    size_bytes: int


def balanced_bytes(total_bytes: int) -> int:
    """Return about how much a task should read if nothing is wished."""
    return min(max(total_bytes // BALANCED_PARTS, BALANCED_BYTES_MIN), BALANCED_BYTES_MAX)


def cut_by_records(ranges: Sequence[Split], options: ReadOptions) -> list[Split]:
    """Cut ranges into parts of at most `maxRecordsPerPartition` offsets."""
    most = options.partition_records_max
    if most is None:
        return list(ranges)
    counts = [-(-one.offsets // most) for one in ranges]
    _check_count("maxRecordsPerPartition", most, sum(counts))
    return [part for one, count in zip(ranges, counts, strict=True) for part in _evenly(one, count)]


def parts_wanted(ranges: Sequence[Split], options: ReadOptions) -> list[int]:
    """Return into how many parts each range, none of which is empty, is to be cut."""
    counts = [1] * len(ranges)
    if (most := options.partition_bytes_max) is not None:
        counts = [min(-(-max(one.size_bytes, 1) // most), one.offsets) for one in ranges]
        _check_count("maxBytesPerPartition", most, sum(counts))
    elif options.partitions_min is None and options.partition_records_max is None and _is_balanced(options):
        target = balanced_bytes(sum(max(0, one.size_bytes) for one in ranges))
        # Halves are rounded up: what has less than one and a half times the target is left alone.
        counts = [max(1, min((2 * one.size_bytes + target) // (2 * target), one.offsets)) for one in ranges]
    if options.partitions_min is not None:
        _raise_to(min(options.partitions_min, SPLITS_MAX), ranges, counts)
    return counts


def cut(one: Split, count: int, told: Sequence[Told], options: ReadOptions) -> list[Split]:
    """Cut a range into about `count` parts: where batches begin, as far as that is `told`, else evenly."""
    if count == 1:
        return [one]
    parts = _where_told(one, told)
    if not parts:
        return _evenly(one, count)
    counts = [1] * len(parts)
    if options.partitions_min is not None:
        _raise_to(count, parts, counts)
    return [piece for part, pieces in zip(parts, counts, strict=True) for piece in _evenly(part, pieces)]


def _is_balanced(options: ReadOptions) -> bool:
    return options.partitioning == "balanced"


def _where_told(one: Split, told: Iterable[Told]) -> list[Split]:
    """Return the parts that a broker has told; none if it has told nothing, or nonsense."""
    parts: list[Split] = []
    position = one.start_offset
    for end_offset, size_bytes in told:
        if not position < end_offset <= one.end_offset:
            return []
        parts.append(one._replace(start_offset=position, end_offset=end_offset, size_bytes=size_bytes))
        position = end_offset
    return parts if position == one.end_offset else []


def _raise_to(total: int, ranges: Sequence[Split], counts: list[int]) -> None:
    """Raise `counts` until they make `total` parts; the range with the largest parts is next, equal ones in order."""

    def entry(at: int) -> tuple[float, float, int]:
        return -max(0, ranges[at].size_bytes) / counts[at], -ranges[at].offsets / counts[at], at

    heap = [entry(at) for at in range(len(ranges)) if ranges[at].offsets > counts[at]]
    heapq.heapify(heap)
    missing = total - sum(counts)
    while heap and missing > 0:
        at = heap[0][2]
        counts[at] += 1
        missing -= 1
        if ranges[at].offsets > counts[at]:
            heapq.heapreplace(heap, entry(at))
        else:
            heapq.heappop(heap)


def _evenly(one: Split, count: int) -> list[Split]:
    """Cut a range into parts with as many offsets each, but for one."""
    if count <= 1:
        return [one]
    ends = [one.offsets * part // count for part in range(count + 1)]
    size = one.size_bytes
    return [
        one._replace(
            start_offset=one.start_offset + start,
            end_offset=one.start_offset + end,
            size_bytes=size if size < 0 else size * end // one.offsets - size * start // one.offsets,
        )
        for start, end in pairwise(ends)
    ]


def _check_count(option: str, most: int, count: int) -> None:
    if count > SPLITS_MAX:
        raise OptionError(option, f"{most} makes {count} partitions, more than {SPLITS_MAX}")
