"""Records of consumer groups are, byte by byte, what Kafka 4.4 writes, and are read back."""

from typing import Any

import pytest

from barnabas_broker.coordinators.groups.consumer.records import (
    decode_consumer_key,
    decode_consumer_value,
    encode_consumer_key,
    encode_consumer_value,
)
from barnabas_broker.coordinators.groups.consumer.values import (
    ClassicMetadata,
    ConsumerKey,
    GroupEpoch,
    Kind,
    MemberAssignment,
    MemberMetadata,
    MemberState,
    ResolvedPattern,
    TargetEpoch,
)
from barnabas_raftlog.errors import MalformedMessageError

A, B = bytes(range(16)), bytes(range(16, 32))
A_HEX, B_HEX = A.hex(), B.hex()
MEMBER = MemberMetadata(
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="/h",
    topic_names=("t", "u"),
    topic_pattern="a.*",
    rebalance_timeout_ms=300_000,
    server_assignor="range",
)
MEMBER_HEX = "02 69 00 02 63 03 2f68 03 02 74 02 75 04 612e2a 000493e0 06 72616e6765"
CASES: list[tuple[ConsumerKey, str, Any, str]] = [
    (ConsumerKey("g", Kind.GROUP_EPOCH), "0003 0001 67", GroupEpoch(7), "0000 00000007 00"),
    (
        ConsumerKey("g", Kind.GROUP_EPOCH),
        "0003 0001 67",
        GroupEpoch(7, -2),
        "0000 00000007 01 00 08 ffffffff fffffffe",
    ),
    (ConsumerKey("g", Kind.MEMBER_METADATA, "m"), "0005 0001 67 0001 6d", MEMBER, f"0000 {MEMBER_HEX} 01 00 01 00"),
    (
        ConsumerKey("g", Kind.MEMBER_METADATA, "m"),
        "0005 0001 67 0001 6d",
        MEMBER._replace(classic=ClassicMetadata(45_000, (("range", b"\1\2"),))),
        f"0000 {MEMBER_HEX} 01 00 11 01 0000afc8 02 06 72616e6765 03 0102 00 00",
    ),
    (ConsumerKey("g", Kind.TARGET_EPOCH), "0006 0001 67", TargetEpoch(7), "0000 00000007 00"),
    (
        ConsumerKey("g", Kind.TARGET_EPOCH),
        "0006 0001 67",
        TargetEpoch(7, 5),
        "0000 00000007 01 00 08 00000000 00000005",
    ),
    (
        ConsumerKey("g", Kind.TARGET, "m"),
        "0007 0001 67 0001 6d",
        {B: (0,), A: (1, 2)},
        f"0000 03 {A_HEX} 03 00000001 00000002 00 {B_HEX} 02 00000000 00 00",
    ),
    (ConsumerKey("g", Kind.TARGET, "m"), "0007 0001 67 0001 6d", {}, "0000 01 00"),
    (
        ConsumerKey("g", Kind.MEMBER_ASSIGNMENT, "m"),
        "0008 0001 67 0001 6d",
        MemberAssignment(7, 6, MemberState.UNREVOKED, {A: {2: 7, 1: 3}}, {B: {0: 6}}),
        (
            f"0000 00000007 00000006 01 02 {A_HEX} 03 00000001 00000002 01 00 09 03 00000003 00000007"
            f" 02 {B_HEX} 02 00000000 01 00 05 02 00000006 00"
        ),
    ),
    (
        ConsumerKey("g", Kind.PATTERN, "a.*"),
        "0010 0001 67 0003 612e2a",
        ResolvedPattern(("ab", "ac"), 9, 5),
        "0000 03 03 6162 03 6163 00000000 00000009 00000000 00000005 00",
    ),
]


@pytest.mark.parametrize(("key", "key_hex", "value", "value_hex"), CASES)
def test_bytes_are_those_of_the_schema(key: ConsumerKey, key_hex: str, value: Any, value_hex: str) -> None:
    assert encode_consumer_key(key) == bytes.fromhex(key_hex)
    assert encode_consumer_value(key.kind, value) == bytes.fromhex(value_hex)
    assert decode_consumer_key(bytes.fromhex(key_hex)) == key
    assert decode_consumer_value(key.kind, bytes.fromhex(value_hex)) == value


def test_without_epochs_partitions_are_of_the_members_epoch() -> None:
    for epoch, expected in ((7, 7), (-2, 0)):
        said = epoch.to_bytes(4, "big", signed=True).hex()
        old = f"0000 {said} 00000006 00 02 {A_HEX} 03 00000001 00000002 00 01 00"
        read = decode_consumer_value(Kind.MEMBER_ASSIGNMENT, bytes.fromhex(old))
        assert read == MemberAssignment(epoch, 6, MemberState.STABLE, {A: {1: expected, 2: expected}}, {})


def test_a_member_without_the_field_for_classic_ones_is_none_of_them() -> None:
    assert decode_consumer_value(Kind.MEMBER_METADATA, bytes.fromhex(f"0000 {MEMBER_HEX} 00")) == MEMBER


def test_a_state_of_later_software_is_unknown() -> None:
    read = decode_consumer_value(Kind.MEMBER_ASSIGNMENT, bytes.fromhex("0000 00000007 00000006 05 01 01 00"))
    assert isinstance(read, MemberAssignment)
    assert read.state is MemberState.UNKNOWN


@pytest.mark.parametrize("kind", [0, 1, 2, 4, 9, 15, 17, -1])
def test_other_kinds_are_nobodys(kind: int) -> None:
    assert decode_consumer_key(kind.to_bytes(2, "big", signed=True) + b"\0\1g") is None


@pytest.mark.parametrize(("key", "key_hex", "value", "value_hex"), CASES)
def test_what_is_cut_off_is_malformed(key: ConsumerKey, key_hex: str, value: Any, value_hex: str) -> None:
    for whole, read in (
        (key_hex, decode_consumer_key),
        (value_hex, lambda data: decode_consumer_value(key.kind, data)),
    ):
        data = bytes.fromhex(whole)
        for end in range(len(data)):
            with pytest.raises(MalformedMessageError):
                read(data[:end])


def test_another_version_is_not_known() -> None:
    with pytest.raises(MalformedMessageError):
        decode_consumer_value(Kind.GROUP_EPOCH, bytes.fromhex("0001 00000007 00"))
