"""No bytes crash the decoder, unknown tags are skipped, and records are never copied."""

import contextlib
import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.schema import Buffer, Message

from .samples import EVERY_MESSAGE, EVERY_VERSION, filled

BIG = bytes(1 << 20)
every_message = pytest.mark.parametrize(
    ("api", "side"), EVERY_MESSAGE, ids=lambda each: each if isinstance(each, str) else each.name
)


@cache
def example(message: type[Message], version: int) -> bytes:
    encoded: bytes = filled(message, version).to_bytes(version)
    return encoded


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(EVERY_VERSION), st.binary(max_size=200))
def test_garbage_is_refused_cleanly(which: tuple[type[Message], int], data: bytes) -> None:
    message, version = which
    with contextlib.suppress(MalformedMessageError):
        message.decode(data, version)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(EVERY_VERSION), st.data())
def test_damaged_messages_are_refused_cleanly_or_read_as_something_else(
    which: tuple[type[Message], int], data: st.DataObject
) -> None:
    message, version = which
    damaged = bytearray(example(message, version))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, max(len(damaged) - 1, 0)))
        damaged[position : position + 1] = data.draw(st.sampled_from((b"", b"\0", b"\x7f", b"\x80", b"\xff", b"ab")))
    with contextlib.suppress(MalformedMessageError):
        message.decode(memoryview(damaged), version)


@every_message
def test_every_truncation_is_refused(api: Any, side: str) -> None:
    message = getattr(api, side)
    for version in (api.versions[0], api.versions[-1]):
        whole = example(message, version)
        chance = random.Random(version)
        ends = {*range(min(len(whole), 60)), *(chance.randrange(len(whole)) for _ in range(60))} if whole else ()
        for end in ends:
            with pytest.raises(MalformedMessageError):
                message.decode(whole[:end], version)


@every_message
def test_bytes_left_over_are_refused(api: Any, side: str) -> None:
    message = getattr(api, side)
    for version in api.versions:
        with pytest.raises(MalformedMessageError, match="1 bytes left over"):
            message.decode(example(message, version) + b"\0", version)


@every_message
def test_bytes_left_over_can_be_let_pass(api: Any, side: str) -> None:
    message = getattr(api, side)
    for version in api.versions:
        whole = example(message, version)
        assert message.decode(whole + b"\0", version, exact=False) == message.decode(whole, version)


@every_message
def test_unknown_tagged_fields_are_skipped(api: Any, side: str) -> None:
    message = getattr(api, side)
    for version in api.versions:
        if version < api.flexible_since:
            continue
        plain = message().to_bytes(version)
        assert plain[-1] == 0, "without tagged fields a flexible body ends in their count"
        tagged = plain[:-1] + b"\x02" + b"\x63\x02ab" + b"\xe8\x07\x00"
        assert message.decode(tagged, version) == message.decode(plain, version)
        for lie in (b"\x01\x63\x03ab", b"\x01\x63", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff"):
            with pytest.raises(MalformedMessageError):
                message.decode(plain[:-1] + lie, version)


@pytest.mark.parametrize("version", ProduceRequest.versions)
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=lambda make: make.__name__)
def test_produced_records_are_views_of_the_request(version: int, make: Any) -> None:
    rows = [PartitionProduceData(index=index, records=bytes([index]) * 100) for index in range(3)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="topic", partition_data=rows)])
    frame = b"header" + request.to_bytes(version)
    received = make(frame)
    decoded = ProduceRequest.decode(received, version, 6)
    owner = received.obj if isinstance(received, memoryview) else received
    for row in decoded.topic_data[0].partition_data:
        assert isinstance(row.records, memoryview)
        assert row.records.obj is owner
        assert bytes(row.records) == bytes([row.index]) * 100


@pytest.mark.parametrize("version", FetchResponse.versions)
def test_fetched_records_pass_through_both_ways(version: int) -> None:
    parts: list[Buffer] = [memoryview(BIG)[:70_000], bytearray(b"tail")]
    rows = [PartitionData(partition_index=0, records=BIG), PartitionData(partition_index=1, records=parts)]
    buffers = FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=rows)]).encode(version)
    assert [buffer for buffer in buffers if buffer is BIG or any(buffer is part for part in parts)] == [BIG, *parts]
    assert sum(len(buffer) for buffer in buffers if buffer is not BIG and buffer not in parts) < 300
    received = bytearray(b"".join(buffers))
    first, second = FetchResponse.decode(received, version).responses[0].partitions
    assert isinstance(first.records, memoryview)
    assert first.records.obj is received
    assert bytes(first.records) == BIG
    assert isinstance(second.records, memoryview)
    assert bytes(second.records) == bytes(70_000) + b"tail"


