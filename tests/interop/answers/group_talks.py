"""Talks about groups of the classic protocol, and about offsets."""

import struct
from typing import Any

from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_clients.protocol.list_groups import ListGroupsRequest
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .talks import Fields, Step, Talk

__all__ = [
    "GROUPS",
    "MEMBERS",
    "OFFSETS",
    "STATIC_MEMBERS",
    "absent_id",
    "commit_fields",
    "fetch_fields",
    "subscription",
]

ABSENT = "nobody-made-it"
METADATA_BYTES_MAX = 4096
SESSION_MS = 30_000
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = ErrorCode.UNKNOWN_TOPIC_ID
NO_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
NO_GROUP = ErrorCode.GROUP_ID_NOT_FOUND
BAD_GROUP = ErrorCode.INVALID_GROUP_ID
GENERATION = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def absent_id() -> bytes:
    return b"n" * 16


def subscription(*topics: str) -> bytes:
    """Return what a consumer says in JoinGroup: version 0, topics, no data."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


# Offsets.


def commit_fields(
    group: str, talk: Talk, offset: int = 5, *, absent: bool = False, partition: int = 0, text: str | None = "m"
) -> dict[str, Any]:
    row = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata=text
    )
    topic = OffsetCommitRequestTopic(
        name=ABSENT if absent else talk.topic, topic_id=absent_id() if absent else talk.topic_id, partitions=[row]
    )
    return {"group_id": group, "topics": [topic]}


def fetch_fields(
    group: str,
    talk: Talk,
    *partitions: int,
    absent: bool = False,
    everything: bool = False,
    member: tuple[str | None, int] = (None, -1),
    stable: bool = False,
) -> Fields:
    name = ABSENT if absent else talk.topic
    topic_id = absent_id() if absent else talk.topic_id
    old = None if everything else [OffsetFetchRequestTopic(name=name, partition_indexes=partitions)]
    new = None if everything else [OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=partitions)]
    one = OffsetFetchRequestGroup(group_id=group, member_id=member[0], member_epoch=member[1], topics=new)
    return {"group_id": group, "topics": old, "groups": [one], "require_stable": stable}


def _deleted(group: str, topic: str, *partitions: int) -> Fields:
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return {"group_id": group, "topics": [OffsetDeleteRequestTopic(name=topic, partitions=rows)]}


def _sought(key: str, kind: int) -> Fields:
    return {"key": key, "key_type": kind, "coordinator_keys": [key]}


OFFSETS = (
    Step(FindCoordinatorRequest, "a group's", lambda t: _sought(t.name("offsets"), 0)),
    Step(FindCoordinatorRequest, "a transaction's", lambda t: _sought(t.name("offsets"), 1), since=1),
    Step(FindCoordinatorRequest, "nobody's", lambda _: _sought("", 0)),
    Step(FindCoordinatorRequest, "of no kind", lambda _: _sought("x", 7), ErrorCode.INVALID_REQUEST, since=1),
    Step(OffsetCommitRequest, "by nobody", lambda t: commit_fields(t.name("offsets"), t)),
    Step(
        OffsetCommitRequest,
        "no topic",
        lambda t: commit_fields(t.name("offsets"), t, absent=True),
        UNKNOWN,
        codes={10: NO_ID},
    ),
    Step(OffsetCommitRequest, "no partition", lambda t: commit_fields(t.name("offsets"), t, partition=9), UNKNOWN),
    Step(OffsetCommitRequest, "no group", lambda t: commit_fields("", t)),
    Step(
        OffsetCommitRequest,
        "too much text",
        lambda t: commit_fields(t.name("offsets"), t, text="x" * (METADATA_BYTES_MAX + 1)),
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    Step(OffsetCommitRequest, "without text", lambda t: commit_fields(t.name("offsets"), t, 6, text=None)),
    Step(
        OffsetCommitRequest,
        "by a stranger",
        lambda t: commit_fields(t.name("offsets"), t) | {"member_id": "x", "generation_id_or_member_epoch": 1},
        NO_MEMBER,
    ),
    Step(
        OffsetCommitRequest,
        "in a generation of a new group",
        lambda t: commit_fields(t.name("new"), t) | {"member_id": "x", "generation_id_or_member_epoch": 1},
        GENERATION,
        codes={9: NO_GROUP, 10: NO_GROUP},
    ),
    Step(OffsetCommitRequest, "nothing", lambda t: {"group_id": t.name("offsets")}),
    Step(OffsetFetchRequest, "its own", lambda t: fetch_fields(t.name("offsets"), t, 0)),
    Step(OffsetFetchRequest, "stable ones", lambda t: fetch_fields(t.name("offsets"), t, 0, stable=True), since=7),
    Step(OffsetFetchRequest, "no partition", lambda t: fetch_fields(t.name("offsets"), t, 0, 9)),
    Step(
        OffsetFetchRequest,
        "no topic",
        lambda t: fetch_fields(t.name("offsets"), t, 0, absent=True),
        codes={10: NO_ID},
    ),
    Step(OffsetFetchRequest, "all", lambda t: fetch_fields(t.name("offsets"), t, everything=True), since=2),
    Step(OffsetFetchRequest, "of nobody", lambda t: fetch_fields(ABSENT, t, 0)),
    Step(OffsetFetchRequest, "all of nobody", lambda t: fetch_fields(ABSENT, t, everything=True), since=2),
    Step(OffsetFetchRequest, "of no group", lambda t: fetch_fields("", t, 0)),
    Step(
        OffsetFetchRequest,
        "for a stranger",
        lambda t: fetch_fields(t.name("offsets"), t, 0, member=("x", 1)),
        since=9,
    ),
    Step(OffsetDeleteRequest, "its own and others", lambda t: _deleted(t.name("offsets"), t.topic, 0, 9), UNKNOWN),
    Step(OffsetDeleteRequest, "no topic", lambda t: _deleted(t.name("offsets"), ABSENT, 0), UNKNOWN),
    Step(OffsetDeleteRequest, "of nobody", lambda t: _deleted(ABSENT, t.topic, 0), NO_GROUP),
    Step(OffsetDeleteRequest, "of no group", lambda t: _deleted("", t.topic, 0), BAD_GROUP),
    Step(OffsetFetchRequest, "what is left", lambda t: fetch_fields(t.name("offsets"), t, 0)),
)

GROUPS = (
    Step(OffsetCommitRequest, "a group is made", lambda t: commit_fields(t.name("groups"), t)),
    Step(ListGroupsRequest, "all", lambda _: {}),
    Step(ListGroupsRequest, "empty ones", lambda _: {"states_filter": ["Empty"]}, since=4),
    Step(ListGroupsRequest, "empty ones in other letters", lambda _: {"states_filter": ["empty"]}, since=4),
    Step(ListGroupsRequest, "stable ones", lambda _: {"states_filter": ["Stable"]}, since=4),
    Step(ListGroupsRequest, "in no such state", lambda _: {"states_filter": ["Wild"]}, since=4),
    Step(ListGroupsRequest, "classic ones", lambda _: {"types_filter": ["classic"]}, since=5),
    Step(ListGroupsRequest, "consumer groups", lambda _: {"types_filter": ["Consumer"]}, since=5),
    Step(ListGroupsRequest, "of no such type", lambda _: {"types_filter": ["x"]}, since=5),
    Step(DescribeGroupsRequest, "its own", lambda t: {"groups": [t.name("groups")]}),
    Step(
        DescribeGroupsRequest,
        "what one may do",
        lambda t: {"groups": [t.name("groups")], "include_authorized_operations": True},
        since=3,
    ),
    Step(DescribeGroupsRequest, "nobody", lambda _: {"groups": [ABSENT]}, codes={6: NO_GROUP}),
    Step(DescribeGroupsRequest, "no group", lambda _: {"groups": [""]}, codes={6: NO_GROUP}),
    Step(DescribeGroupsRequest, "none", lambda _: {"groups": []}),
    Step(DeleteGroupsRequest, "nobody", lambda _: {"groups_names": [ABSENT]}, NO_GROUP),
    Step(DeleteGroupsRequest, "no group", lambda _: {"groups_names": [""]}, NO_GROUP, codes={0: ErrorCode.NONE}),
    Step(DeleteGroupsRequest, "its own", lambda t: {"groups_names": [t.name("groups")]}),
    Step(DeleteGroupsRequest, "its own again", lambda t: {"groups_names": [t.name("groups")]}, NO_GROUP),
)


# Members.


def _joins(t: Talk, member: str = "", protocols: tuple[str, ...] = ("range",), **more: Any) -> Fields:
    data = subscription(t.topic)
    return {
        "group_id": t.name("members"),
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name=name, metadata=data) for name in protocols],
    } | more


def _member(t: Talk, **more: Any) -> dict[str, Any]:
    return {"group_id": t.name("members"), "generation_id": t["generation"], "member_id": t["member"]} | more


def _synced(t: Talk, **more: Any) -> Fields:
    rows = [SyncGroupRequestAssignment(member_id=t["member"], assignment=b"its share")]
    return _member(t, assignments=rows, protocol_type="consumer", protocol_name="range") | more


def _committed(t: Talk, **more: Any) -> Fields:
    member = {"generation_id_or_member_epoch": t["generation"], "member_id": t["member"]}
    return commit_fields(t.name("members"), t) | member | more


def _left(t: Talk, *members: tuple[str, str | None], group: str = "") -> Fields:
    rows = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
    return {"group_id": group or t.name("members"), "member_id": members[0][0], "members": rows}


KEEP = {"member": "member_id", "generation": "generation_id"}
MEMBERS = (
    Step(JoinGroupRequest, "no group", lambda t: _joins(t, group_id=""), BAD_GROUP),
    Step(
        JoinGroupRequest,
        "a short session",
        lambda t: _joins(t, session_timeout_ms=1),
        ErrorCode.INVALID_SESSION_TIMEOUT,
    ),
    Step(JoinGroupRequest, "a stranger", lambda t: _joins(t, "x"), NO_MEMBER),
    Step(JoinGroupRequest, "no protocols", lambda t: _joins(t, protocols=()), INCONSISTENT),
    Step(JoinGroupRequest, "no type", lambda t: _joins(t, protocol_type=""), INCONSISTENT),
    Step(
        HeartbeatRequest,
        "before there is a group",
        lambda t: {"group_id": t.name("members"), "member_id": "x"},
        NO_MEMBER,
    ),
    Step(JoinGroupRequest, "in", _joins, keep=KEEP, until=3),
    Step(JoinGroupRequest, "it must come again", _joins, ErrorCode.MEMBER_ID_REQUIRED, since=4, keep=KEEP),
    Step(JoinGroupRequest, "in again", lambda t: _joins(t, t["member"]), keep=KEEP),
    Step(DescribeGroupsRequest, "while it waits", lambda t: {"groups": [t.name("members")]}),
    Step(SyncGroupRequest, "an old generation", lambda t: _synced(t, generation_id=t["generation"] - 1), GENERATION),
    Step(SyncGroupRequest, "a stranger", lambda t: _synced(t, member_id="x"), NO_MEMBER),
    Step(SyncGroupRequest, "another protocol", lambda t: _synced(t, protocol_name="x"), INCONSISTENT, since=5),
    Step(SyncGroupRequest, "another type", lambda t: _synced(t, protocol_type="x"), INCONSISTENT, since=5),
    Step(SyncGroupRequest, "no group", lambda t: _synced(t, group_id=""), BAD_GROUP),
    Step(SyncGroupRequest, "nobody's group", lambda t: _synced(t, group_id=ABSENT), NO_MEMBER),
    Step(SyncGroupRequest, "its own", _synced),
    Step(SyncGroupRequest, "its own again", _synced),
    Step(HeartbeatRequest, "its own", _member),
    Step(HeartbeatRequest, "an old generation", lambda t: _member(t, generation_id=0), GENERATION),
    Step(HeartbeatRequest, "a stranger", lambda t: _member(t, member_id="x"), NO_MEMBER),
    Step(HeartbeatRequest, "no group", lambda t: _member(t, group_id=""), BAD_GROUP),
    Step(HeartbeatRequest, "nobody's group", lambda t: _member(t, group_id=ABSENT), NO_MEMBER),
    Step(OffsetCommitRequest, "a member's", _committed),
    Step(
        OffsetCommitRequest, "an old generation's", lambda t: _committed(t, generation_id_or_member_epoch=0), GENERATION
    ),
    Step(OffsetCommitRequest, "a stranger's", lambda t: _committed(t, member_id="x"), NO_MEMBER),
    Step(OffsetCommitRequest, "nobody's", lambda t: commit_fields(t.name("members"), t), NO_MEMBER),
    Step(DescribeGroupsRequest, "stable", lambda t: {"groups": [t.name("members")]}),
    Step(ListGroupsRequest, "stable ones", lambda _: {"states_filter": ["Stable"]}, since=4),
    Step(
        DeleteGroupsRequest, "with members", lambda t: {"groups_names": [t.name("members")]}, ErrorCode.NON_EMPTY_GROUP
    ),
    Step(
        OffsetDeleteRequest,
        "of what it reads",
        lambda t: _deleted(t.name("members"), t.topic, 0),
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ),
    Step(JoinGroupRequest, "of another type", lambda t: _joins(t, protocol_type="connect"), INCONSISTENT),
    Step(JoinGroupRequest, "with another protocol", lambda t: _joins(t, protocols=("x",)), INCONSISTENT),
    Step(LeaveGroupRequest, "a stranger", lambda t: _left(t, ("x", None)), NO_MEMBER),
    Step(LeaveGroupRequest, "no group", lambda t: {"group_id": "", "member_id": "x"}, BAD_GROUP),
    Step(LeaveGroupRequest, "nobody's group", lambda t: _left(t, ("x", None), group=ABSENT), NO_MEMBER),
    Step(LeaveGroupRequest, "an instance that is none", lambda t: _left(t, ("", "i")), NO_MEMBER, since=3),
    Step(LeaveGroupRequest, "its own", lambda t: _left(t, (t["member"], None))),
    Step(LeaveGroupRequest, "its own again", lambda t: _left(t, (t["member"], None)), NO_MEMBER),
    Step(DescribeGroupsRequest, "empty", lambda t: {"groups": [t.name("members")]}),
    Step(OffsetCommitRequest, "an old member's", _committed, NO_MEMBER),
    Step(OffsetCommitRequest, "from outside", lambda t: commit_fields(t.name("members"), t)),
    Step(DeleteGroupsRequest, "without members", lambda t: {"groups_names": [t.name("members")]}),
)


def _instance(fields: Fields) -> Fields:
    return {**fields, "group_instance_id": "i"}


FENCED = ErrorCode.FENCED_INSTANCE_ID
STATIC_MEMBERS = (
    Step(JoinGroupRequest, "in", lambda t: _instance(_joins(t)), since=5, keep=KEEP),
    Step(SyncGroupRequest, "its own", lambda t: _instance(_synced(t)), since=3),
    Step(SyncGroupRequest, "fenced", lambda t: _instance(_synced(t, member_id="x")), FENCED, since=3),
    Step(HeartbeatRequest, "its own", lambda t: _instance(_member(t)), since=3),
    Step(HeartbeatRequest, "fenced", lambda t: _instance(_member(t, member_id="x")), FENCED, since=3),
    Step(JoinGroupRequest, "fenced", lambda t: _instance(_joins(t, "x")), FENCED, since=5),
    Step(OffsetCommitRequest, "its own", lambda t: _instance(_committed(t)), since=7),
    Step(OffsetCommitRequest, "fenced", lambda t: _instance(_committed(t, member_id="x")), FENCED, since=7),
    Step(JoinGroupRequest, "it returns", lambda t: _instance(_joins(t)), since=5, keep=KEEP),
    Step(HeartbeatRequest, "it has returned", lambda t: _instance(_member(t)), since=3),
    Step(DescribeGroupsRequest, "with its instance", lambda t: {"groups": [t.name("members")]}),
    Step(LeaveGroupRequest, "fenced", lambda t: _left(t, ("x", "i")), FENCED, since=3),
    Step(LeaveGroupRequest, "by its instance", lambda t: _left(t, ("", "i"), ("", "j")), NO_MEMBER, since=3),
    Step(DeleteGroupsRequest, "without members", lambda t: {"groups_names": [t.name("members")]}),
)
