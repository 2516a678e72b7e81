"""The topic configurations that Barnabas supports, with Kafka's names and the values of each. Pure.

A configuration that would be accepted and then ignored is worse than a refusal: a user who sets `segment.jitter.ms`
and sees all segments closed together was lied to. So the table holds configurations that work; values that do not work
yet are refused by name, and so are names that are not in the table.

Internal topics are kept by the brokers that write to them. Configurations that limit for how long data stays, that
allow to lose it, or that ask for a codec, are refused for them.

Not here: how a set of configurations changes (`config_changes`), and the broker's own settings
(`barnabas_broker/config/broker.py`).
"""

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from barnabas_raftlog.records.header import BATCH_BYTES_MAX

from .topic_names import INTERNAL_TOPICS

__all__ = [
    "COMPRESSING",
    "KEEPING",
    "OBSERVERS",
    "TOPIC_CONFIGS",
    "TopicConfig",
    "check_topic_configs",
    "observers_of",
    "validate_configs",
]

INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class TopicConfig(NamedTuple):
    """One name: Kafka's type for it, its value when nobody set one, its check (text of the complaint, or None)."""

    name: str
    type: str
    default: str
    complaint: Callable[[str], str | None]
    documentation: str


def _one_of(*allowed: str, because: str = "") -> Callable[[str], str | None]:
    def complaint(value: str) -> str | None:
        return None if value in allowed else f"must be {' or '.join(allowed)}{because}"

    return complaint


def _integer(low: int, high: int) -> Callable[[str], str | None]:
    def complaint(value: str) -> str | None:
        # isdecimal also takes other scripts' digits; int() would read them, Kafka would not.
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            return "must be an integer"
        return None if len(digits) <= 19 and low <= int(value) <= high else f"must be between {low} and {high}"

    return complaint


def _gzip_level(value: str) -> str | None:
    return _integer(-1, 9)(value) or ("must be -1, or between 1 and 9" if int(value) == 0 else None)


def _policy(value: str) -> str | None:
    items = [item.strip() for item in value.split(",")] if value.strip() else []
    if not {*items} <= {"compact", "delete"} or len({*items}) < len(items):
        return "must be delete, compact, both, or empty"
    return None


def _brokers(value: str) -> str | None:
    items = [item.strip() for item in value.split(",")] if value.strip() else []
    if not all(item.isascii() and item.isdecimal() and len(item) < 10 for item in items):
        return "must be broker ids, separated by commas"
    return None if len({int(item) for item in items}) == len(items) else "names a broker twice"


def _ratio(value: str) -> str | None:
    try:
        ratio = float(value)
    except ValueError:
        return "must be a number"
    return None if 0 <= ratio <= 1 else "must be between 0 and 1"


