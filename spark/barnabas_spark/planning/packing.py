"""Gives several small ranges to one task. Pure.

A Spark partition costs 5 to 25 ms, however little is in it. So if there are many ranges, neighbours (of several topic
partitions, in their order) are read by one task, one after the other.

Limits: tasks are never fewer than `TASKS_MIN`, or `minPartitions` if that is more; a task has no more bytes than
`maxBytesPerPartition`, nor more offsets than `maxRecordsPerPartition`, unless a single range has; and, with
`partitioning` as `topicPartition`, just one range. Within these, the heaviest task is as light as can be.

*Weight* is bytes, and for each range `RANGE_BYTES`, because each is a fetch of its own.

*Streams.* A small micro-batch that is over in a moment is not divided among all cores (streaming/pace.py): `pack_few`
makes no more tasks than are worth it.
"""

from collections.abc import Sequence

from barnabas_spark.options.reads import ReadOptions

from .plan import Split
from .splitting import balanced_bytes

__all__ = ["TASKS_MIN", "pack", "pack_few"]

# So that fewer partitions than that are read by a task each, as by Spark's own source, and many cores have work.
TASKS_MIN = 16
# What a core reads during a fetch that brings almost nothing: 1 ms.
RANGE_BYTES = 512 << 10
# A task of less weight costs more than it reads.
TASK_BYTES_MIN = 4 << 20


def pack_few(splits: Sequence[Split], options: ReadOptions) -> list[tuple[Split, ...]]:
    """Return what each task reads, in order: as many tasks as have some weight, and `TASKS_MIN` at most.

    `splits` have sizes, and no option says how many tasks there are to be.
    """
    weight = sum(map(_weight, splits))
    return _packed(splits, options, min(TASKS_MIN, max(1, -(-weight // TASK_BYTES_MIN))))


def pack(splits: Sequence[Split], options: ReadOptions) -> list[tuple[Split, ...]]:
    """Return what each task reads, in order."""
    tasks_min = max(TASKS_MIN, options.partitions_min or 0)
    if options.partitioning != "balanced":
        return [(one,) for one in splits]
    return _packed(splits, options, tasks_min)


def _packed(splits: Sequence[Split], options: ReadOptions, tasks_min: int) -> list[tuple[Split, ...]]:
    if len(splits) <= tasks_min:
        return [(one,) for one in splits]
    loads = _Loads(splits, options)
    most = balanced_bytes(sum(map(_bytes, splits)))
    if len(loads.cuts(most)) >= tasks_min:
        return loads.packed(loads.cuts(most))
    # The least capacity that needs no more than so many tasks: what fits into a task, fits into a larger one.
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if len(loads.cuts(middle)) <= tasks_min:
            high = middle
        else:
            low = middle + 1
    return loads.packed(loads.spread(loads.cuts(high), tasks_min))


def _bytes(one: Split) -> int:
    """Return the size of a range; 0 if nobody knows it."""
    return max(0, one.size_bytes)


def _weight(one: Split) -> int:
    return _bytes(one) + RANGE_BYTES


class _Loads:
    """The ranges with their weights. *Cuts* are the numbers of the first ranges of tasks."""

    def __init__(self, splits: Sequence[Split], options: ReadOptions) -> None:
        self._splits = splits
        self._options = options
        self._loads = [(_weight(one), _bytes(one), one.offsets) for one in splits]

    def cuts(self, capacity: int) -> list[int]:
        """Return where tasks begin if each takes ranges as long as their weights are within `capacity`."""
        bytes_max = self._options.partition_bytes_max or 1 << 63
        offsets_max = self._options.partition_records_max or 1 << 63
        cuts = [0]
        weight = size = offsets = 0
        for number, (more_weight, more_bytes, more_offsets) in enumerate(self._loads):
            weight += more_weight
            size += more_bytes
            offsets += more_offsets
            if number and (weight > capacity or size > bytes_max or offsets > offsets_max):
                cuts.append(number)
                weight, size, offsets = more_weight, more_bytes, more_offsets
        return cuts

    def spread(self, cuts: list[int], tasks_min: int) -> list[int]:
        """Return more cuts, so that there are enough tasks: those with the most ranges are halved."""
        ends = [*cuts, len(self._splits)]
        while len(ends) <= tasks_min:
            at = max(range(len(ends) - 1), key=lambda number: ends[number + 1] - ends[number])
            ends.insert(at + 1, (ends[at] + ends[at + 1]) // 2)
        return ends[:-1]

    def packed(self, cuts: list[int]) -> list[tuple[Split, ...]]:
        ends = [*cuts[1:], len(self._splits)]
        return [tuple(self._splits[start:end]) for start, end in zip(cuts, ends, strict=True)]
