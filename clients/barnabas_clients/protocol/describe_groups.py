"""DescribeGroups, API key 15: the state and the members of classic groups. Pure.

Versions: 1 throttle time; 3 authorized operations; 4 `group_instance_id`; 5 flexible; 6 an error message, and
GROUP_ID_NOT_FOUND for a group that does not exist, which is a "Dead" group in older versions (KIP-1043).
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
    message,
    wire,
)

__all__ = [
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
]


@message(api_key=15, versions=range(7), flexible_since=5)
class DescribeGroupsRequest(Message):
    """The groups to describe; the broker that is asked should coordinate all of them."""

    groups: Sequence[String] = ()
    include_authorized_operations: Annotated[Bool, wire(since=3)] = False


class DescribedGroupMember(Struct):
    """One member; metadata and assignment are empty unless the group is "Stable"."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, wire(since=4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    """One group; `protocol_data` is the name of the chosen assignor, empty unless the group is "Stable"."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, wire(since=6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: Annotated[Int32, wire(since=3)] = -(2**31)


@message(api_key=15, versions=range(7), flexible_since=5)
class DescribeGroupsResponse(Message):
    """One answer for each group of the request."""

    throttle_time_ms: Annotated[Int32, wire(since=1)] = 0
    groups: list[DescribedGroup] = field(default_factory=list)
