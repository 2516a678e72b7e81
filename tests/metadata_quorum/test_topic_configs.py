"""The topic configurations of Kafka 4.4: each is there, with its type, and is acted on or refused with the reason."""

import pytest

from barnabas_metadata_quorum.config_values import INT64_MAX
from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS, check_topic_configs, validate_configs

TYPES = {  # of Kafka 4.4
    "cleanup.policy": "LIST",
    "compression.gzip.level": "INT",
    "compression.lz4.level": "INT",
    "compression.type": "STRING",
    "compression.zstd.level": "INT",
    "delete.retention.ms": "LONG",
    "errors.deadletterqueue.group.enable": "BOOLEAN",
    "file.delete.delay.ms": "LONG",
    "flush.messages": "LONG",
    "flush.ms": "LONG",
    "follower.replication.throttled.replicas": "LIST",
    "index.interval.bytes": "INT",
    "leader.replication.throttled.replicas": "LIST",
    "local.retention.bytes": "LONG",
    "local.retention.ms": "LONG",
    "max.compaction.lag.ms": "LONG",
    "max.decompressed.message.bytes": "INT",
    "max.message.bytes": "INT",
    "message.timestamp.after.max.ms": "LONG",
    "message.timestamp.before.max.ms": "LONG",
    "message.timestamp.type": "STRING",
    "min.cleanable.dirty.ratio": "DOUBLE",
    "min.compaction.lag.ms": "LONG",
    "min.insync.replicas": "INT",
    "preallocate": "BOOLEAN",
    "remote.copy.lag.bytes": "LONG",
    "remote.copy.lag.ms": "LONG",
    "remote.log.copy.disable": "BOOLEAN",
    "remote.log.delete.on.disable": "BOOLEAN",
    "remote.storage.enable": "BOOLEAN",
    "retention.bytes": "LONG",
    "retention.ms": "LONG",
    "segment.bytes": "INT",
    "segment.index.bytes": "INT",
    "segment.jitter.ms": "LONG",
    "segment.ms": "LONG",
    "unclean.leader.election.enable": "BOOLEAN",
}
OURS = {"flush.mode", "record.validation", "replica.observers"}
REFUSED = {
    "errors.deadletterqueue.group.enable": ("true", "no share groups"),
    "file.delete.delay.ms": ("60000", "no reader"),
    "index.interval.bytes": ("8192", "index of every segment"),
    "max.decompressed.message.bytes": ("1000000", "bounded together"),
    "preallocate": ("true", "journal"),
    "remote.storage.enable": ("true", "no tiered storage"),
    "segment.index.bytes": ("2047", "between 2048"),
    "unclean.leader.election.enable": ("TRUE", "majority"),
}


def test_all_that_kafka_has_is_there_with_its_type() -> None:
    assert {name: config.type for name, config in TOPIC_CONFIGS.items() if name not in OURS} == TYPES
    assert TOPIC_CONFIGS.keys() > OURS


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_every_default_may_be_set(name: str) -> None:
    assert validate_configs({name: TOPIC_CONFIGS[name].default}) is None
    assert TOPIC_CONFIGS[name].documentation.endswith(".")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_is_refused_with_the_reason(name: str) -> None:
    value, reason = REFUSED[name]
    complaint = validate_configs({name: value})
    assert complaint is not None
    assert complaint.startswith(f"Topic config {name}={value}: must be ")
    assert reason in complaint


@pytest.mark.parametrize("name", sorted(one for one, of in TYPES.items() if of in {"INT", "LONG", "DOUBLE", "BOOLEAN"}))
def test_values_are_read_as_kafka_reads_them(name: str) -> None:
    known = TOPIC_CONFIGS[name]
    assert known.complaint(f" {known.default} ") is None, "blanks around a number do not count"
    assert known.complaint("x") is not None
    assert known.complaint("") is not None
    assert known.complaint("\N{ARABIC-INDIC DIGIT ONE}") is not None
    assert known.complaint("1_0") is not None
    if known.type == "BOOLEAN":
        assert known.complaint("FALSE") is None


@pytest.mark.parametrize("name", ["flush.messages", "flush.ms"])
def test_the_operating_system_is_not_told_when_to_sync(name: str) -> None:
    assert check_topic_configs("t", {name: "1"}, ()) is None, "each batch is synced as it is"
    longest = {name: str(INT64_MAX), "flush.mode": "page-cache"}
    assert check_topic_configs("t", longest, ()) is None
    for configs, flush_mode in (({name: "1", "flush.mode": "page-cache"}, "fsync"), ({name: "1"}, "page-cache")):
        complaint = check_topic_configs("t", configs, (), flush_mode)
        assert complaint is not None
        assert complaint.startswith(f"Topic config {name}=1: with flush.mode=page-cache")
    assert check_topic_configs("t", {name: "1", "flush.mode": "fsync"}, (), "page-cache") is None


@pytest.mark.parametrize("name", ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"])
def test_throttled_replicas_are_pairs_or_a_star(name: str) -> None:
    for right in ("", "*", "0:1", "0:1,1:2,2:3", "0:*"):
        assert validate_configs({name: right}) is None
    for wrong in ("1", "a:b", "0:1,", "*,0:1", "0:-1"):
        assert validate_configs({name: wrong}) is not None
