"""ConsumerGroupDescribe, API key 69: the state and the members of groups of KIP-848. Pure.

Versions: 0 flexible already (KIP-848); 1 by which protocol each member speaks (KIP-1099).
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
    "ConsumerGroupDescribeAssignment",
    "ConsumerGroupDescribeGroup",
    "ConsumerGroupDescribeMember",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupDescribeTopicPartitions",
]


@message(api_key=69, versions=range(2), flexible_since=0)
class ConsumerGroupDescribeRequest(Message):
    """The groups to describe; the broker that is asked should coordinate all of them."""

    group_ids: Sequence[String] = ()
    include_authorized_operations: Bool = False


class ConsumerGroupDescribeTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: Sequence[Int32] = ()


class ConsumerGroupDescribeAssignment(Struct):
    """Partitions of several topics."""

    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = field(default_factory=list)


class ConsumerGroupDescribeMember(Struct):
    """One member: what it has, and what it is to have. `member_type`: 0 classic, 1 consumer, -1 unknown."""

    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: String | None = None
    assignment: ConsumerGroupDescribeAssignment = field(default_factory=ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = field(default_factory=ConsumerGroupDescribeAssignment)
    member_type: Annotated[Int8, wire(since=1)] = -1


class ConsumerGroupDescribeGroup(Struct):
    """One group. States have Kafka's spelling: "Empty", "Assigning", "Reconciling", "Stable"."""

    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[ConsumerGroupDescribeMember] = field(default_factory=list)
    authorized_operations: Int32 = -(2**31)


@message(api_key=69, versions=range(2), flexible_since=0)
class ConsumerGroupDescribeResponse(Message):
    """One answer for each group of the request."""

    throttle_time_ms: Int32 = 0
    groups: list[ConsumerGroupDescribeGroup] = field(default_factory=list)
