"""PushTelemetry, API key 72: a client tells its metrics (KIP-714). Pure.

Versions: 0 flexible already.
"""

from barnabas_raftlog.wire.schema import NO_UUID, Bool, Bytes, Int8, Int16, Int32, Message, Uuid, message

__all__ = [
    "PushTelemetryRequest",
    "PushTelemetryResponse",
]


@message(api_key=72, versions=range(1), flexible_since=0)
class PushTelemetryRequest(Message):
    """Metrics as OpenTelemetry's `MetricsData`, compressed or not. `terminating`: the client says nothing more."""

    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


@message(api_key=72, versions=range(1), flexible_since=0)
class PushTelemetryResponse(Message):
    """Taken, or why not."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
