"""GetTelemetrySubscriptions, API key 71: a client asks which of its metrics are wanted (KIP-714). Pure.

Versions: 0 flexible already.
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import NO_UUID, Bool, Int8, Int16, Int32, Message, String, Uuid, message

__all__ = [
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
]


@message(api_key=71, versions=range(1), flexible_since=0)
class GetTelemetrySubscriptionsRequest(Message):
    """The id that a broker has given to this instance of a client; zeros before it has one."""

    client_instance_id: Uuid = NO_UUID


@message(api_key=71, versions=range(1), flexible_since=0)
class GetTelemetrySubscriptionsResponse(Message):
    """The metrics that are wanted, as prefixes of their names; none: none, and "*": all."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: Sequence[Int8] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: Sequence[String] = ()
