"""SyncGroup, API key 14: hand in, and get, the assignment of a generation. Pure.

Versions: 3 static membership; 4 flexible; 5 protocol type and name, for cross-checking (KIP-559).
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bytes, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "SyncGroupRequest",
    "SyncGroupRequestAssignment",
    "SyncGroupResponse",
]


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member, as the assignor encodes it."""

    member_id: String = ""
    assignment: Bytes = b""


@message(api_key=14, versions=range(6), flexible_since=4)
class SyncGroupRequest(Message):
    """Only the leader sends `assignments`."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, wire(since=3)] = None
    protocol_type: Annotated[String | None, wire(since=5)] = None
    protocol_name: Annotated[String | None, wire(since=5)] = None
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


@message(api_key=14, versions=range(6), flexible_since=4)
class SyncGroupResponse(Message):
    """The receiver's own assignment."""

    throttle_time_ms: Annotated[Int32, wire(since=1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, wire(since=5)] = None
    protocol_name: Annotated[String | None, wire(since=5)] = None
    assignment: Bytes = b""
