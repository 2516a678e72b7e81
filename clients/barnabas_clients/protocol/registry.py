"""Lists all declared APIs, and reads the headers of their requests. Pure.

frames.py makes and reads the rest of the frames, without loading every declaration as this module does: a broker needs
all of them, a client some.

The ranges in `APIS` are the versions of the codec, not those of a broker: it offers a version when that is complete.
"""

import struct
from typing import Final, NamedTuple

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.primitives import read_uvarint, skip_tags
from barnabas_raftlog.wire.schema import Buffer, Message

from .add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from .add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from .add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from .alter_configs import AlterConfigsRequest, AlterConfigsResponse
from .alter_partition_reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from .alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from .api_versions import ApiVersionsRequest, ApiVersionsResponse
from .consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from .consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from .create_acls import CreateAclsRequest, CreateAclsResponse
from .create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from .create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from .create_snapshot import CreateSnapshotRequest, CreateSnapshotResponse
from .create_topics import CreateTopicsRequest, CreateTopicsResponse
from .delete_acls import DeleteAclsRequest, DeleteAclsResponse
from .delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from .delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from .delete_snapshot import DeleteSnapshotRequest, DeleteSnapshotResponse
from .delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from .describe_acls import DescribeAclsRequest, DescribeAclsResponse
from .describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from .describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from .describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from .describe_events import DescribeEventsRequest, DescribeEventsResponse
from .describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from .describe_health import DescribeHealthRequest, DescribeHealthResponse
from .describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from .describe_offset_ranges import DescribeOffsetRangesRequest, DescribeOffsetRangesResponse
from .describe_producers import DescribeProducersRequest, DescribeProducersResponse
from .describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from .describe_snapshots import DescribeSnapshotsRequest, DescribeSnapshotsResponse
from .describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from .describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from .elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from .end_txn import EndTxnRequest, EndTxnResponse
from .expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from .fetch import FetchRequest, FetchResponse
from .find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from .frames import (
    CLIENT_ID_START,
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_steps,
    response_frame,
    response_to,
)
from .get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from .heartbeat import HeartbeatRequest, HeartbeatResponse
from .incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from .init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from .join_group import JoinGroupRequest, JoinGroupResponse
from .leave_group import LeaveGroupRequest, LeaveGroupResponse
from .list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from .list_groups import ListGroupsRequest, ListGroupsResponse
from .list_offsets import ListOffsetsRequest, ListOffsetsResponse
from .list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from .list_transactions import ListTransactionsRequest, ListTransactionsResponse
from .metadata import MetadataRequest, MetadataResponse
from .offset_commit import OffsetCommitRequest, OffsetCommitResponse
from .offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from .offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from .offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from .open_challenge import OpenChallengeRequest, OpenChallengeResponse
from .produce import ProduceRequest, ProduceResponse
from .push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from .remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from .renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from .sync_group import SyncGroupRequest, SyncGroupResponse
from .txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from .unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from .update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from .write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

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
    "response_frame",
]

_REQUEST_HEADER: Final = struct.Struct(">hhih")


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
    assert response is response_to(request)
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
        _api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
        _api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
        _api(EndTxnRequest, EndTxnResponse),
        _api(WriteTxnMarkersRequest, WriteTxnMarkersResponse),
        _api(TxnOffsetCommitRequest, TxnOffsetCommitResponse),
        _api(DescribeAclsRequest, DescribeAclsResponse),
        _api(CreateAclsRequest, CreateAclsResponse),
        _api(DeleteAclsRequest, DeleteAclsResponse),
        _api(DescribeConfigsRequest, DescribeConfigsResponse),
        _api(AlterConfigsRequest, AlterConfigsResponse),
        _api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
        _api(DescribeLogDirsRequest, DescribeLogDirsResponse),
        _api(CreatePartitionsRequest, CreatePartitionsResponse),
        _api(CreateDelegationTokenRequest, CreateDelegationTokenResponse),
        _api(RenewDelegationTokenRequest, RenewDelegationTokenResponse),
        _api(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse),
        _api(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse),
        _api(DeleteGroupsRequest, DeleteGroupsResponse),
        _api(ElectLeadersRequest, ElectLeadersResponse),
        _api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
        _api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        _api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        _api(OffsetDeleteRequest, OffsetDeleteResponse),
        _api(DescribeQuorumRequest, DescribeQuorumResponse),
        _api(UpdateFeaturesRequest, UpdateFeaturesResponse),
        _api(DescribeClusterRequest, DescribeClusterResponse),
        _api(DescribeProducersRequest, DescribeProducersResponse),
        _api(UnregisterBrokerRequest, UnregisterBrokerResponse),
        _api(DescribeTransactionsRequest, DescribeTransactionsResponse),
        _api(ListTransactionsRequest, ListTransactionsResponse),
        _api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
        _api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
        _api(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse),
        _api(PushTelemetryRequest, PushTelemetryResponse),
        _api(ListConfigResourcesRequest, ListConfigResourcesResponse),
        _api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
        _api(AddRaftVoterRequest, AddRaftVoterResponse),
        _api(RemoveRaftVoterRequest, RemoveRaftVoterResponse),
        _api(DescribeHealthRequest, DescribeHealthResponse),
        _api(OpenChallengeRequest, OpenChallengeResponse),
        _api(DescribeEventsRequest, DescribeEventsResponse),
        _api(DescribeOffsetRangesRequest, DescribeOffsetRangesResponse),
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
        position = CLIENT_ID_START + max(length, 0)
        if length < -1 or position > len(frame):
            raise MalformedMessageError(f"client id: length {length} in a frame of {len(frame)} bytes")
        client_id = str(frame[CLIENT_ID_START:position], "utf-8") if length >= 0 else None
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
