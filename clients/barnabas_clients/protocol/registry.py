"""Lists all declared APIs, and frames their requests and responses. Pure.

A frame is `u32 size | header | body`. The header's layout depends on the API and the version, with two exceptions that
break every client if they are missed. A response to ApiVersions always has header version 0, whatever its body is,
because its reader does not know the broker yet (KIP-511). And the client id of a flexible request header is an ordinary
nullable string, not a compact one, so that any broker can read it.

    request header 1    api_key i16, api_version i16, correlation_id i32, client_id nullable string
    request header 2    the same, then tagged fields (flexible versions)
    response header 0   correlation_id i32
    response header 1   the same, then tagged fields (flexible versions)

The ranges in `APIS` are the versions of the codec, not those of a broker: it offers a version when that is complete.
"""

import struct
from collections.abc import Generator
from typing import Final, NamedTuple

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.primitives import read_uvarint, skip_tags
from barnabas_raftlog.wire.schema import Buffer, Message

from .alter_configs import AlterConfigsRequest, AlterConfigsResponse
from .alter_partition_reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from .api_versions import ApiVersionsRequest, ApiVersionsResponse
from .create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from .create_snapshot import CreateSnapshotRequest, CreateSnapshotResponse
from .create_topics import CreateTopicsRequest, CreateTopicsResponse
from .delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from .delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from .delete_snapshot import DeleteSnapshotRequest, DeleteSnapshotResponse
from .delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from .describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from .describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from .describe_events import DescribeEventsRequest, DescribeEventsResponse
from .describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from .describe_health import DescribeHealthRequest, DescribeHealthResponse
from .describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from .describe_snapshots import DescribeSnapshotsRequest, DescribeSnapshotsResponse
from .error_codes import ErrorCode
from .fetch import FetchRequest, FetchResponse
from .find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from .heartbeat import HeartbeatRequest, HeartbeatResponse
from .incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from .init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from .join_group import JoinGroupRequest, JoinGroupResponse
from .leave_group import LeaveGroupRequest, LeaveGroupResponse
from .list_groups import ListGroupsRequest, ListGroupsResponse
from .list_offsets import ListOffsetsRequest, ListOffsetsResponse
from .list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from .metadata import MetadataRequest, MetadataResponse
from .offset_commit import OffsetCommitRequest, OffsetCommitResponse
from .offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from .offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from .offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from .open_challenge import OpenChallengeRequest, OpenChallengeResponse
from .produce import ProduceRequest, ProduceResponse
from .sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = [
    "APIS",
    "Api",
    "Message",
    "RequestHeader",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_response_in_steps",
    "read_request_header",
]

_REQUEST_HEADER: Final = struct.Struct(">hhih")
_REQUEST_FRAME: Final = struct.Struct(">ihhih")
_RESPONSE_FRAME: Final = struct.Struct(">ii")
_RESPONSE_FRAME_FLEXIBLE: Final = struct.Struct(">iix")  # the x is an empty set of tagged fields
_CORRELATION_ID: Final = struct.Struct(">i")
_CLIENT_ID_START: Final = 10


