"""The topic configurations that Barnabas supports, with Kafka's names and the values of each. Pure.

All that Kafka 4.4 has for topics is in the table. A configuration that would be accepted and then ignored is worse
than a refusal, because a user who sets it is lied to. So each one works; or has one value, which says what is so
anyway, and refuses others with the reason; or is one of those that do nothing in Kafka either, without tiered storage.
Names that are not in the table are refused.

Internal topics are kept by the brokers that write to them. Configurations that limit for how long data stays, that
allow to lose it, or that ask for a codec, are refused for them.

Not here: how a set of configurations changes (`config_changes`), and the broker's own settings
(`barnabas_broker/config/broker.py`).
"""

from collections.abc import Container, Mapping

from barnabas_raftlog.records.header import BATCH_BYTES_MAX

from .config_values import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    KnownConfig,
    boolean,
    brokers,
    gzip_level,
    integer,
    one_of,
    only,
    policy,
    ratio,
    throttled,
)
from .topic_names import INTERNAL_TOPICS

__all__ = [
    "COMPRESSING",
    "FLUSHES",
    "KEEPING",
    "OBSERVERS",
    "TOPIC_CONFIGS",
    "check_topic_configs",
    "observers_of",
    "validate_configs",
]


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

FLUSHES = ("flush.messages", "flush.ms")
"""Those that say when a log is synced."""
SEGMENT_INDEX_BYTES_MIN = (1 << 20) // 4096 * 8

