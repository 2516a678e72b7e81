"""Headers and frames have the right layouts, and all APIs agree with others' tables."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer

from barnabas_clients.protocol import registry
from barnabas_clients.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas_clients.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_clients.protocol.registry import APIS, Api, read_request_header
from barnabas_raftlog.errors import MalformedMessageError

from .kio_oracle import kio_class, known_to_kio
from .samples import OURS_SINCE, filled

# The answer of a Kafka 4.4 broker to ApiVersions, for the APIs that we declare. It offers Produce from 0, for
# librdkafka, and refuses 0 to 2. It offers 71 and 72 only if a plugin takes the metrics.
KAFKA_4_4 = {
    0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 18: (0, 5), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5),
    23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 6), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 37: (0, 3), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3),
    42: (0, 3), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2),
    61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1), 69: (0, 1), 71: (0, 0), 72: (0, 0),
    74: (0, 1), 75: (0, 0), 80: (0, 1), 81: (0, 0),
}  # fmt: skip
# Kafka's schema has these versions too, and calls them unstable: a broker offers them only if it is told to.
UNSTABLE = {22: 6}
every_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
every_api_of_kafka = pytest.mark.parametrize("api", [APIS[key] for key in KAFKA_4_4], ids=lambda api: api.name)


def test_our_own_apis_are_far_from_those_of_kafka() -> None:
    assert sorted(APIS.keys() - KAFKA_4_4.keys()) == [25185, 25186, 25187, 25188, 25190, 25191, 25192]
    assert OURS_SINCE == 25185


@every_api_of_kafka
def test_versions_are_those_that_kafka_4_4_offers(api: Api) -> None:
    first, last = KAFKA_4_4[api.key]
    assert (api.versions[0], api.versions[-1]) == (first, UNSTABLE.get(api.key, last))


@every_api_of_kafka
def test_header_versions_are_those_of_kio(api: Api) -> None:
    for version in known_to_kio(api):
        for side, ours in (
            ("Request", 2 if version >= api.flexible_since else 1),
            ("Response", api.response_header_version(version)),
        ):
            theirs = kio_class(api.name + side, version).__header_schema__
            assert f".v{ours}." in theirs.__module__, f"{api.name}{side} v{version}"


@pytest.mark.parametrize("client_id", [None, "", "client", "ü" * 200])
def test_request_headers_are_those_of_kio(client_id: str | None) -> None:
    for version, header in ((3, KioHeader1), (4, KioHeader2)):
        theirs = io.BytesIO()
        values: Any = {
            "request_api_key": 12,
            "request_api_version": version,
            "correlation_id": -7,
            "client_id": client_id,
        }
        entity_writer(header)(theirs, header(**values))
        request = HeartbeatRequest(group_id="g")
        frame = b"".join(registry.encode_request(request, version, -7, client_id))
        assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
        assert frame[4:] == theirs.getvalue() + request.to_bytes(version)
        assert read_request_header(memoryview(frame)[4:]) == (12, version, -7, client_id, len(theirs.getvalue()))


@every_api
def test_request_frames_are_read_back(api: Api) -> None:
    for version in api.versions:
        body = filled(api.request, version)
        frame = b"".join(registry.encode_request(body, version, 5, "me"))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header = read_request_header(memoryview(frame)[4:])
        assert header[:4] == (api.key, version, 5, "me")
        assert api.request.decode(memoryview(frame)[4:], version, header.body_position) == body


@every_api
def test_response_frames_are_read_back(api: Api) -> None:
    for version in api.versions:
        body = filled(api.response, version)
        frame = b"".join(registry.encode_response(api.key, version, 5, body))
        assert frame[:8] == (len(frame) - 4).to_bytes(4, "big") + b"\0\0\0\x05"
        assert registry.decode_response(api.request, memoryview(frame)[4:], version) == body


def test_a_body_in_one_piece_is_written_as_one_buffer() -> None:
    frame = registry.encode_response(12, 4, 5, HeartbeatResponse(error_code=27))
    assert frame == [bytes.fromhex("0000000c 00000005 00 00000000 001b 00")]


def test_records_stand_in_the_frame_as_they_were_given() -> None:
    records = bytes(1 << 20)
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])
    frame = registry.encode_response(FetchRequest.api_key, 12, 5, FetchResponse(responses=[topic]))
    assert sum(buffer is records for buffer in frame) == 1
    assert int.from_bytes(frame[0][:4], "big") == sum(map(len, frame)) - 4


def test_the_answer_to_api_versions_never_has_tags_in_its_header() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    frame = b"".join(registry.encode_response(18, 4, 9, response))
    assert frame == bytes.fromhex("00000013 00000009 0000 02 0012 0000 0004 00 00000000 00")


def test_a_refusal_of_api_versions_is_read_as_version_0() -> None:
    offered = [ApiVersion(api_key=18, min_version=0, max_version=2)]
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=offered)
    frame = b"".join(registry.encode_response(18, 0, 9, refusal))[4:]
    assert registry.decode_response(ApiVersionsRequest, frame, 4) == refusal


def test_the_header_of_an_unknown_version_can_still_be_answered() -> None:
    future = bytes.fromhex("0012 0063 00000007 0002 6d65") + b"\xff\xff"
    assert read_request_header(future)[:4] == (18, 0x63, 7, "me")
    unknown = bytes.fromhex("7fff 0000 00000007 ffff")
    assert read_request_header(unknown) == (0x7FFF, 0, 7, None, 10)


def test_tagged_fields_of_headers_are_skipped() -> None:
    frame = bytes.fromhex("000c 0004 00000007 ffff 01 63 02 6162") + HeartbeatRequest().to_bytes(4)
    assert read_request_header(frame).body_position == 15
    answer = bytes.fromhex("00000007 01 63 02 6162") + HeartbeatResponse(error_code=25).to_bytes(4)
    assert registry.decode_response(HeartbeatRequest, answer, 4) == HeartbeatResponse(error_code=25)


@given(st.binary(max_size=40))
def test_garbage_headers_are_refused_cleanly(data: bytes) -> None:
    for frame in (data, b"\x00\x0c\x00\x04" + data):
        try:
            header = read_request_header(frame)
        except MalformedMessageError:
            continue
        assert 10 <= header.body_position <= len(frame)
    for version in HeartbeatRequest.versions:
        try:
            registry.decode_response(HeartbeatRequest, data, version)
        except MalformedMessageError:
            continue


@pytest.mark.parametrize(
    "frame", ["", "0003", "0003 0001 00000001 0005 6162", "0003 0001 00000001 fffe", "000c0004 00000001 0001 ff"]
)
def test_truncated_headers_are_refused(frame: str) -> None:
    with pytest.raises(MalformedMessageError):
        read_request_header(bytes.fromhex(frame))
