"""OffsetFetch, API key 9: get positions that a group has stored. Pure.

Null topics ask for everything the group has (since 2). Versions: 2 a top-level error; 5 leader epoch; 6 flexible; 7
`require_stable`; 8 many groups at once (`groups`), replacing the single group and its topics; 9 member id and epoch
(KIP-848); 10 topic ids in place of names.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
    message,
    wire,
)

__all__ = [
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
]


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic (up to version 7)."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic (since version 8)."""

    name: Annotated[String, wire(until=9)] = ""
    topic_id: Annotated[Uuid, wire(since=10)] = NO_UUID
    partition_indexes: Sequence[Int32] = ()


class OffsetFetchRequestGroup(Struct):
    """One group, with the topics asked for or null for all."""

    group_id: String = ""
    member_id: Annotated[String | None, wire(since=9)] = None
    member_epoch: Annotated[Int32, wire(since=9)] = -1
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)


@message(api_key=9, versions=range(1, 11), flexible_since=6)
class OffsetFetchRequest(Message):
    """Up to version 7 `group_id` and `topics`, then `groups`."""

    group_id: Annotated[String, wire(until=7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, wire(until=7, nullable_since=2)] = field(
        default_factory=list
    )
    groups: Annotated[list[OffsetFetchRequestGroup], wire(since=8)] = field(default_factory=list)
    require_stable: Annotated[Bool, wire(since=7)] = False


class OffsetFetchResponsePartition(Struct):
    """A stored position (up to version 7); -1 if there is none."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, wire(since=5)] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    """Stored positions in one topic (up to version 7)."""

    name: String = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)


class OffsetFetchResponsePartitions(Struct):
    """A stored position (since version 8); -1 if there is none."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    """Stored positions in one topic (since version 8)."""

    name: Annotated[String, wire(until=9)] = ""
    topic_id: Annotated[Uuid, wire(since=10)] = NO_UUID
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)


class OffsetFetchResponseGroup(Struct):
    """The stored positions of one group."""

    group_id: String = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: Int16 = 0


@message(api_key=9, versions=range(1, 11), flexible_since=6)
class OffsetFetchResponse(Message):
    """Up to version 7 `topics` and `error_code`, then `groups`."""

    throttle_time_ms: Annotated[Int32, wire(since=3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], wire(until=7)] = field(default_factory=list)
    error_code: Annotated[Int16, wire(since=2, until=7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], wire(since=8)] = field(default_factory=list)
