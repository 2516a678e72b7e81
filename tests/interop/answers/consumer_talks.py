"""Talks about groups of KIP-848, in which the coordinator assigns."""

from typing import Any

from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.list_groups import ListGroupsRequest
from barnabas_clients.protocol.offset_commit import OffsetCommitRequest
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest

from .group_talks import ABSENT, commit_fields, fetch_fields, subscription
from .talks import Fields, Step, Talk

__all__ = ["CONSUMERS", "joining"]

WRONG = ErrorCode.INVALID_REQUEST
NO_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_MEMBER_EPOCH
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
REBALANCE_MS = 30_000


def _group(t: Talk) -> str:
    return t.name("consumers")


def joining(t: Talk, **more: Any) -> Fields:
    return {
        "group_id": _group(t),
        "member_id": MEMBER,
        "member_epoch": 0,
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": [t.topic],
        "topic_partitions": [],
    } | more


def _beats(t: Talk, **more: Any) -> Fields:
    return {"group_id": _group(t), "member_id": t["member"], "member_epoch": t["epoch"]} | more


def _owned(t: Talk, *partitions: int) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    return [ConsumerGroupHeartbeatTopicPartitions(topic_id=t.topic_id, partitions=partitions)]


def _committed(t: Talk, epoch: int = 0, **more: Any) -> Fields:
    mine = {"generation_id_or_member_epoch": t["epoch"] + epoch, "member_id": t["member"]}
    return commit_fields(_group(t), t) | mine | more


def _deleted(t: Talk) -> Fields:
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    return {"group_id": _group(t), "topics": [OffsetDeleteRequestTopic(name=t.topic, partitions=rows)]}


def _classic(t: Talk) -> Fields:
    protocols = [JoinGroupRequestProtocol(name="other", metadata=subscription(t.topic))]
    return {
        "group_id": _group(t),
        "session_timeout_ms": REBALANCE_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "connect",
        "protocols": protocols,
    }


