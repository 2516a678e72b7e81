"""Talks about the cluster and its topics: who is there, what moves, and what is deleted."""

from collections.abc import Sequence

from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_clients.protocol.describe_cluster import DescribeClusterRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic

from .group_talks import ABSENT, absent_id
from .talks import Fields, Step, Talk

__all__ = ["CLUSTER", "TOPICS"]

WRONG = ErrorCode.INVALID_REQUEST
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT
SOFTWARE: dict[str, object] = {"client_software_name": "x", "client_software_version": "1"}
NAME = ErrorCode.INVALID_TOPIC_EXCEPTION


def _moved(topic: str, *replicas: tuple[int, Sequence[int] | None]) -> Fields:
    rows = [ReassignablePartition(partition_index=index, replicas=them) for index, them in replicas]
    return {"timeout_ms": 10_000, "topics": [ReassignableTopic(name=topic, partitions=rows)]}


def _moving(topic: str, *partitions: int) -> Fields:
    return {
        "timeout_ms": 10_000,
        "topics": [ListPartitionReassignmentsTopics(name=topic, partition_indexes=partitions)],
    }


def _told(name: str | None, topic_id: bytes = bytes(16)) -> Fields:
    return {
        "topics": [MetadataRequestTopic(name=name, topic_id=topic_id)],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }


CLUSTER = (
    Step(DescribeClusterRequest, "its id", lambda _: {}, keep={"cluster": "cluster_id"}),
    Step(MetadataRequest, "a topic", lambda t: _told(t.topic), but=("leader_epoch",)),
    Step(MetadataRequest, "a topic by its id", lambda t: _told(None, t.topic_id), since=12, but=("leader_epoch",)),
    Step(MetadataRequest, "no topic", lambda _: _told(ABSENT), UNKNOWN, since=4),
    Step(MetadataRequest, "no name", lambda _: _told("a b"), NAME),
    Step(MetadataRequest, "none", lambda _: {"topics": []}, since=1),
    Step(ApiVersionsRequest, "a wrong name", lambda _: {"client_software_name": "-"}, WRONG, since=3),
    Step(ApiVersionsRequest, "no name", lambda _: {}, WRONG, since=3),
    Step(
        ApiVersionsRequest,
        "of another cluster",
        lambda _: SOFTWARE | {"cluster_id": "x", "node_id": 1},
        ErrorCode.REBOOTSTRAP_REQUIRED,
        since=5,
    ),
    Step(
        ApiVersionsRequest,
        "of another broker",
        lambda t: SOFTWARE | {"cluster_id": t["cluster"], "node_id": 99},
        ErrorCode.REBOOTSTRAP_REQUIRED,
        since=5,
    ),
    Step(ApiVersionsRequest, "of no cluster", lambda _: SOFTWARE | {"node_id": 1}, WRONG, since=5),
    Step(ApiVersionsRequest, "of no broker", lambda t: SOFTWARE | {"cluster_id": t["cluster"]}, WRONG, since=5),
    Step(
        ApiVersionsRequest,
        "of this one",
        lambda t: SOFTWARE | {"cluster_id": t["cluster"], "node_id": 1},
        since=5,
        but=("api_keys", "supported_features", "finalized_features"),
    ),
    Step(DescribeClusterRequest, "brokers", lambda _: {}),
    Step(DescribeClusterRequest, "what one may do", lambda _: {"include_cluster_authorized_operations": True}),
    Step(DescribeClusterRequest, "fenced ones, too", lambda _: {"include_fenced_brokers": True}, since=2),
    Step(
        DescribeClusterRequest,
        "controllers",
        lambda _: {"endpoint_type": 2},
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        since=1,
    ),
    Step(
        DescribeClusterRequest, "nobody", lambda _: {"endpoint_type": 9}, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, since=1
    ),
    Step(AlterPartitionReassignmentsRequest, "to where it is", lambda t: _moved(t.topic, (0, (1,)))),
    Step(AlterPartitionReassignmentsRequest, "no topic", lambda _: _moved(ABSENT, (0, (1,))), UNKNOWN),
    Step(AlterPartitionReassignmentsRequest, "no partition", lambda t: _moved(t.topic, (9, (1,))), UNKNOWN),
    Step(AlterPartitionReassignmentsRequest, "no broker", lambda t: _moved(t.topic, (0, (9,))), ASSIGNMENT),
    Step(AlterPartitionReassignmentsRequest, "nowhere", lambda t: _moved(t.topic, (0, ())), ASSIGNMENT),
    Step(AlterPartitionReassignmentsRequest, "twice the same", lambda t: _moved(t.topic, (0, (1, 1))), ASSIGNMENT),
    Step(
        AlterPartitionReassignmentsRequest,
        "back",
        lambda t: _moved(t.topic, (0, None)),
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ),
    Step(AlterPartitionReassignmentsRequest, "nothing", lambda _: {"timeout_ms": 10_000}),
    Step(ListPartitionReassignmentsRequest, "all", lambda _: {"timeout_ms": 10_000}),
    Step(ListPartitionReassignmentsRequest, "its own", lambda t: _moving(t.topic, 0, 9)),
    Step(ListPartitionReassignmentsRequest, "no topic", lambda _: _moving(ABSENT, 0)),
)


