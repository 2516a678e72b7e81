"""Checks the options of a stream as a whole, before anything is contacted. Pure.

Whatever concerns tasks (sizes of requests, cutting of ranges, columns) is that of a batch read, and reads.py has it.
Here is what only streams have: where to begin, how much a micro-batch takes, and the group that stands for the query.

`schema` of a Python source is not told whether it serves a batch or a stream, so `check_either` takes the options of
both.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from .names import Names, OptionError, without_copies
from .reads import EARLIEST, LATEST, Position, ReadOptions, Strategy, by_time, parse_read_options, strategy
from .reads import NAMES as READ_NAMES
from .values import by_partition, count, one_of, size

__all__ = ["NAMES", "StreamOptions", "check_either", "parse_stream_options"]

OnRecreated = Literal["fail", "restart"]

TRIGGER_DELAY_MAX_MS = 15 * 60_000
# Java clients' is 300 s; Spark's source looks for new partitions in every micro-batch.
METADATA_AGE_MS = 30_000

_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
# Of no use in a batch, and accepted there as in Spark.
_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_METADATA_AGE = "kafka.metadata.max.age.ms"
_ONLY_STREAMS = ("maxBytesPerTrigger", "consumerGroup", "onTopicRecreated")
_STARTS = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
)
_SPLITTING = ("partitioning", "minPartitions", "maxBytesPerPartition", "maxRecordsPerPartition")
_SNAPSHOTS = ("snapshot", "snapshotCompacted")
_OWN = (*_ONLY_STREAMS, *_LIMITS, _METADATA_AGE)
NAMES = Names(
    (*(name for name in READ_NAMES.used if name not in (*_ENDS, *_SNAPSHOTS, *_OWN)), *_OWN),
    tuple(name for name in READ_NAMES.without_effect if name not in _OWN),
    READ_NAMES.refused,
    {
        **READ_NAMES.elsewhere,
        **dict.fromkeys(_ENDS, "has no meaning in a stream, which has no end; remove it"),
        **dict.fromkeys(_SNAPSHOTS, "is for batches: a stream goes on where its checkpoint says"),
    },
)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class StreamOptions(NamedTuple):
    """A checked set of options. None means no limit. `read` is what tasks go by; its starting and ending mean nothing.

    `starting` may say `LATEST`, for a stream as a whole or for a partition. A stream whose first offset depends on the
    moment has a `consumer_group`. `is_packed`: no option says what a task reads, so small micro-batches may be packed.
    """

    read: ReadOptions
    starting: Position
    starting_strategy: Strategy = "error"
    trigger_offsets_max: int | None = None
    trigger_bytes_max: int | None = None
    trigger_offsets_min: int | None = None
    trigger_delay_max_ms: int = TRIGGER_DELAY_MAX_MS
    consumer_group: str = ""
    on_topic_recreated: OnRecreated = "fail"
    metadata_age_ms: int = METADATA_AGE_MS
    is_packed: bool = True


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Check the options of a stream.

    Raises:
        OptionError: names the first option that is missing, unknown, refused or impossible.
    """
    options = without_copies(given)
    ignored = NAMES.check(options)
    own = {name.lower() for name in (*_OWN, *_STARTS)}
    read = parse_read_options({name: value for name, value in options.items() if name not in own})
    offsets_max = count(options, "maxOffsetsPerTrigger")
    offsets_min = count(options, "minOffsetsPerTrigger")
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError("minOffsetsPerTrigger", f"{offsets_min} is more than maxOffsetsPerTrigger, {offsets_max}")
    starting = _starting(options)
    group = options.get("consumergroup", "").strip()
    if not group and "consumergroup" in options:
        raise OptionError("consumerGroup", "is empty")
    if not group and _depends_on_the_moment(starting):
        raise OptionError(
            starting.option,
            "needs consumerGroup: Spark asks for the first offset again if it has to repeat the first micro-batch, the "
            "answer would be another one then, and the records between the two would be lost. With a group it is kept "
            "on the brokers. Set consumerGroup to a name that no other query uses, or start at earliest",
        )
    return StreamOptions(
        # A micro-batch is small, and must not wait for brokers to tell where to cut it, unless somebody asks for that.
        read=read._replace(
            ignored=ignored, partitioning=read.partitioning if "partitioning" in options else "topicPartition"
        ),
        starting=starting,
        starting_strategy=strategy(options),
        trigger_offsets_max=offsets_max,
        trigger_bytes_max=size(options, "maxBytesPerTrigger"),
        trigger_offsets_min=offsets_min,
        trigger_delay_max_ms=_duration_ms(options, "maxTriggerDelay", TRIGGER_DELAY_MAX_MS),
        consumer_group=group,
        on_topic_recreated=one_of(options, "onTopicRecreated", "fail", "restart"),
        metadata_age_ms=count(options, _METADATA_AGE) or METADATA_AGE_MS,
        is_packed=not any(name.lower() in options for name in _SPLITTING),
    )


def check_either(given: Mapping[str, str]) -> ReadOptions:
    """Check options that may be those of a batch or of a stream, and return what both have in common.

    Raises:
        OptionError: they are right for neither. It is the error of a stream if an option says that it is one.
    """
    options = without_copies(given)
    if any(name.lower() in options for name in _ONLY_STREAMS):
        return parse_stream_options(given).read
    try:
        return parse_read_options(given)
    except OptionError as error:
        of_a_batch = error
    try:
        return parse_stream_options(given).read
    except OptionError as error:
        if error.option == of_a_batch.option and "consumerGroup" in error.reason:
            raise OptionError(error.option, f"{of_a_batch.reason}; a stream {error.reason}") from None
        raise of_a_batch from None


def _starting(options: Mapping[str, str]) -> Position:
    """Read the start. As in Spark, timestamps beat offsets."""
    if (position := by_time(options, "starting", LATEST)) is not None:
        return position
    name = "startingOffsets"
    # Spark's default.
    text = options.get(name.lower(), "").strip() or "latest"
    if text.lower() in {"earliest", "latest"}:
        return Position(name, EARLIEST if text.lower() == "earliest" else LATEST)
    form = 'earliest, latest, or {"topic":{"0":23,"1":-2}}'
    return Position(name, LATEST, offsets=by_partition(name, text, EARLIEST, form))


def _depends_on_the_moment(starting: Position) -> bool:
    if starting.offsets is not None:
        return LATEST in starting.offsets.values()
    return starting.everywhere == LATEST


def _duration_ms(options: Mapping[str, str], option: str, default_ms: int) -> int:
    text = options.get(option.lower())
    if text is None:
        return default_ms
    found = re.fullmatch(r"([0-9]{1,12}) *([a-z]*)", text.strip().lower())
    unit = (found[2] or "ms") if found else ""
    if found is None or unit not in _UNITS_MS:
        raise OptionError(option, f"{text!r} is not a duration; write 500ms, 30s, 15m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[unit]
