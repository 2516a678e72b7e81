"""JoinGroup, API key 11: enter a consumer group's next generation. Pure.

Versions: 1 rebalance timeout; 4 a first join without member id is answered with MEMBER_ID_REQUIRED and one; 5
static membership (KIP-345); 6 flexible; 7 protocol type and nullable name in the answer; 8 a reason (KIP-800); 9
`skip_assignment` (KIP-814).
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Bytes, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
]


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, with its subscription as the assignor encodes it."""

    name: String = ""
    metadata: Bytes = b""


@message(api_key=11, versions=range(10), flexible_since=6)
class JoinGroupRequest(Message):
    """`member_id` is empty the first time."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, wire(since=1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, wire(since=5)] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: Annotated[String | None, wire(since=8)] = None


class JoinGroupResponseMember(Struct):
    """A member with its subscription; only the leader gets these."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, wire(since=5)] = None
    metadata: Bytes = b""


@message(api_key=11, versions=range(10), flexible_since=6)
class JoinGroupResponse(Message):
    """The member whose id equals `leader` computes the assignment."""

    throttle_time_ms: Annotated[Int32, wire(since=2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, wire(since=7)] = None
    protocol_name: Annotated[String | None, wire(nullable_since=7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, wire(since=9)] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
