"""DeleteGroups, API key 42: delete groups without members, and their committed offsets. Pure.

Versions: 2 flexible; 3 a message beside the error, and GROUP_DELETION_FAILED (KIP-1331).
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "DeletableGroupResult",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
]


@message(api_key=42, versions=range(4), flexible_since=2)
class DeleteGroupsRequest(Message):
    """The groups to delete; the broker that is asked should coordinate all of them."""

    groups_names: Sequence[String] = ()


class DeletableGroupResult(Struct):
    """The result for one group."""

    group_id: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, wire(since=3)] = None


@message(api_key=42, versions=range(4), flexible_since=2)
class DeleteGroupsResponse(Message):
    """One result for each group of the request."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = field(default_factory=list)
