"""PushTelemetry: take a client's metrics, and send them on to the collector (KIP-714).

The checks and their order are Kafka's: the id, whether the client has said that it ends, its interval, the
subscription, the codec, the size. Metrics that cannot be unpacked, or are none, are INVALID_RECORD.
"""

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.server.telemetry.telemetry import client_of
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas_raftlog.records.compression import Compression

__all__ = ["handle", "refuse"]

RESERVED = frozenset({bytes(16), bytes(15) + b"\1"})  # Kafka's ids of nobody


async def handle(broker: BrokerContext, exchange: Exchange, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Check, and answer when the metrics are about to leave."""
    telemetry = broker.telemetry
    assert telemetry is not None
    if request.client_instance_id in RESERVED:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    connection = exchange.connection
    client = client_of(exchange.client_id, request.client_instance_id, connection.software, connection.peer)
    instance = await taken(telemetry.instance(request.client_instance_id, client, connection.peer))
    code = instance.push(
        broker.now_ms(),
        request.subscription_id,
        codec_is_known=request.compression_type in Compression.__members__.values(),
        fits=len(request.metrics) <= telemetry.bytes_max,
        is_ending=request.terminating,
    )
    if code == ErrorCode.NONE and request.metrics:
        code = instance.last_code = await telemetry.take(request.metrics, request.compression_type, client)
    return refuse(request, code)


def refuse(_: PushTelemetryRequest, code: ErrorCode) -> PushTelemetryResponse:
    """Answer with `code`."""
    return PushTelemetryResponse(error_code=code)
