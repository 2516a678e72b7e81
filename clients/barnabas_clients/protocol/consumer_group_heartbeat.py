"""ConsumerGroupHeartbeat, API key 68: all that a member of a group of KIP-848 says and hears. Pure.

Versions: 0 flexible already (KIP-848); 1 a regular expression for topics, and member ids that clients make (KIP-1082).
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import NO_UUID, Int16, Int32, Message, String, Struct, Uuid, field, message, wire

__all__ = [
    "ConsumerGroupHeartbeatAssignment",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupHeartbeatTopicPartitions",
]


class ConsumerGroupHeartbeatTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()


@message(api_key=68, versions=range(2), flexible_since=0)
class ConsumerGroupHeartbeatRequest(Message):
    """What a member says: null, and -1 for the timeout, where nothing has changed since the last time.

    `member_epoch` 0 joins, -1 leaves, -2 is a static member's that comes back. `topic_partitions` is what it owns.
    """

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Sequence[String] | None = None
    subscribed_topic_regex: Annotated[String | None, wire(since=1)] = None
    server_assignor: String | None = None
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = None


class ConsumerGroupHeartbeatAssignment(Struct):
    """The partitions that a member may use from now on, and no others."""

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = field(default_factory=list)


@message(api_key=68, versions=range(2), flexible_since=0)
class ConsumerGroupHeartbeatResponse(Message):
    """What a member hears; `assignment` is null if it is what it was."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ConsumerGroupHeartbeatAssignment | None = None
