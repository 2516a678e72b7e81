"""CreateTopics, API key 19: create topics with their partitions. Pure.

Versions: 4 lets -1 stand for the broker's default partition count and replication factor; 5 flexible, and the
response describes the new topics; 7 topic ids.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Bool,
    Int8,
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
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
]


class CreatableReplicaAssignment(Struct):
    """The brokers that shall hold one partition; the first is the preferred leader."""

    partition_index: Int32 = 0
    broker_ids: Sequence[Int32] = ()


class CreatableTopicConfig(Struct):
    """One configuration to set on the new topic."""

    name: String = ""
    value: String | None = None


class CreatableTopic(Struct):
    """With `assignments`, partition count and replication factor must be -1."""

    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@message(api_key=19, versions=range(2, 8), flexible_since=5)
class CreateTopicsRequest(Message):
    """`validate_only` checks and creates nothing."""

    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    """One configuration of the new topic."""

    name: String = ""
    value: String | None = None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    """The result for one topic; null `configs` if the caller may not see them."""

    name: String = ""
    topic_id: Annotated[Uuid, wire(since=7)] = NO_UUID
    error_code: Int16 = 0
    error_message: String | None = None
    topic_config_error_code: Annotated[Int16, wire(since=5, tag=0)] = 0
    num_partitions: Annotated[Int32, wire(since=5)] = -1
    replication_factor: Annotated[Int16, wire(since=5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, wire(since=5)] = field(default_factory=list)


@message(api_key=19, versions=range(2, 8), flexible_since=5)
class CreateTopicsResponse(Message):
    """One result for each topic of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)
