"""Records of the offsets topic are as Apache Kafka 4.3 wrote them."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinators.groups.state_machine.messages import SavedGroup, SavedMember
from barnabas_broker.coordinators.groups.state_machine.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas_raftlog.errors import MalformedMessageError

TOPIC_ID = bytes.fromhex("d4fd8795c0824f40a17e3bb27925960d")
OFFSET_KEY = b"\0\1\0\x0downb-5b097a-g\0\x0bownb-5b097a\0\0\0\0"
OFFSET_VALUE = (
    b"\0\4\0\0\0\0\0\0\0\5\xff\xff\xff\xff\1\0\0\1\xa1\xff\n\6\2\1\0\x10\xd4\xfd\x87\x95\xc0\x82O@\xa1~;\xb2y%\x96\r"
)
MEMBER_ID = "barnabas-42e9f95b-a18d-4bb0-9cd5-44b8ef043bfe"
SUBSCRIPTION = b"\0\3\0\0\0\1\0\nd-58ce5605\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff"
ASSIGNMENT = b"\0\3\0\0\0\1\0\nd-58ce5605\0\0\0\6" + struct.pack(">6i", *range(6)) + b"\xff\xff\xff\xff"
GROUP_VALUE = (
    b"\0\3\0\x08consumer\0\0\0\1\0\5range\0-" + MEMBER_ID.encode() + b"\0\0\1\xa1\xff\x1aT\x14\0\0\0\1"
    b"\0-" + MEMBER_ID.encode() + b"\xff\xff\0\x08barnabas\0\n/127.0.0.1\0\4\x93\xe0\0\0\x17p"
    b"\0\0\0 " + SUBSCRIPTION + b"\0\0\0\x32" + ASSIGNMENT
)
MEMBER = SavedMember(
    member_id=MEMBER_ID,
    group_instance_id=None,
    client_id="barnabas",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=6_000,
    subscription=SUBSCRIPTION,
    assignment=ASSIGNMENT,
)
GROUP = SavedGroup(
    protocol_type="consumer",
    generation_id=1,
    protocol_name="range",
    leader=MEMBER_ID,
    current_state_timestamp_ms=0x1A1FF1A5414,
    members=(MEMBER,),
)

names = st.text(max_size=30)
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
times = st.integers(-1, 2**62)
members = st.builds(
    SavedMember, names, st.none() | names, names, names, st.integers(0, 2**31 - 1), int32, st.binary(), st.binary()
)
groups = st.builds(
    SavedGroup, names, int32, st.none() | names, st.none() | names, int64, st.lists(members, max_size=4).map(tuple)
)


class TestKafkasBytes:
    def test_an_offset_is_written_as_kafka_writes_it(self) -> None:
        key = OffsetKey("ownb-5b097a-g", "ownb-5b097a", 0)
        value = decode_offset(OFFSET_VALUE)
        assert encode_offset_key(key) == OFFSET_KEY
        assert decode_key(OFFSET_KEY) == key
        assert (value.offset, value.leader_epoch, value.metadata, value.topic_id) == (5, -1, "", TOPIC_ID)
        assert encode_offset(value) == OFFSET_VALUE

    def test_a_group_is_written_as_kafka_writes_it(self) -> None:
        assert decode_group(GROUP_VALUE) == GROUP
        assert encode_group(GROUP) == GROUP_VALUE

    def test_an_empty_group_has_neither_protocol_nor_leader(self) -> None:
        data = b"\0\3\0\0\0\0\0\0\xff\xff\xff\xff\0\0\1\xa1\xff\x0c\xbc\x8b\0\0\0\0"
        assert encode_group(decode_group(data)) == data
        assert decode_group(data) == SavedGroup(
            protocol_type="",
            generation_id=0,
            protocol_name=None,
            leader=None,
            current_state_timestamp_ms=0x1A1FF0CBC8B,
            members=(),
        )

    def test_a_client_that_sets_an_expiry_time_gets_version_1(self) -> None:
        value = CommittedOffset(
            offset=7,
            leader_epoch=3,
            metadata="note",
            commit_timestamp_ms=1_000,
            expire_timestamp_ms=2_000,
            topic_id=TOPIC_ID,
        )
        data = encode_offset(value)
        assert data == b"\0\1" + struct.pack(">qh4sqq", 7, 4, b"note", 1_000, 2_000)
        assert decode_offset(data) == CommittedOffset(
            offset=7,
            leader_epoch=-1,
            metadata="note",
            commit_timestamp_ms=1_000,
            expire_timestamp_ms=2_000,
        )

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"\0\0" + struct.pack(">qh1sq", 7, 1, b"n", 9), CommittedOffset(7, -1, "n", 9)),
            (b"\0\2" + struct.pack(">qh1sq", 7, 1, b"n", 9), CommittedOffset(7, -1, "n", 9)),
            (b"\0\3" + struct.pack(">qih1sq", 7, 4, 1, b"n", 9), CommittedOffset(7, 4, "n", 9)),
        ],
    )
    def test_offsets_of_older_versions_are_read(self, data: bytes, expected: CommittedOffset) -> None:
        assert decode_offset(data) == expected

    def test_groups_of_older_and_newer_versions_are_read(self) -> None:
        oldest = b"\0\0\0\1c\0\0\0\2\0\1r\0\1m\0\0\0\1\0\1m\0\1i\0\1h\0\0\0\7\0\0\0\1s\0\0\0\1a"
        member = SavedMember(
            member_id="m",
            group_instance_id=None,
            client_id="i",
            client_host="h",
            rebalance_timeout_ms=7,
            session_timeout_ms=7,
            subscription=b"s",
            assignment=b"a",
        )
        assert decode_group(oldest) == SavedGroup(
            protocol_type="c",
            generation_id=2,
            protocol_name="r",
            leader="m",
            current_state_timestamp_ms=-1,
            members=(member,),
        )
        flexible = b"\0\4\2c\0\0\0\2\2r\2m" + bytes(8) + b"\2\2m\0\2i\2h\0\0\0\x09\0\0\0\7\2s\2a\0\0"
        assert decode_group(flexible) == SavedGroup(
            protocol_type="c",
            generation_id=2,
            protocol_name="r",
            leader="m",
            current_state_timestamp_ms=0,
            members=(member._replace(rebalance_timeout_ms=9),),
        )

    def test_a_key_of_another_kind_is_nobodys(self) -> None:
        assert decode_key(b"\0\3\0\1g") is None


@settings(max_examples=60, deadline=None)
@given(names, names, int32)
def test_keys_come_back(group_id: str, topic: str, partition: int) -> None:
    key = OffsetKey(group_id, topic, partition)
    assert decode_key(encode_offset_key(key)) == key
    assert decode_key(encode_group_key(group_id)) == GroupKey(group_id)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        CommittedOffset, int64, int32, st.text(max_size=300), int64, st.just(-1), st.binary(min_size=16, max_size=16)
    )
)
def test_offsets_come_back(value: CommittedOffset) -> None:
    assert decode_offset(encode_offset(value)) == value


@settings(max_examples=60, deadline=None)
@given(groups)
def test_groups_come_back(group: SavedGroup) -> None:
    assert decode_group(encode_group(group)) == group


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([OFFSET_VALUE, GROUP_VALUE, OFFSET_KEY]), st.data())
def test_spoilt_bytes_are_refused_and_nothing_else_is_raised(data: bytes, chance: st.DataObject) -> None:
    spoilt = bytearray(data[: chance.draw(st.integers(0, len(data)))])
    if spoilt:
        spoilt[chance.draw(st.integers(0, len(spoilt) - 1))] = chance.draw(st.integers(0, 255))
    for decode in (decode_key, decode_offset, decode_group):
        try:
            decode(bytes(spoilt))
        except MalformedMessageError:
            continue


def test_a_version_of_the_future_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="version 5"):
        decode_offset(b"\0\5" + bytes(40))


def test_a_name_that_no_field_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_group_key("x" * 32_768)