OBSERVERS = "replica.observers"
KEEPING = frozenset(
    {
        "cleanup.policy",
        "retention.bytes",
        "retention.ms",
        "delete.retention.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
    }
)
"""Those that say for how long data is kept."""
COMPRESSING = frozenset(
    {"compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}
)
"""Those that say how batches of producers are compressed."""

TOPIC_CONFIGS: Mapping[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            name="cleanup.policy",
            type="LIST",
            default="delete",
            complaint=_policy,
            documentation=(
                "What happens to old data: delete by age and size, compact by key, both, or nothing if it is empty."
            ),
        ),
        TopicConfig(
            name="compression.type",
            type="STRING",
            default="producer",
            complaint=_one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            documentation="The codec that batches are stored with: producer keeps what each of them came with.",
        ),
        TopicConfig(
            name="compression.gzip.level",
            type="INT",
            default="-1",
            complaint=_gzip_level,
            documentation="The level at which brokers compress with gzip, from 1 to 9; -1 is 6.",
        ),
        TopicConfig(
            name="compression.lz4.level",
            type="INT",
            default="9",
            complaint=_integer(1, 17),
            documentation="The level at which brokers compress with lz4: 9 is fast, the others thorough.",
        ),
        TopicConfig(
            name="compression.zstd.level",
            type="INT",
            default="3",
            complaint=_integer(-131072, 22),
            documentation="The level at which brokers compress with zstd.",
        ),
        TopicConfig(
            name="delete.retention.ms",
            type="LONG",
            default="86400000",
            complaint=_integer(0, INT64_MAX),
            documentation="How long a compacted topic keeps a tombstone after it was first compacted.",
        ),
        TopicConfig(
            name="flush.mode",
            type="STRING",
            default="fsync",
            complaint=_one_of("fsync", "page-cache"),
            documentation="When a replica may acknowledge: after fdatasync, or when the operating system has the data.",
        ),
        TopicConfig(
            name="max.compaction.lag.ms",
            type="LONG",
            default=str(INT64_MAX),
            complaint=_integer(1, INT64_MAX),
            documentation="Age of a record at which compaction begins, however little there is to do.",
        ),
        TopicConfig(
            # A larger one would fit no frame between brokers, and its partition could not replicate it.
            name="max.message.bytes",
            type="INT",
            default="1048588",
            complaint=_integer(0, BATCH_BYTES_MAX),
            documentation="Size limit of one record batch.",
        ),
        TopicConfig(
            name="message.timestamp.after.max.ms",
            type="LONG",
            default="3600000",
            complaint=_integer(0, INT64_MAX),
            documentation=(
                "How far a timestamp may be ahead of the broker's clock; a batch with a later one is refused."
            ),
        ),
        TopicConfig(
            name="message.timestamp.before.max.ms",
            type="LONG",
            default=str(INT64_MAX),
            complaint=_integer(0, INT64_MAX),
            documentation=(
                "How far a timestamp may be behind the broker's clock; a batch with an earlier one is refused."
            ),
        ),
        TopicConfig(
            name="message.timestamp.type",
            type="STRING",
            default="CreateTime",
            complaint=_one_of("CreateTime", "LogAppendTime"),
            documentation=(
                "Whose clock stamps the records: the producer's, or the broker's when it appends (LogAppendTime)."
            ),
        ),
        TopicConfig(
            name="min.cleanable.dirty.ratio",
            type="DOUBLE",
            default="0.5",
            complaint=_ratio,
            documentation="Part of a partition that was never compacted at which compaction begins.",
        ),
        TopicConfig(
            name="min.compaction.lag.ms",
            type="LONG",
            default="0",
            complaint=_integer(0, INT64_MAX),
            documentation="Age below which a record is not compacted.",
        ),
        TopicConfig(
            name="min.insync.replicas",
            type="INT",
            default="1",
            complaint=_integer(1, INT32_MAX),
            documentation="Replicas that must have a batch before acks=all is answered.",
        ),
        TopicConfig(
            name=OBSERVERS,
            type="LIST",
            default="",
            complaint=_brokers,
            documentation=(
                "Ids of brokers that keep a copy for consumers in their rack, beside the replicas, and never lead."
            ),
        ),
        TopicConfig(
            name="record.validation",
            type="STRING",
            default="framing",
            complaint=_one_of("framing", "none"),
            documentation=(
                "What is checked of each batch beyond its header: framing, so that every record can be read; or none."
            ),
        ),
        TopicConfig(
            name="retention.bytes",
            type="LONG",
            default="-1",
            complaint=_integer(INT64_MIN, INT64_MAX),
            documentation="Size of a partition above which its oldest segments are deleted; below 0: no limit.",
        ),
        TopicConfig(
            name="retention.ms",
            type="LONG",
            default="604800000",
            complaint=_integer(-1, INT64_MAX),
            documentation="Age above which segments are deleted; -1: no limit.",
        ),
        TopicConfig(
            # Kafka's own floor since 4.0: smaller segments cost more files than they are worth.
            name="segment.bytes",
            type="INT",
            default="1073741824",
            complaint=_integer(1 << 20, INT32_MAX),
            documentation="Size at which a new segment begins.",
        ),
        TopicConfig(
            name="segment.ms",
            type="LONG",
            default="604800000",
            complaint=_integer(1, INT64_MAX),
            documentation="Age of its first record at which a segment is closed, although it is not full.",
        ),
    )
}


def validate_configs(configs: Mapping[str, str | None]) -> str | None:
    """Return the first complaint about `configs`, by name order, or None when all of them are supported."""
    for name in sorted(configs):
        config = TOPIC_CONFIGS.get(name)
        value = configs[name]
        if config is None:
            return f"Unknown or unsupported topic config {name}; supported are {', '.join(TOPIC_CONFIGS)}"
        if value is None:
            return f"Topic config {name} needs a value"
        complaint = config.complaint(value)
        if complaint is not None:
            return f"Topic config {name}={value}: {complaint}"
    lags = [
        configs.get(name) or TOPIC_CONFIGS[name].default for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    ]
    if int(lags[0]) > int(lags[1]):
        return f"Topic config min.compaction.lag.ms={lags[0]}: is larger than max.compaction.lag.ms={lags[1]}"
    return None


def observers_of(configs: Mapping[str, str | None]) -> tuple[int, ...]:
    """Return the brokers that observe a topic with these configurations, which were checked."""
    value = configs.get(OBSERVERS)
    return tuple(int(item) for item in value.split(",")) if value and value.strip() else ()


def check_topic_configs(topic: str, configs: Mapping[str, str | None], brokers: Container[int]) -> str | None:
    """Return the first complaint about setting `configs` for the topic of that name, or None.

    `brokers` are those that are registered.
    """
    complaint = validate_configs(configs)
    if complaint is not None:
        return complaint
    if unknown := [node_id for node_id in observers_of(configs) if node_id not in brokers]:
        return f"Topic config {OBSERVERS}={configs[OBSERVERS]}: broker {unknown[0]} is not registered"
    if topic not in INTERNAL_TOPICS:
        return None
    if configs.get("flush.mode") == "page-cache":
        return f"Topic config flush.mode=page-cache: {topic} holds promises of the cluster and is always fsync"
    if kept := sorted((KEEPING | COMPRESSING) & configs.keys()):
        return f"Topic config {kept[0]}: {topic} is kept by the brokers themselves"
    return None
