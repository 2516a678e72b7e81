"""GetTelemetrySubscriptions: tell a client which of its metrics are wanted, and how often (KIP-714).

It is offered where metrics have somewhere to go (`client.metrics.otlp.endpoint`), as Kafka offers it to brokers with a
plugin for them.
"""

from collections.abc import Generator

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.server.telemetry.telemetry import ACCEPTED, client_of
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas_raftlog.wire.schema import NO_UUID

__all__ = ["handle", "refuse"]


def handle(
    broker: BrokerContext, exchange: Exchange, request: GetTelemetrySubscriptionsRequest
) -> Generator[None, None, GetTelemetrySubscriptionsResponse]:
    """Give the client an id if it has none, and compare it with the subscriptions."""
    telemetry = broker.telemetry
    assert telemetry is not None
    instance_id = request.client_instance_id
    if instance_id == NO_UUID:
        instance_id = broker.new_id().bytes
    connection = exchange.connection
    client = client_of(exchange.client_id, instance_id, connection.software, connection.peer)
    instance = yield from telemetry.instance(instance_id, client, connection.peer)
    code = instance.ask(broker.now_ms())
    if code != ErrorCode.NONE:
        return refuse(request, code)
    wanted = yield from telemetry.wanted(client)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.number_for(instance_id),
        accepted_compression_types=ACCEPTED,
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=telemetry.bytes_max,
        delta_temporality=True,
        requested_metrics=wanted.metrics,
    )


def refuse(_: GetTelemetrySubscriptionsRequest, code: ErrorCode) -> GetTelemetrySubscriptionsResponse:
    """Answer with `code`."""
    return GetTelemetrySubscriptionsResponse(error_code=code)
