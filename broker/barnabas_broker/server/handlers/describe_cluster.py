"""DescribeCluster: name the brokers, and with version 2 also those that are fenced."""

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from . import operations

__all__ = ["handle", "refuse"]

BROKERS = 1
CONTROLLERS = 2


def handle(broker: BrokerContext, exchange: Exchange, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Answer from the image. Controllers have no listener for clients here, so asking for them is a mistake."""
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return refuse(request, code)
    available = [known.node_id for known in broker.brokers()]
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id if broker.node_id in available else next(iter(available), -1),
        brokers=[
            DescribeClusterBroker(
                broker_id=node_id, host=address[0], port=address[1], rack=known.rack, is_fenced=known.fenced
            )
            for node_id, known in sorted(broker.image.brokers.items())
            if request.include_fenced_brokers or not known.fenced
            if (address := known.address_on(exchange.listener_name)) is not None
        ],
        cluster_authorized_operations=(
            operations.OF_CLUSTERS if request.include_cluster_authorized_operations else operations.NOT_ASKED
        ),
    )


def refuse(_: DescribeClusterRequest, code: ErrorCode) -> DescribeClusterResponse:
    """Answer with `code`."""
    return DescribeClusterResponse(error_code=code)
