"""ListConfigResources, API key 74: the names of what can be configured. Pure.

Versions: 0 flexible already, and about subscriptions to clients' metrics alone (KIP-714); 1 all kinds (KIP-1142).
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "CLIENT_METRICS",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
    "ListedConfigResource",
]

CLIENT_METRICS = 16
"""The kind of resource that version 0 means."""


@message(api_key=74, versions=range(2), flexible_since=0)
class ListConfigResourcesRequest(Message):
    """The kinds to list; none means all."""

    resource_types: Annotated[Sequence[Int8], wire(since=1)] = ()


class ListedConfigResource(Struct):
    """One resource."""

    resource_name: String = ""
    resource_type: Annotated[Int8, wire(since=1)] = CLIENT_METRICS


@message(api_key=74, versions=range(2), flexible_since=0)
class ListConfigResourcesResponse(Message):
    """The resources, in no order."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ListedConfigResource] = field(default_factory=list)
