"""Resolves where a new stream begins. Pure."""

from collections.abc import Mapping

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import EARLIEST, LATEST
from barnabas_spark.options.streams import StreamOptions
from barnabas_spark.options.values import TopicPartition

from .continuation import Heads
from .offsets import Offsets

__all__ = ["check_found", "first_offsets"]


def check_found(options: StreamOptions, heads: Heads) -> None:
    """Raise `OptionError` if something that is to be read does not exist."""
    wanted = options.read.topics
    there = {topic for topic, _ in heads.ends}
    if wanted.pattern and not there:
        raise OptionError("subscribePattern", f"no topic matches {wanted.pattern!r}")
    for topic in wanted.subscribe:
        if topic not in there:
            raise OptionError("subscribe", f"there is no topic {topic}")
    for topic, partition in wanted.assign:
        if (topic, partition) not in heads.ends:
            raise OptionError("assign", f"there is no partition {topic}-{partition}")


def first_offsets(
    options: StreamOptions,
    heads: Heads,
    beginnings: Mapping[TopicPartition, int],
    at_timestamps: Mapping[TopicPartition, int | None],
) -> Offsets:
    """Return the first offset of a stream, in all partitions of the heads.

    `beginnings` has the starts of the logs. `at_timestamps` is empty unless timestamps are given; None in it means that
    a partition has no record as late.

    Raises:
        OptionError: offsets that name other partitions, or a timestamp without a record.
    """
    starting = options.starting
    if starting.offsets is not None and starting.offsets.keys() != heads.ends.keys():
        odd = ", ".join(
            f"{topic}-{partition}" for topic, partition in sorted(starting.offsets.keys() ^ heads.ends.keys())
        )
        raise OptionError(starting.option, f"must name every partition that is read and no other; look at: {odd:.200}")
    positions: dict[TopicPartition, int] = {}
    for key, end in heads.ends.items():
        if at_timestamps:
            offset = at_timestamps[key]
            if offset is None and options.starting_strategy == "error":
                raise OptionError(
                    starting.option,
                    f"{key[0]}-{key[1]} has no record that late; "
                    "set startingOffsetsByTimestampStrategy to latest to begin at its end",
                )
            # The record may have been written after the heads were seen.
            positions[key] = end if offset is None else min(offset, end)
            continue
        wanted = starting.everywhere if starting.offsets is None else starting.offsets[key]
        positions[key] = min(beginnings[key], end) if wanted == EARLIEST else end if wanted == LATEST else wanted
    return Offsets(positions, heads.topic_ids)
