"""Limits what one micro-batch of a stream takes. Pure.

The backlog of a partition is [start, end): from the position of the stream to the high watermark. `cut_by_offsets` and
`cut_by_bytes` shorten the backlogs so that the batch keeps a limit, in proportion to their sizes, as in Spark's own
source: partitions that lag behind catch up at the same time.

*Exact.* Spark rounds each partition's share by itself, and gives at least one offset to each, so a batch may exceed
the limit. Here the sum of offsets is the limit, or everything if that is less. No partition starves: as long as the
limit allows it, each one with a backlog gets at least one offset, at the expense of the largest. If it does not,
partitions take turns from batch to batch. The turn follows from the positions, so a plan depends on nothing else.

*Bytes* are counted by the mean size of an offset in each partition, or in the part of its backlog that is to be cut
(streaming/byte_limit.py). A batch takes at least one offset, however large.
"""

from collections.abc import Mapping, Sequence

from barnabas_spark.options.values import TopicPartition

__all__ = ["backlog", "cut_by_bytes", "cut_by_offsets", "is_delayed"]

Positions = Mapping[TopicPartition, int]

# Where nothing is known about any partition. Only the first batch of an empty topic meets it.
BYTES_PER_OFFSET = 1024.0


def backlog(starts: Positions, ends: Positions) -> int:
    """Return how many offsets lie between starts and ends. An end before its start counts as none."""
    return sum(max(0, end - starts[key]) for key, end in ends.items())


def cut_by_offsets(starts: Positions, ends: Positions, limit: int) -> dict[TopicPartition, int]:
    """Return ends such that the batch has exactly `limit` offsets, from 1, or everything if that is less."""
    assert limit > 0, limit
    sizes = _sizes(starts, ends)
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    turns = _in_turn(sorted(sizes), sum(starts.values()) // limit)
    if limit < len(turns):
        return {**ends, **{key: starts[key] + (key in turns[:limit]) for key in turns}}
    shares = {key: divmod(limit * sizes[key], total) for key in turns}
    taken = {key: whole for key, (whole, _) in shares.items()}
    some = [key for key in turns if taken[key]]
    taken |= {key: 1 for key in turns if not taken[key]}
    left = limit - sum(taken.values())
    for key in sorted(some, key=lambda key: -shares[key][1])[: max(0, left)]:
        taken[key] += 1
    for key in sorted(some, key=lambda key: -sizes[key]):
        # What the smallest got on top comes from the largest.
        back = min(taken[key] - 1, max(0, -left))
        taken[key] -= back
        left += back
    return {**ends, **{key: starts[key] + taken[key] for key in turns}}


def cut_by_bytes(
    starts: Positions, ends: Positions, limit_bytes: int, bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Return ends such that the batch has about `limit_bytes` bytes, from 1, or everything if that is less.

    `bytes_per_offset` may lack partitions; they get the mean of the others.
    """
    assert limit_bytes > 0, limit_bytes
    sizes = _sizes(starts, ends)
    known = [bytes_per_offset[key] for key in sorted(sizes) if bytes_per_offset.get(key, 0) > 0]
    usual = sum(known) / len(known) if known else BYTES_PER_OFFSET
    weights = {key: max(1.0, bytes_per_offset.get(key, 0) or usual) for key in sizes}
    total_bytes = sum(size * weights[key] for key, size in sizes.items())
    if total_bytes <= limit_bytes:
        return dict(ends)
    turns = _in_turn(sorted(sizes), sum(starts.values()))
    taken = {key: min(sizes[key], int(sizes[key] * (limit_bytes / total_bytes))) for key in turns}
    left_bytes = limit_bytes - sum(count * weights[key] for key, count in taken.items())
    for key in turns:
        if not taken[key] and (left_bytes >= weights[key] or not any(taken.values())):
            taken[key] = 1
            left_bytes -= weights[key]
    return {**ends, **{key: starts[key] + taken[key] for key in turns}}


def is_delayed(available: int, wanted: int | None, waited_ms: int, delay_max_ms: int) -> bool:
    """Tell whether a batch waits for more: fewer than `wanted` offsets, and not longer than `delay_max_ms`."""
    return wanted is not None and available < wanted and waited_ms < delay_max_ms


def _sizes(starts: Positions, ends: Positions) -> dict[TopicPartition, int]:
    return {key: end - starts[key] for key, end in ends.items() if end > starts[key]}


def _in_turn(keys: Sequence[TopicPartition], turn: int) -> list[TopicPartition]:
    at = turn % len(keys) if keys else 0
    return [*keys[at:], *keys[:at]]
