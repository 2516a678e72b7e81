"""A snapshot is refused when a single bit is wrong, and says why."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    FeatureFinalized,
    ListenerAddress,
    NamedSnapshot,
    NamedSnapshotCreated,
    NamedSnapshotDeleted,
    PinnedTopic,
    ResourceConfigured,
    TopicCreated,
    UnknownRecordError,
)
from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot, encode_snapshot
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.crc32c import crc32c

IMAGE = apply_all(
    Image("cluster-1"),
    (
        BrokerRegistered(node_id=1, incarnation=5, epoch=0, host="host", port=9092, rack="rack"),
        BrokerUnfenced(1, 0),
        TopicCreated(b"t" * 16, "topic", ((1,), (1,)), {"flush.mode": "fsync"}),
    ),
)
DATA = encode_snapshot(Snapshot(9, 2, IMAGE))


def test_a_snapshot_keeps_image_and_position() -> None:
    assert decode_snapshot(DATA) == Snapshot(9, 2, IMAGE)
    assert decode_snapshot(memoryview(bytearray(DATA))).image.version == 3


def test_a_snapshot_knows_who_was_fenced_after_it_had_served() -> None:
    image = apply_all(IMAGE, (BrokerFenced(1, 0, "no heartbeat"),))
    [broker] = decode_snapshot(encode_snapshot(Snapshot(9, 2, image))).image.brokers.values()
    assert (broker.fenced, broker.has_served) == (True, True)


def test_a_snapshot_knows_every_listener_of_a_broker() -> None:
    listeners = (ListenerAddress("INSIDE", "b2", 9092), ListenerAddress("OUTSIDE", "localhost", 19092))
    image = apply_all(IMAGE, (BrokerRegistered(2, 6, 3, "b2", 9092, None, listeners=listeners),))
    kept = decode_snapshot(encode_snapshot(Snapshot(9, 2, image))).image.brokers
    assert {node_id: broker.listeners for node_id, broker in kept.items()} == {1: (), 2: listeners}


def test_a_snapshot_knows_named_snapshots_and_what_they_take() -> None:
    topics = (PinnedTopic(b"t" * 16, "topic", bytes(24)),)
    first, second = (NamedSnapshot(bytes([n]) * 16, str(n), n, topics) for n in (1, 2))
    image = apply_all(IMAGE, (NamedSnapshotCreated(first), NamedSnapshotCreated(second)))
    assert image.named_snapshots_bytes == first.size_bytes + second.size_bytes
    one = apply_all(image, (NamedSnapshotDeleted("1", first.snapshot_id),))
    kept = decode_snapshot(encode_snapshot(Snapshot(9, 2, one))).image
    assert kept.named_snapshots == {"2": second}
    assert kept.named_snapshots_bytes == second.size_bytes


def test_a_snapshot_knows_what_brokers_understand() -> None:
    later = BrokerRegistered(2, 6, 3, "b2", 9092, None, record_level=1)
    image = apply_all(IMAGE, (later, BrokerUnfenced(1, 0, record_level=2)))
    kept = decode_snapshot(encode_snapshot(Snapshot(9, 2, image))).image.brokers
    assert {node_id: broker.record_level for node_id, broker in kept.items()} == {1: 2, 2: 1}


def test_a_snapshot_knows_finalized_features_and_none_that_is_off() -> None:
    levels = (("a", 1), ("b", 3), ("c", 2), ("b", 1), ("c", 0))
    image = apply_all(IMAGE, [FeatureFinalized(name, level) for name, level in levels])
    assert image.features == {"a": 1, "b": 1}
    assert not IMAGE.features
    assert decode_snapshot(encode_snapshot(Snapshot(9, 2, image))) == Snapshot(9, 2, image)


def test_a_snapshot_knows_what_is_set_for_brokers_and_groups() -> None:
    sets = (
        ResourceConfigured(4, "", {"message.max.bytes": "9"}),
        ResourceConfigured(4, "1", {"message.max.bytes": "8"}),
        ResourceConfigured(32, "g", {"consumer.session.timeout.ms": "50000"}),
        ResourceConfigured(4, "1", {}),
    )
    image = apply_all(IMAGE, sets)
    assert image.resource_configs == {
        (4, ""): {"message.max.bytes": "9"},
        (32, "g"): {"consumer.session.timeout.ms": "50000"},
    }
    assert decode_snapshot(encode_snapshot(Snapshot(9, 2, image))) == Snapshot(9, 2, image)
    none = apply_all(image, (ResourceConfigured(4, "", {}), ResourceConfigured(32, "g", {})))
    assert (none.resource_configs, none.resource_configs_bytes) == ({}, 0)


def test_the_bytes_of_a_snapshot_never_change() -> None:
    empty = encode_snapshot(Snapshot(1, 1, Image("c")))
    assert (
        empty.hex() == "424d44530001" + f"{crc32c(memoryview(empty)[10:]):08x}" + f"{0:016x}{1:016x}{1:016x}{1:08x}63"
    )


@given(st.integers(0, len(DATA) * 8 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    damaged = bytearray(DATA)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedMessageError):
        decode_snapshot(damaged)


@given(st.integers(0, len(DATA) - 1))
def test_any_cut_is_noticed(size: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode_snapshot(DATA[:size])


def sealed(body: bytes) -> bytes:
    return struct.pack(">4sHI", b"BMDS", 1, crc32c(body)) + body


@pytest.mark.parametrize("tail", [b"", b"\x00\x00", b"\x00\x00\x00\x05abc"])
def test_a_snapshot_with_a_good_checksum_and_a_bad_inside_is_malformed(tail: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_snapshot(sealed(bytes(24) + tail))


def test_a_record_of_a_newer_version_is_named() -> None:
    record = msgspec.msgpack.encode({"type": "quota_set", "version": 1})
    body = bytes(24) + struct.pack(">I", 1) + b"c" + struct.pack(">I", len(record)) + record
    with pytest.raises(UnknownRecordError, match="quota_set"):
        decode_snapshot(sealed(body))


def test_a_newer_format_is_named() -> None:
    with pytest.raises(MalformedMessageError, match=r"format 2.*upgrade this node"):
        decode_snapshot(DATA[:4] + b"\x00\x02" + DATA[6:])
