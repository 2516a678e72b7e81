"""FindCoordinator, API key 10: find the broker that coordinates a group or a transactional id. Pure.

Versions: 1 key type; 3 flexible; 4 many keys at once (`coordinator_keys`, `coordinators`), which replace the single
`key` and the top-level answer; 6 share groups.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "Coordinator",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
]


@message(api_key=10, versions=range(7), flexible_since=3)
class FindCoordinatorRequest(Message):
    """`key_type`: 0 group, 1 transactional id, 2 share group."""

    key: Annotated[String, wire(until=3)] = ""
    key_type: Annotated[Int8, wire(since=1)] = 0
    coordinator_keys: Annotated[Sequence[String], wire(since=4)] = ()


class Coordinator(Struct):
    """The broker that coordinates one key."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


@message(api_key=10, versions=range(7), flexible_since=3)
class FindCoordinatorResponse(Message):
    """Up to version 3 the answer stands in the top-level fields, then in `coordinators`."""

    throttle_time_ms: Annotated[Int32, wire(since=1)] = 0
    error_code: Annotated[Int16, wire(until=3)] = 0
    error_message: Annotated[String | None, wire(since=1, until=3)] = None
    node_id: Annotated[Int32, wire(until=3)] = 0
    host: Annotated[String, wire(until=3)] = ""
    port: Annotated[Int32, wire(until=3)] = 0
    coordinators: Annotated[list[Coordinator], wire(since=4)] = field(default_factory=list)