class Api(NamedTuple):
    """One API: its key and name, and the declarations of both directions."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> range:
        """The versions that are declared."""
        return self.request.versions

    @property
    def flexible_since(self) -> int:
        return self.request.flexible_since

    def response_header_version(self, version: int) -> int:
        return 1 if version >= self.flexible_since and self.key != ApiVersionsRequest.api_key else 0


def _api(request: type[Message], response: type[Message]) -> Api:
    assert request.api_key == response.api_key
    assert request.versions == response.versions
    assert request.flexible_since == response.flexible_since
    return Api(request.api_key, request.__name__.removesuffix("Request"), request, response)


APIS: Final = {
    api.key: api
    for api in (
        _api(ProduceRequest, ProduceResponse),
        _api(FetchRequest, FetchResponse),
        _api(ListOffsetsRequest, ListOffsetsResponse),
        _api(MetadataRequest, MetadataResponse),
        _api(OffsetCommitRequest, OffsetCommitResponse),
        _api(OffsetFetchRequest, OffsetFetchResponse),
        _api(FindCoordinatorRequest, FindCoordinatorResponse),
        _api(JoinGroupRequest, JoinGroupResponse),
        _api(HeartbeatRequest, HeartbeatResponse),
        _api(LeaveGroupRequest, LeaveGroupResponse),
        _api(SyncGroupRequest, SyncGroupResponse),
        _api(DescribeGroupsRequest, DescribeGroupsResponse),
        _api(ListGroupsRequest, ListGroupsResponse),
        _api(ApiVersionsRequest, ApiVersionsResponse),
        _api(CreateTopicsRequest, CreateTopicsResponse),
        _api(DeleteTopicsRequest, DeleteTopicsResponse),
        _api(DeleteRecordsRequest, DeleteRecordsResponse),
        _api(InitProducerIdRequest, InitProducerIdResponse),
        _api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
        _api(DescribeConfigsRequest, DescribeConfigsResponse),
        _api(AlterConfigsRequest, AlterConfigsResponse),
        _api(DescribeLogDirsRequest, DescribeLogDirsResponse),
        _api(CreatePartitionsRequest, CreatePartitionsResponse),
        _api(DeleteGroupsRequest, DeleteGroupsResponse),
        _api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
        _api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        _api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        _api(OffsetDeleteRequest, OffsetDeleteResponse),
        _api(DescribeClusterRequest, DescribeClusterResponse),
        _api(DescribeHealthRequest, DescribeHealthResponse),
        _api(OpenChallengeRequest, OpenChallengeResponse),
        _api(DescribeEventsRequest, DescribeEventsResponse),
        _api(CreateSnapshotRequest, CreateSnapshotResponse),
        _api(DescribeSnapshotsRequest, DescribeSnapshotsResponse),
        _api(DeleteSnapshotRequest, DeleteSnapshotResponse),
    )
}


class RequestHeader(NamedTuple):
    """The header of a request. `body_position` counts from the start of the header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request frame, which starts after the frame's size.

    If the API or its version is not declared, only the fields that all versions share are read, so that the broker can
    answer UNSUPPORTED_VERSION. Then there is no body at `body_position`.

    Raises:
        MalformedMessageError: the frame ends in the header, or the client id is not text.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = _CLIENT_ID_START + max(length, 0)
        if length < -1 or position > len(frame):
            raise MalformedMessageError(f"client id: length {length} in a frame of {len(frame)} bytes")
        client_id = str(frame[_CLIENT_ID_START:position], "utf-8") if length >= 0 else None
        api = APIS.get(api_key)
        if api is not None and api_version >= api.flexible_since and api_version in api.versions:
            if frame[position]:
                tags, position = read_uvarint(frame, position)
                position = skip_tags(frame, position, tags, len(frame))
            else:
                position += 1
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"request header: {error}") from error
    # Not by keywords: a named tuple takes 0.2 µs more then, and a broker makes one for every request.
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """Return a whole request frame as buffers, its size first. Record buffers are passed through.

    Raises:
        ValueError: a value does not fit its field.
    """
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    tags = b"\0" if version >= request.flexible_since else b""
    buffers = request.encode(version)
    size = _CLIENT_ID_START + len(client) + len(tags) + sum(map(len, buffers))
    head = _REQUEST_FRAME.pack(size, request.api_key, version, correlation_id, length) + client + tags
    return _joined(head, buffers)


def encode_response(api_key: int, version: int, correlation_id: int, response: Message) -> list[Buffer]:
    """Return a whole response frame as buffers, its size first. Record buffers are passed through.

    Raises:
        ValueError: a value does not fit its field.
    """
    return response_frame(api_key, version, correlation_id, type(response), response.encode(version))


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, response: Message
) -> Generator[None, None, list[Buffer]]:
    """Encode as `encode_response`, in pieces of a millisecond or two: yields in between, and returns the buffers."""
    buffers = yield from response.encode_in_steps(version)
    return response_frame(api_key, version, correlation_id, type(response), buffers)


def response_frame(
    api_key: int, version: int, correlation_id: int, response: type[Message], buffers: list[Buffer]
) -> list[Buffer]:
    """Return a whole response frame around a body that is encoded already."""
    assert api_key == response.api_key, f"{response.__name__} in answer to {api_key}"
    size = sum(map(len, buffers))
    if version >= response.flexible_since and api_key != ApiVersionsResponse.api_key:
        return _joined(_RESPONSE_FRAME_FLEXIBLE.pack(size + 5, correlation_id), buffers)
    return _joined(_RESPONSE_FRAME.pack(size + 4, correlation_id), buffers)


def decode_response(request_type: type[Message], frame: Buffer, version: int) -> Message:
    """Decode a response frame, without its size, to a request of `request_type` in `version`.

    The caller compares the correlation id. If a broker does not know the version of an ApiVersions request, its answer
    has a version 0 body, and is decoded so.

    Raises:
        MalformedMessageError: the bytes are not exactly one such response.
    """
    api = APIS[request_type.api_key]
    position = _CORRELATION_ID.size
    if api.response_header_version(version):
        try:
            tags, position = read_uvarint(frame, position)
            if tags:
                position = skip_tags(frame, position, tags, len(frame))
        except IndexError as error:
            raise MalformedMessageError(f"response header: {error}") from error
    elif api.key == ApiVersionsRequest.api_key:
        error_code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version
    return api.response.decode(frame, version, position)


def _joined(head: bytes, buffers: list[Buffer]) -> list[Buffer]:
    """Put `head` in front. A body in one piece is joined to it, so that one write needs no vector."""
    if len(buffers) == 1:
        return [b"".join((head, buffers[0]))]
    return [head, *buffers]
