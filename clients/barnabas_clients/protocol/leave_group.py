"""LeaveGroup, API key 13: let members leave a classic group. Pure.

Versions: 3 many members at once (`members`), replacing `member_id`; 4 flexible; 5 a reason (KIP-800).
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "MemberIdentity",
    "MemberResponse",
]


class MemberIdentity(Struct):
    """One member that leaves."""

    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, wire(since=5)] = None


@message(api_key=13, versions=range(6), flexible_since=4)
class LeaveGroupRequest(Message):
    """Up to version 2 `member_id` leaves, then all of `members`."""

    group_id: String = ""
    member_id: Annotated[String, wire(until=2)] = ""
    members: Annotated[list[MemberIdentity], wire(since=3)] = field(default_factory=list)


class MemberResponse(Struct):
    """The result for one member."""

    member_id: String = ""
    group_instance_id: String | None = None
    error_code: Int16 = 0


@message(api_key=13, versions=range(6), flexible_since=4)
class LeaveGroupResponse(Message):
    """A top-level error, and since version 3 one for each member."""

    throttle_time_ms: Annotated[Int32, wire(since=1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], wire(since=3)] = field(default_factory=list)
