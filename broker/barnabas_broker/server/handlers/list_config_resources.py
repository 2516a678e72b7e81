"""ListConfigResources: name what can be configured: topics, brokers, and groups and subscriptions that are.

Subscriptions are those to clients' metrics. Loggers have no configurations here; Kafka names the brokers once more for
theirs. A kind that nobody knows is UNSUPPORTED_VERSION, as there.
"""

from collections.abc import Generator

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import sorted_names
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_config_resources import (
    CLIENT_METRICS,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

__all__ = ["handle", "refuse"]

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32  # Kafka's ConfigResource.Type
KNOWN = ({CLIENT_METRICS}, {TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP})
"""The kinds that each version may ask for."""
PIECE = 500  # topics between two yields


def handle(
    broker: BrokerContext, exchange: Exchange, request: ListConfigResourcesRequest
) -> Generator[None, None, ListConfigResourcesResponse]:
    """Answer from the image."""
    known = KNOWN[min(exchange.version, 1)]
    wanted = set(request.resource_types) or known
    yield
    if not wanted <= known:
        return refuse(request, ErrorCode.UNSUPPORTED_VERSION)
    rows = []
    if BROKER in wanted:
        rows += [
            ListedConfigResource(resource_name=str(known.node_id), resource_type=BROKER) for known in broker.brokers()
        ]
    for number, (kind, name) in enumerate(sorted(broker.image.resource_configs), 1):
        if kind in wanted and kind in {CLIENT_METRICS, GROUP}:
            rows.append(ListedConfigResource(resource_name=name, resource_type=kind))
        if not number % PIECE:
            yield
    if TOPIC in wanted:
        names = yield from sorted_names(broker.partitions.topics)
        for number, name in enumerate(names, 1):
            rows.append(ListedConfigResource(resource_name=name, resource_type=TOPIC))
            if not number % PIECE:
                yield
    return ListConfigResourcesResponse(config_resources=rows)


def refuse(_: ListConfigResourcesRequest, code: ErrorCode) -> ListConfigResourcesResponse:
    """Answer with `code`."""
    return ListConfigResourcesResponse(error_code=code)
