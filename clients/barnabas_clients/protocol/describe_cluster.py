"""DescribeCluster, API key 60: the cluster's id, its brokers, and a controller. Pure.

Flexible from the start. Versions: 1 asks for brokers or controllers; 2 fenced brokers.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int8, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
]


@message(api_key=60, versions=range(3), flexible_since=0)
class DescribeClusterRequest(Message):
    """`endpoint_type`: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, wire(since=1)] = 1
    include_fenced_brokers: Annotated[Bool, wire(since=2)] = False


class DescribeClusterBroker(Struct):
    """The address of one broker or controller."""

    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, wire(since=2)] = False


@message(api_key=60, versions=range(3), flexible_since=0)
class DescribeClusterResponse(Message):
    """`controller_id` is the node for requests that only a controller can serve."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, wire(since=1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: Int32 = -2147483648
