"""ElectLeaders, API key 43: have partitions led by their preferred replica, or by any at all. Pure.

Versions: 1 kinds of elections (KIP-460), and an error for the whole request; 2 flexible.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectLeadersTopic",
    "PartitionResult",
    "ReplicaElectionResult",
]


class ElectLeadersTopic(Struct):
    """Partitions of one topic."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


@message(api_key=43, versions=range(3), flexible_since=2)
class ElectLeadersRequest(Message):
    """`election_type`: 0 the preferred replica, 1 any replica, in sync or not. Null partitions mean all there are."""

    election_type: Annotated[Int8, wire(since=1)] = 0
    topic_partitions: list[ElectLeadersTopic] | None = None
    timeout_ms: Int32 = 60_000


class PartitionResult(Struct):
    """The fate of one partition."""

    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class ReplicaElectionResult(Struct):
    """The fates of partitions of one topic."""

    topic: String = ""
    partition_result: list[PartitionResult] = field(default_factory=list)


@message(api_key=43, versions=range(3), flexible_since=2)
class ElectLeadersResponse(Message):
    """A result for each partition that is named; if all are meant, for those that needed an election."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, wire(since=1)] = 0
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