KEEP = {"member": "member_id", "epoch": "member_epoch"}
BEAT = ConsumerGroupHeartbeatRequest
CONSUMERS = (
    Step(BEAT, "no group", lambda t: joining(t, group_id=""), WRONG),
    Step(BEAT, "a blank group", lambda t: joining(t, group_id=" "), WRONG),
    Step(BEAT, "no member", lambda t: joining(t, member_id=""), WRONG, since=1),
    Step(BEAT, "an empty instance", lambda t: joining(t, instance_id=""), WRONG),
    Step(BEAT, "an empty rack", lambda t: joining(t, rack_id=""), WRONG),
    Step(BEAT, "no timeout", lambda t: joining(t, rebalance_timeout_ms=-1), WRONG),
    Step(BEAT, "partitions already", lambda t: joining(t, topic_partitions=_owned(t, 0)), WRONG),
    Step(BEAT, "null partitions", lambda t: joining(t, topic_partitions=None), WRONG),
    Step(BEAT, "no subscription", lambda t: joining(t, subscribed_topic_names=None), WRONG),
    Step(BEAT, "an epoch below", lambda t: joining(t, member_epoch=-3), WRONG),
    Step(BEAT, "leaves for a while, and is nobody", lambda t: joining(t, member_epoch=-2), WRONG),
    Step(BEAT, "no such assignor", lambda t: joining(t, server_assignor="x"), ErrorCode.UNSUPPORTED_ASSIGNOR),
    Step(
        BEAT,
        "no expression",
        lambda t: joining(t, subscribed_topic_regex="("),
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        since=1,
    ),
    Step(
        BEAT, "no group to leave", lambda t: joining(t, group_id=ABSENT, member_epoch=-1), ErrorCode.GROUP_ID_NOT_FOUND
    ),
    Step(
        BEAT,
        "no group to go on in",
        lambda t: joining(t, group_id=ABSENT, member_epoch=4),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Step(BEAT, "in", joining, keep=KEEP),
    Step(BEAT, "it beats", _beats),
    Step(BEAT, "it has it", lambda t: _beats(t, topic_partitions=_owned(t, 0))),
    Step(
        BEAT,
        "a full one",
        lambda t: joining(t, member_id=t["member"], member_epoch=t["epoch"], topic_partitions=_owned(t, 0)),
    ),
    Step(BEAT, "an epoch to come", lambda t: _beats(t, member_epoch=t["epoch"] + 5), FENCED),
    Step(BEAT, "a stranger", lambda t: _beats(t, member_id="x"), NO_MEMBER),
    Step(BEAT, "a stranger leaves", lambda t: _beats(t, member_id="x", member_epoch=-1), NO_MEMBER),
    Step(ConsumerGroupDescribeRequest, "its own", lambda t: {"group_ids": [_group(t)]}),
    Step(
        ConsumerGroupDescribeRequest,
        "what one may do",
        lambda t: {"group_ids": [_group(t)], "include_authorized_operations": True},
    ),
    Step(ConsumerGroupDescribeRequest, "nobody", lambda _: {"group_ids": [ABSENT]}, ErrorCode.GROUP_ID_NOT_FOUND),
    Step(ConsumerGroupDescribeRequest, "no group", lambda _: {"group_ids": [""]}, ErrorCode.INVALID_GROUP_ID),
    Step(
        DescribeGroupsRequest,
        "as a classic one",
        lambda t: {"groups": [_group(t)]},
        since=6,
        code=ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Step(DescribeGroupsRequest, "as a classic one", lambda t: {"groups": [_group(t)]}, until=5),
    Step(ListGroupsRequest, "consumer groups", lambda _: {"types_filter": ["consumer"]}, since=5),
    Step(
        HeartbeatRequest, "as in a classic one", lambda t: {"group_id": _group(t), "member_id": t["member"]}, NO_MEMBER
    ),
    Step(JoinGroupRequest, "of another type", _classic, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    Step(DeleteGroupsRequest, "with members", lambda t: {"groups_names": [_group(t)]}, ErrorCode.NON_EMPTY_GROUP),
    Step(OffsetDeleteRequest, "of what it reads", _deleted, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
    Step(OffsetCommitRequest, "in versions before 9", _committed, ErrorCode.UNSUPPORTED_VERSION, until=8),
    Step(OffsetCommitRequest, "its own", _committed, since=9),
    Step(OffsetCommitRequest, "in an epoch to come", lambda t: _committed(t, 5), ErrorCode.STALE_MEMBER_EPOCH, since=9),
    Step(OffsetCommitRequest, "a stranger's", lambda t: _committed(t, member_id="x"), NO_MEMBER, since=9),
    Step(OffsetCommitRequest, "from outside", lambda t: commit_fields(_group(t), t), NO_MEMBER, since=9),
    Step(
        OffsetFetchRequest,
        "for a member",
        lambda t: fetch_fields(_group(t), t, 0, member=(t["member"], t["epoch"])),
        since=9,
    ),
    Step(
        OffsetFetchRequest,
        "in another epoch",
        lambda t: fetch_fields(_group(t), t, 0, member=(t["member"], t["epoch"] + 1)),
        ErrorCode.STALE_MEMBER_EPOCH,
        since=9,
    ),
    Step(
        OffsetFetchRequest,
        "for a stranger",
        lambda t: fetch_fields(_group(t), t, 0, member=("x", 1)),
        NO_MEMBER,
        since=9,
    ),
    Step(BEAT, "it leaves", lambda t: _beats(t, member_epoch=-1)),
    Step(ConsumerGroupDescribeRequest, "empty", lambda t: {"group_ids": [_group(t)]}),
    Step(BEAT, "a static one", lambda t: joining(t, instance_id="i"), keep=KEEP),
    Step(
        BEAT,
        "another one of that name",
        lambda t: joining(t, member_id=MEMBER[::-1], instance_id="i"),
        ErrorCode.UNRELEASED_INSTANCE_ID,
    ),
    Step(
        BEAT, "another one goes on", lambda t: _beats(t, member_id="x", instance_id="i"), ErrorCode.FENCED_INSTANCE_ID
    ),
    Step(BEAT, "no such instance", lambda t: _beats(t, instance_id="j"), NO_MEMBER),
    Step(BEAT, "it goes for a while", lambda t: _beats(t, instance_id="i", member_epoch=-2)),
    Step(BEAT, "it returns", lambda t: joining(t, member_id=MEMBER[::-1], instance_id="i"), keep=KEEP),
    Step(ConsumerGroupDescribeRequest, "the static one", lambda t: {"group_ids": [_group(t)]}),
    Step(BEAT, "the static one leaves", lambda t: _beats(t, instance_id="i", member_epoch=-1)),
    Step(DeleteGroupsRequest, "without members", lambda t: {"groups_names": [_group(t)]}),
)