def test_null_and_empty_records_stay_apart() -> None:
    for version in FetchResponse.versions:
        rows = [PartitionData(records=None), PartitionData(records=b""), PartitionData(records=[])]
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=rows)])
        decoded = FetchResponse.decode(response.to_bytes(version), version).responses[0].partitions
        assert [row.records for row in decoded] == [None, b"", b""]


def test_lying_counts_are_refused_before_anything_is_allocated() -> None:
    for lie in (b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe"):
        with pytest.raises(MalformedMessageError, match="topics: length"):
            MetadataRequest.decode(lie + bytes(8), 8)
    with pytest.raises(MalformedMessageError, match=r"MetadataResponse v12: MetadataResponse.brokers: length"):
        MetadataResponse.decode(bytes(4) + b"\xff\xff\xff\xff\x07" + bytes(50), 12)


def test_text_must_be_utf8_and_null_only_where_allowed() -> None:
    with pytest.raises(MalformedMessageError, match="utf-8"):
        HeartbeatRequest.decode(b"\x00\x01\xff\x00\x00\x00\x07\x00\x01m", 0)
    with pytest.raises(MalformedMessageError, match="group_id"):
        HeartbeatRequest.decode(b"\xff\xff\x00\x00\x00\x07\x00\x01m", 0)
    with pytest.raises(MalformedMessageError, match="topics"):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    assert MetadataRequest.decode(b"\xff\xff\xff\xff", 1).topics is None


def test_versions_that_are_not_declared_are_refused() -> None:
    with pytest.raises(MalformedMessageError, match="v5"):
        HeartbeatRequest().encode(5)
    with pytest.raises(MalformedMessageError, match="v2"):
        ProduceRequest.decode(b"", 2)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest v0"):
        HeartbeatRequest(generation_id=2**31).encode(0)
    with pytest.raises(ValueError, match="HeartbeatRequest v0"):
        HeartbeatRequest(group_id="g" * 40_000).encode(0)


def test_known_bytes() -> None:
    """Pinned bytes: a codec that is wrong in both directions still round-trips."""
    heartbeat = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    assert heartbeat.to_bytes(0) == b"\x00\x01g\x00\x00\x00\x07\x00\x01m"
    assert heartbeat.to_bytes(3) == b"\x00\x01g\x00\x00\x00\x07\x00\x01m\xff\xff"
    assert heartbeat.to_bytes(4) == b"\x02g\x00\x00\x00\x07\x02m\x00\x00"
    versions = ApiVersionsRequest(client_software_name="ab", client_software_version="1")
    assert versions.to_bytes(0) == b""
    assert versions.to_bytes(4) == b"\x03ab\x021\x00"
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert metadata.to_bytes(0) == b"\x00\x00\x00\x01\x00\x01t"
    assert metadata.to_bytes(12) == b"\x02" + bytes(16) + b"\x02t\x00\x01\x00\x00"
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=5,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=[b"ab", b"c"])])],
    )
    assert produce.to_bytes(3) == bytes.fromhex("ffff ffff 00000005 00000001 0001 74 00000001 00000002 00000003 616263")
    assert produce.to_bytes(9) == bytes.fromhex("00 ffff 00000005 02 02 74 02 00000002 04 616263 00 00 00")


def test_known_bytes_of_tagged_fields() -> None:
    hint = LeaderIdAndEpoch(leader_id=1, leader_epoch=9)
    row = PartitionData(error_code=6, high_watermark=-1, aborted_transactions=None, current_leader=hint)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])
    assert response.to_bytes(12) == bytes.fromhex(
        "00000000 0000 00000000"  # throttle time, error, session
        "02 02 74 02"  # one topic, t, one partition
        "00000000 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 00 ffffffff 01"
        "01 01 09 00000001 00000009 00"  # one tagged field: tag 1, nine bytes, the last an empty set of its own
        "00 00"
    )
