"""Heartbeat, API key 12: show that a member of a classic group is alive. Pure.

Versions: 3 static membership (KIP-345); 4 flexible.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, message, wire

__all__ = [
    "HeartbeatRequest",
    "HeartbeatResponse",
]


@message(api_key=12, versions=range(5), flexible_since=4)
class HeartbeatRequest(Message):
    """Sent by every member at its heartbeat interval."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, wire(since=3)] = None


@message(api_key=12, versions=range(5), flexible_since=4)
class HeartbeatResponse(Message):
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: Annotated[Int32, wire(since=1)] = 0
    error_code: Int16 = 0
