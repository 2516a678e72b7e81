"""ListGroups, API key 16: the groups that one broker coordinates. Pure.

Versions: 1 throttle time; 3 flexible; 4 states, also as a filter (KIP-518); 5 group types, also as a filter (KIP-848).
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
]


@message(api_key=16, versions=range(6), flexible_since=3)
class ListGroupsRequest(Message):
    """The groups to list; an empty filter lets every group pass."""

    states_filter: Annotated[Sequence[String], wire(since=4)] = ()
    types_filter: Annotated[Sequence[String], wire(since=5)] = ()


class ListedGroup(Struct):
    """One group. States and types have Kafka's spelling: "Stable", "PreparingRebalance"; "classic", "consumer"."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, wire(since=4)] = ""
    group_type: Annotated[String, wire(since=5)] = ""


@message(api_key=16, versions=range(6), flexible_since=3)
class ListGroupsResponse(Message):
    """The groups of the partitions of the offsets topic that the answering broker leads."""

    throttle_time_ms: Annotated[Int32, wire(since=1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = field(default_factory=list)
