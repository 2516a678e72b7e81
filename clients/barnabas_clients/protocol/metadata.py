"""Metadata, API key 3: brokers, topics, partitions, and their leaders. Pure.

Null topics ask for all, and an empty list for none. Version 0 has no null, and there an empty list asks for all.

Versions: 4 auto-creation flag; 5 offline replicas; 7 leader epoch; 8 authorized operations; 9 flexible; 10 topic
ids; 12 topics may be asked for by id alone, with a null name; 13 a top-level error code.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
    message,
    wire,
)

__all__ = [
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


class MetadataRequestTopic(Struct):
    """A topic by name, or since version 12 by id with a null name."""

    topic_id: Annotated[Uuid, wire(since=10)] = NO_UUID
    name: Annotated[String | None, wire(nullable_since=10)] = ""


@message(api_key=3, versions=range(14), flexible_since=9)
class MetadataRequest(Message):
    """`topics` None: all of them."""

    topics: Annotated[list[MetadataRequestTopic] | None, wire(nullable_since=1)] = field(default_factory=list)
    allow_auto_topic_creation: Annotated[Bool, wire(since=4)] = True
    include_cluster_authorized_operations: Annotated[Bool, wire(since=8, until=10)] = False
    include_topic_authorized_operations: Annotated[Bool, wire(since=8)] = False


class MetadataResponseBroker(Struct):
    """The address at which clients reach a broker."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, wire(since=1)] = None


class MetadataResponsePartition(Struct):
    """One partition; if nobody leads, `leader_id` is -1 and the error LEADER_NOT_AVAILABLE."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, wire(since=7)] = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    offline_replicas: Annotated[Sequence[Int32], wire(since=5)] = ()


class MetadataResponseTopic(Struct):
    """One topic; the name is null only for an id that is unknown."""

    error_code: Int16 = 0
    name: Annotated[String | None, wire(nullable_since=12)] = ""
    topic_id: Annotated[Uuid, wire(since=10)] = NO_UUID
    is_internal: Annotated[Bool, wire(since=1)] = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Annotated[Int32, wire(since=8)] = -2147483648


@message(api_key=3, versions=range(14), flexible_since=9)
class MetadataResponse(Message):
    """Authorized operations are a bit field. The least int32 means that they were not asked for."""

    throttle_time_ms: Annotated[Int32, wire(since=3)] = 0
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: Annotated[String | None, wire(since=2)] = None
    controller_id: Annotated[Int32, wire(since=1)] = -1
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: Annotated[Int32, wire(since=8, until=10)] = -2147483648
    error_code: Annotated[Int16, wire(since=13)] = 0
