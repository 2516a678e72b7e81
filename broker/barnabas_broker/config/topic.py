"""Returns the settings of a topic: its own, else the broker's, else our default. Pure.

`topic_settings` makes plain values of them once per topic and change, so that no request has a string parsed. The
values were checked when they were set; a broker's setting may be wider than what a topic may set.

Internal topics are kept by their writers, so nothing of theirs is ever deleted by age or size, or compressed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_metadata_quorum.topic_configs import COMPRESSING, KEEPING, TOPIC_CONFIGS
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.records.header import BATCH_BYTES_MAX

from .broker import BrokerConfig

__all__ = ["BEHIND_TOPICS", "PAGE_CACHE", "SharedSettings", "TopicSettings", "kept_by_itself", "topic_settings"]

PAGE_CACHE = "page-cache"
"""The `flush.mode` of a topic whose records are not synced before they count."""
INDEX_INTERVAL_BYTES = 4096
"""The one value of `index.interval.bytes`."""
SETTINGS_MAX = 1_000
"""Different settings of topics that are remembered."""
BEHIND_TOPICS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "flush.mode": "flush.mode",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "record.validation": "record.validation",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}
"""The broker's setting behind each configuration of a topic, where there is one."""


class TopicSettings(NamedTuple):
    """One topic's configuration as values. A negative retention is none."""

    flush_mode: str
    max_message_bytes: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    record_validation: str
    timestamp_type: str
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    min_insync_replicas: int
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    retention_ms: int
    retention_bytes: int
    is_compacted: bool
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float


def kept_by_itself(topic: str, name: str) -> str | None:
    """Return the value that a configuration has for a topic because it is internal, or None."""
    if topic not in INTERNAL_TOPICS or name not in KEEPING | COMPRESSING:
        return None
    kept = {"cleanup.policy": "", "retention.ms": "-1", "retention.bytes": "-1"}
    return kept.get(name, TOPIC_CONFIGS[name].default)


def topic_settings(topic: str, configs: Mapping[str, str], config: BrokerConfig) -> TopicSettings:
    """Return what holds for the topic of that name with `configs` on this broker."""

    def value(name: str) -> str:
        kept = kept_by_itself(topic, name)
        if kept is not None:
            return kept
        if name in configs:
            return configs[name]
        behind = BEHIND_TOPICS.get(name)
        return TOPIC_CONFIGS[name].default if behind is None else str(getattr(config, behind.replace(".", "_")))

    policy = {item.strip() for item in value("cleanup.policy").split(",")}
    is_deleted = "delete" in policy
    return TopicSettings(
        flush_mode=value("flush.mode"),
        # A value that was set unchecked may be more than fits between brokers.
        max_message_bytes=min(int(value("max.message.bytes")), BATCH_BYTES_MAX),
        compression_type=value("compression.type"),
        compression_gzip_level=int(value("compression.gzip.level")),
        compression_lz4_level=int(value("compression.lz4.level")),
        compression_zstd_level=int(value("compression.zstd.level")),
        record_validation=value("record.validation"),
        timestamp_type=value("message.timestamp.type"),
        timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
        min_insync_replicas=int(value("min.insync.replicas")),
        segment_bytes=min(int(value("segment.bytes")), _bytes_indexed_in(int(value("segment.index.bytes")))),
        segment_ms=int(value("segment.ms")),
        segment_jitter_ms=int(value("segment.jitter.ms")),
        retention_ms=int(value("retention.ms")) if is_deleted else -1,
        retention_bytes=int(value("retention.bytes")) if is_deleted else -1,
        is_compacted="compact" in policy,
        delete_retention_ms=int(value("delete.retention.ms")),
        min_compaction_lag_ms=int(value("min.compaction.lag.ms")),
        max_compaction_lag_ms=int(value("max.compaction.lag.ms")),
        min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
    )


def _bytes_indexed_in(index_bytes: int) -> int:
    """Return the size of a segment whose index would be so large in Kafka, where an entry has eight bytes.

    Here it has more. But a segment should be closed where a user of Kafka expects it.
    """
    return index_bytes // 8 * INDEX_INTERVAL_BYTES


class SharedSettings:
    """The settings of a broker's topics: those that are configured alike share them, as they take time to make."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._settings: dict[tuple[object, ...], TopicSettings] = {}

    def of(self, topic: str, configs: Mapping[str, str]) -> TopicSettings:
        """Return what holds for a topic with `configs`, as `topic_settings` does."""
        key = topic if topic in INTERNAL_TOPICS else "", *configs.items()
        settings = self._settings.get(key)
        if settings is None:
            if len(self._settings) >= SETTINGS_MAX:
                self._settings.clear()
            settings = self._settings[key] = topic_settings(topic, configs, self._config)
        return settings
