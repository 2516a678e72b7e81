"""Settings of a topic: its own, else the broker's behind them, else the defaults."""

from typing import Any

import pytest

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.topic import BEHIND_TOPICS, topic_settings
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS

REQUIRED: dict[str, Any] = {"cluster.id": "c", "node.id": 1, "cluster.nodes": "1@127.0.0.1:1", "log.dir": "d"}
SET = {  # configuration of a topic: what is set at the broker, for the topic, and what comes of each
    "cleanup.policy": ("compact", "delete,compact", "is_compacted", True, True),
    "compression.gzip.level": (9, "1", "compression_gzip_level", 9, 1),
    "compression.lz4.level": (17, "1", "compression_lz4_level", 17, 1),
    "compression.type": ("zstd", "uncompressed", "compression_type", "zstd", "uncompressed"),
    "compression.zstd.level": (22, "-5", "compression_zstd_level", 22, -5),
    "delete.retention.ms": (2_000, "3000", "delete_retention_ms", 2_000, 3_000),
    "flush.mode": ("page-cache", "fsync", "flush_mode", "page-cache", "fsync"),
    "max.compaction.lag.ms": (2_000, "3000", "max_compaction_lag_ms", 2_000, 3_000),
    "max.message.bytes": (2_000, "3000", "max_message_bytes", 2_000, 3_000),
    "message.timestamp.after.max.ms": (9_000, "70", "timestamp_after_max_ms", 9_000, 70),
    "message.timestamp.before.max.ms": (9_000, "70", "timestamp_before_max_ms", 9_000, 70),
    "message.timestamp.type": ("LogAppendTime", "CreateTime", "timestamp_type", "LogAppendTime", "CreateTime"),
    "min.cleanable.dirty.ratio": ("0.25", "0.75", "min_cleanable_dirty_ratio", 0.25, 0.75),
    "min.compaction.lag.ms": (2_000, "3000", "min_compaction_lag_ms", 2_000, 3_000),
    "min.insync.replicas": (2, "3", "min_insync_replicas", 2, 3),
    "record.validation": ("none", "framing", "record_validation", "none", "framing"),
    "retention.bytes": (1_000, "-1", "retention_bytes", 1_000, -1),
    "retention.ms": (60_000, "-1", "retention_ms", 60_000, -1),
    "segment.bytes": (1 << 20, str(2 << 20), "segment_bytes", 1 << 20, 2 << 20),
    "segment.index.bytes": (2_048, "4096", "segment_bytes", 1 << 20, 2 << 20),
    "segment.jitter.ms": (5_000, "6000", "segment_jitter_ms", 5_000, 6_000),
    "segment.ms": (5_000, "6000", "segment_ms", 5_000, 6_000),
}


def config(**settings: Any) -> BrokerConfig:
    return BrokerConfig.from_settings(REQUIRED | settings)


def test_every_setting_behind_a_topic_is_looked_at_below() -> None:
    assert SET.keys() == BEHIND_TOPICS.keys()


@pytest.mark.parametrize("name", sorted(SET))
def test_a_setting_of_the_broker_holds_for_topics_that_have_none_of_their_own(name: str) -> None:
    at_broker, of_topic, field, of_broker, own = SET[name]
    default = config()
    broker = config(**{BEHIND_TOPICS[name]: at_broker})
    assert getattr(topic_settings("t", {}, broker), field) == of_broker
    assert getattr(topic_settings("t", {}, default), field) != of_broker
    assert getattr(topic_settings("t", {name: of_topic}, broker), field) == own
    if name in {"cleanup.policy", "retention.bytes", "retention.ms"} or name.startswith("compression."):
        internal = min(INTERNAL_TOPICS)
        kept = topic_settings(internal, {}, broker)
        assert kept == topic_settings(internal, {}, default), "whoever writes to it keeps it"