TOPIC_CONFIGS: Mapping[str, KnownConfig] = {
    config.name: config
    for config in (
        KnownConfig(
            name="cleanup.policy",
            type="LIST",
            default="delete",
            complaint=policy,
            documentation=(
                "What happens to old data: delete by age and size, compact by key, both, or nothing if it is empty."
            ),
        ),
        KnownConfig(
            name="compression.type",
            type="STRING",
            default="producer",
            complaint=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            documentation="The codec that batches are stored with: producer keeps what each of them came with.",
        ),
        KnownConfig(
            name="compression.gzip.level",
            type="INT",
            default="-1",
            complaint=gzip_level,
            documentation="The level at which brokers compress with gzip, from 1 to 9; -1 is 6.",
        ),
        KnownConfig(
            name="compression.lz4.level",
            type="INT",
            default="9",
            complaint=integer(1, 17),
            documentation="The level at which brokers compress with lz4: 9 is fast, the others thorough.",
        ),
        KnownConfig(
            name="compression.zstd.level",
            type="INT",
            default="3",
            complaint=integer(-131072, 22),
            documentation="The level at which brokers compress with zstd.",
        ),
        KnownConfig(
            name="delete.retention.ms",
            type="LONG",
            default="86400000",
            complaint=integer(0, INT64_MAX),
            documentation="How long a compacted topic keeps a tombstone after it was first compacted.",
        ),
        KnownConfig(
            name="errors.deadletterqueue.group.enable",
            type="BOOLEAN",
            default="false",
            complaint=only("false", "there are no share groups"),
            documentation=(
                "Whether share groups may put records here that they cannot process; there are no share groups."
            ),
        ),
        KnownConfig(
            name="file.delete.delay.ms",
            type="LONG",
            default="0",
            complaint=only("0", "files go as soon as no reader and no recovery needs them"),
            documentation=(
                "Time between the deletion of a segment and that of its files: none, but for readers that are in it."
            ),
        ),
        KnownConfig(
            name="flush.messages",
            type="LONG",
            default=str(INT64_MAX),
            complaint=integer(1, INT64_MAX),
            documentation=(
                "Records after which a log is synced. With flush.mode=fsync each batch is, before it counts, which "
                "is never later."
            ),
        ),
        KnownConfig(
            name="flush.mode",
            type="STRING",
            default="fsync",
            complaint=one_of("fsync", "page-cache"),
            documentation="When a replica may acknowledge: after fdatasync, or when the operating system has the data.",
        ),
        KnownConfig(
            name="flush.ms",
            type="LONG",
            default=str(INT64_MAX),
            complaint=integer(0, INT64_MAX),
            documentation=(
                "Time after which a log is synced. With flush.mode=fsync each batch is, before it counts, which is "
                "never later."
            ),
        ),
        KnownConfig(
            name="follower.replication.throttled.replicas",
            type="LIST",
            default="",
            complaint=throttled,
            documentation=(
                "Replicas that receive no more than follower.replication.throttled.rate while they catch up; the "
                "rate holds for all others of the broker, too."
            ),
        ),
        KnownConfig(
            name="index.interval.bytes",
            type="INT",
            default="4096",
            complaint=only("4096", "the index of every segment has an entry for so many bytes"),
            documentation="Bytes of a segment for which its index has an entry.",
        ),
        KnownConfig(
            name="leader.replication.throttled.replicas",
            type="LIST",
            default="",
            complaint=throttled,
            documentation=(
                "Replicas that send no more than leader.replication.throttled.rate to those that catch up; the rate "
                "holds for all others of the broker, too."
            ),
        ),
        KnownConfig(
            name="local.retention.bytes",
            type="LONG",
            default="-2",
            complaint=integer(-2, INT64_MAX),
            documentation=(
                "Size of what stays on the brokers' disks; -2: retention.bytes. It counts with "
                "remote.storage.enable alone, which is not to be had here."
            ),
        ),
        KnownConfig(
            name="local.retention.ms",
            type="LONG",
            default="-2",
            complaint=integer(-2, INT64_MAX),
            documentation=(
                "Age of what stays on the brokers' disks; -2: retention.ms. It counts with remote.storage.enable "
                "alone, which is not to be had here."
            ),
        ),
        KnownConfig(
            name="max.compaction.lag.ms",
            type="LONG",
            default=str(INT64_MAX),
            complaint=integer(1, INT64_MAX),
            documentation="Age of a record at which compaction begins, however little there is to do.",
        ),
        KnownConfig(
            name="max.decompressed.message.bytes",
            type="INT",
            default="2147483639",
            complaint=only("2147483639", "all records of a batch are bounded together, decompressed, and none alone"),
            documentation="Size limit of one record, decompressed: none but that of all records of a batch, 128 MiB.",
        ),
        KnownConfig(
            # A larger one would fit no frame between brokers, and its partition could not replicate it.
            name="max.message.bytes",
            type="INT",
            default="1048588",
            complaint=integer(0, BATCH_BYTES_MAX),
            documentation="Size limit of one record batch.",
        ),
        KnownConfig(
            name="message.timestamp.after.max.ms",
            type="LONG",
            default="3600000",
            complaint=integer(0, INT64_MAX),
            documentation=(
                "How far a timestamp may be ahead of the broker's clock; a batch with a later one is refused."
            ),
        ),
        KnownConfig(
            name="message.timestamp.before.max.ms",
            type="LONG",
            default=str(INT64_MAX),
            complaint=integer(0, INT64_MAX),
            documentation=(
                "How far a timestamp may be behind the broker's clock; a batch with an earlier one is refused."
            ),
        ),
        KnownConfig(
            name="message.timestamp.type",
            type="STRING",
            default="CreateTime",
            complaint=one_of("CreateTime", "LogAppendTime"),
            documentation=(
                "Whose clock stamps the records: the producer's, or the broker's when it appends (LogAppendTime)."
            ),
        ),
        KnownConfig(
            name="min.cleanable.dirty.ratio",
            type="DOUBLE",
            default="0.5",
            complaint=ratio,
            documentation="Part of a partition that was never compacted at which compaction begins.",
        ),
        KnownConfig(
            name="min.compaction.lag.ms",
            type="LONG",
            default="0",
            complaint=integer(0, INT64_MAX),
            documentation="Age below which a record is not compacted.",
        ),
        KnownConfig(
            name="min.insync.replicas",
            type="INT",
            default="1",
            complaint=integer(1, INT32_MAX),
            documentation="Replicas that must have a batch before acks=all is answered.",
        ),
        KnownConfig(
            name=OBSERVERS,
            type="LIST",
            default="",
            complaint=brokers,
            documentation=(
                "Ids of brokers that keep a copy for consumers in their rack, beside the replicas, and never lead."
            ),
        ),
        KnownConfig(
            name="preallocate",
            type="BOOLEAN",
            default="false",
            complaint=only("false", "the journal is what is allocated ahead, once for all topics of a broker"),
            documentation="Whether the file of a segment has its full size from the beginning.",
        ),
        KnownConfig(
            name="record.validation",
            type="STRING",
            default="framing",
            complaint=one_of("framing", "none"),
            documentation=(
                "What is checked of each batch beyond its header: framing, so that every record can be read; or none."
            ),
        ),
        KnownConfig(
            name="remote.copy.lag.bytes",
            type="LONG",
            default="-1",
            complaint=integer(-1, INT64_MAX),
            documentation=(
                "Bytes that are not copied yet. It counts with remote.storage.enable alone, which is not to be had "
                "here."
            ),
        ),
        KnownConfig(
            name="remote.copy.lag.ms",
            type="LONG",
            default="0",
            complaint=integer(-1, INT64_MAX),
            documentation=(
                "Age below which nothing is copied. It counts with remote.storage.enable alone, which is not to be "
                "had here."
            ),
        ),
        KnownConfig(
            name="remote.log.copy.disable",
            type="BOOLEAN",
            default="false",
            complaint=boolean,
            documentation=(
                "Whether copying has ended. It counts with remote.storage.enable alone, which is not to be had here."
            ),
        ),
        KnownConfig(
            name="remote.log.delete.on.disable",
            type="BOOLEAN",
            default="false",
            complaint=boolean,
            documentation=(
                "Whether copies go when copying ends. It counts with remote.storage.enable alone, which is not to "
                "be had here."
            ),
        ),
        KnownConfig(
            name="remote.storage.enable",
            type="BOOLEAN",
            default="false",
            complaint=only("false", "there is no tiered storage"),
            documentation="Whether sealed segments are copied to other storage.",
        ),
        KnownConfig(
            name="retention.bytes",
            type="LONG",
            default="-1",
            complaint=integer(INT64_MIN, INT64_MAX),
            documentation="Size of a partition above which its oldest segments are deleted; below 0: no limit.",
        ),
        KnownConfig(
            name="retention.ms",
            type="LONG",
            default="604800000",
            complaint=integer(-1, INT64_MAX),
            documentation="Age above which segments are deleted; -1: no limit.",
        ),
        KnownConfig(
            # Kafka's own floor since 4.0: smaller segments cost more files than they are worth.
            name="segment.bytes",
            type="INT",
            default="1073741824",
            complaint=integer(1 << 20, INT32_MAX),
            documentation="Size at which a new segment begins.",
        ),
        KnownConfig(
            # A smaller one would make segments below the least that segment.bytes may be.
            name="segment.index.bytes",
            type="INT",
            default="10485760",
            complaint=integer(SEGMENT_INDEX_BYTES_MIN, INT32_MAX),
            documentation=(
                "Size of the index of a segment, eight bytes for each 4096 of data, at which a new segment begins."
            ),
        ),
        KnownConfig(
            name="segment.jitter.ms",
            type="LONG",
            default="0",
            complaint=integer(0, INT64_MAX),
            documentation=(
                "Most time by which a segment is closed earlier than segment.ms says, so that not all are closed "
                "together."
            ),
        ),
        KnownConfig(
            name="segment.ms",
            type="LONG",
            default="604800000",
            complaint=integer(1, INT64_MAX),
            documentation="Age of its first record at which a segment is closed, although it is not full.",
        ),
        KnownConfig(
            name="unclean.leader.election.enable",
            type="BOOLEAN",
            default="false",
            complaint=only("false", "a leader is elected by a majority, so it has every record that was acknowledged"),
            documentation="Whether a replica may lead that lacks acknowledged records.",
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


def check_topic_configs(
    topic: str, configs: Mapping[str, str | None], brokers: Container[int], flush_mode: str = "fsync"
) -> str | None:
    """Return the first complaint about setting `configs` for the topic of that name, or None.

    `brokers` are those that are registered, `flush_mode` is that of topics that say nothing.
    """
    complaint = validate_configs(configs)
    if complaint is not None:
        return complaint
    if unknown := [node_id for node_id in observers_of(configs) if node_id not in brokers]:
        return f"Topic config {OBSERVERS}={configs[OBSERVERS]}: broker {unknown[0]} is not registered"
    if (configs.get("flush.mode") or flush_mode) == "page-cache":
        for name in FLUSHES:
            if int(configs.get(name) or INT64_MAX) != INT64_MAX:
                return (
                    f"Topic config {name}={configs[name]}: with flush.mode=page-cache the operating system decides "
                    "when data goes to the disk; fsync has each batch there before it counts"
                )
    if topic not in INTERNAL_TOPICS:
        return None
    if configs.get("flush.mode") == "page-cache":
        return f"Topic config flush.mode=page-cache: {topic} holds promises of the cluster and is always fsync"
    if kept := sorted((KEEPING | COMPRESSING) & configs.keys()):
        return f"Topic config {kept[0]}: {topic} is kept by the brokers themselves"
    return None