def _made(t: Talk, what: str) -> Fields:
    return {"topics": [CreatableTopic(name=t.name(what), num_partitions=1, replication_factor=1)], "timeout_ms": 10_000}


def _gone(*names: str, ids: Sequence[bytes] = ()) -> Fields:
    rows = [DeleteTopicState(name=name) for name in names] + [DeleteTopicState(topic_id=one) for one in ids]
    return {"topics": rows, "topic_names": list(names), "timeout_ms": 10_000}


def _both(name: str, topic_id: bytes) -> Fields:
    return {"topics": [DeleteTopicState(name=name, topic_id=topic_id)], "timeout_ms": 10_000}


TOPICS = (
    Step(CreateTopicsRequest, "one", lambda t: _made(t, "one"), but=("configs",)),
    Step(CreateTopicsRequest, "the same", lambda t: _made(t, "one"), ErrorCode.TOPIC_ALREADY_EXISTS),
    Step(CreateTopicsRequest, "other", lambda t: _made(t, "other"), but=("configs",)),
    Step(DeleteTopicsRequest, "nobody", lambda _: _gone(ABSENT), UNKNOWN),
    Step(DeleteTopicsRequest, "no name", lambda _: _gone("a b"), UNKNOWN),
    Step(DeleteTopicsRequest, "an empty name", lambda _: _gone(""), UNKNOWN),
    Step(DeleteTopicsRequest, "none", lambda _: _gone()),
    Step(DeleteTopicsRequest, "one", lambda t: _gone(t.name("one"))),
    Step(DeleteTopicsRequest, "one again", lambda t: _gone(t.name("one")), UNKNOWN),
    Step(DeleteTopicsRequest, "twice the same", lambda t: _gone(t.name("other"), t.name("other")), WRONG),
    Step(DeleteTopicsRequest, "twice by id", lambda t: _gone(ids=[t.topic_id, t.topic_id]), WRONG, since=6),
    Step(DeleteTopicsRequest, "by name, and by id", lambda t: _gone(t.topic, ids=[t.topic_id]), WRONG, since=6),
    Step(DeleteTopicsRequest, "by no id", lambda _: _gone(ids=[absent_id()]), ErrorCode.UNKNOWN_TOPIC_ID, since=6),
    Step(DeleteTopicsRequest, "by name and id", lambda t: _both(t.topic, t.topic_id), WRONG, since=6),
    Step(DeleteTopicsRequest, "by neither", lambda _: {"topics": [DeleteTopicState()]}, WRONG, since=6),
    Step(DeleteTopicsRequest, "the other", lambda t: _gone(t.name("other"))),
)
