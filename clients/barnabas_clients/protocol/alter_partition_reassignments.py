"""AlterPartitionReassignments, API key 45: move partitions to other brokers, or call a move off (KIP-455). Pure.

Versions: all are flexible; 1 may forbid to change the number of replicas (KIP-860).
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
]


class ReassignablePartition(Struct):
    """The brokers that one partition goes to, the preferred leader first; null cancels the move that is under way."""

    partition_index: Int32 = 0
    replicas: Sequence[Int32] | None = None


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: String = ""
    partitions: list[ReassignablePartition] = field(default_factory=list)


@message(api_key=45, versions=range(2), flexible_since=0)
class AlterPartitionReassignmentsRequest(Message):
    """Moves of partitions, each of which is answered for itself."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, wire(since=1)] = True
    topics: list[ReassignableTopic] = field(default_factory=list)


class ReassignablePartitionResponse(Struct):
    """The answer for one partition: whether it will move. ListPartitionReassignments tells when it has moved."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class ReassignableTopicResponse(Struct):
    """Partitions of one topic."""

    name: String = ""
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)


@message(api_key=45, versions=range(2), flexible_since=0)
class AlterPartitionReassignmentsResponse(Message):
    """One result for each partition of the request, unless the request failed as a whole."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, wire(since=1)] = True
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[ReassignableTopicResponse] = field(default_factory=list)
