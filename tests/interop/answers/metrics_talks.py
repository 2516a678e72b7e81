"""A talk about a client's metrics: what it is asked for, when it may ask and push, and what is refused (KIP-714)."""

from typing import Any

from broker.live.administration.test_telemetry import BYTES_MAX

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas_clients.protocol.push_telemetry import PushTelemetryRequest
from barnabas_raftlog.records.compression import Compression, compress

from .talks import Fields, Step, Talk

__all__ = ["METRICS"]

ASK, PUSH = GetTelemetrySubscriptionsRequest, PushTelemetryRequest
NOBODY, RESERVED, STRANGER = bytes(16), bytes(15) + b"\1", b"has never asked."
KEEP = {"instance": "client_instance_id", "subscription": "subscription_id"}
TOO_SOON = ErrorCode.THROTTLING_QUOTA_EXCEEDED
WRONG = ErrorCode.INVALID_REQUEST
NO_METRICS = ErrorCode.INVALID_RECORD
NO_CODEC = 9
ROW = b"\x0a\x06\x12\x04\x1a\x02ab"  # MetricsData of one ResourceMetrics, of one ScopeMetrics with a schema URL
BOMB = bytes(compress(Compression.ZSTD, bytes(10 << 20)))


def _pushed(t: Talk, metrics: bytes = ROW, **more: Any) -> Fields:
    return {
        "client_instance_id": t["instance"],
        "subscription_id": t["subscription"],
        "metrics": metrics,
    } | more


def _asked(what: str) -> Step:
    """Return a question of somebody new, who may push once."""
    return Step(ASK, what, lambda _: {}, keep=KEEP)


def _packed(codec: Compression) -> tuple[Step, Step]:
    packed = bytes(compress(codec, ROW))
    return (
        _asked(f"who has {codec.name}"),
        Step(PUSH, f"in {codec.name}", lambda t: _pushed(t, packed, compression_type=codec)),
    )


METRICS = (
    _asked("who is new"),
    Step(ASK, "too soon", lambda t: {"client_instance_id": t["instance"]}, TOO_SOON),
    Step(PUSH, "metrics", _pushed),
    Step(PUSH, "too soon", _pushed, TOO_SOON),
    Step(ASK, "too soon after a push", lambda t: {"client_instance_id": t["instance"]}, TOO_SOON),
    Step(PUSH, "the last ones", lambda t: _pushed(t, terminating=True)),
    Step(PUSH, "after the last ones", lambda t: _pushed(t, terminating=True), WRONG),
    Step(PUSH, "of nobody", lambda t: _pushed(t, client_instance_id=NOBODY), WRONG),
    Step(PUSH, "of a reserved id", lambda t: _pushed(t, client_instance_id=RESERVED), WRONG),
    Step(PUSH, "of a stranger", lambda t: _pushed(t, client_instance_id=STRANGER), ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
    Step(ASK, "the stranger", lambda _: {"client_instance_id": STRANGER}, keep=KEEP),
    Step(PUSH, "of the stranger, who has pushed", _pushed, TOO_SOON),
    _asked("who mistakes it"),
    Step(
        PUSH,
        "of another subscription",
        lambda t: _pushed(t, subscription_id=t["subscription"] ^ 1),
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ),
    _asked("who has another codec"),
    Step(
        PUSH,
        "in no codec",
        lambda t: _pushed(t, compression_type=NO_CODEC),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    Step(ASK, "which codec, then", lambda t: {"client_instance_id": t["instance"]}),
    _asked("who has much"),
    Step(PUSH, "too much", lambda t: _pushed(t, bytes(BYTES_MAX + 1)), ErrorCode.TELEMETRY_TOO_LARGE),
    Step(ASK, "after too much", lambda t: {"client_instance_id": t["instance"]}, TOO_SOON),
    _asked("who has none"),
    Step(PUSH, "none", lambda t: _pushed(t, b"")),
    _asked("who has rubbish"),
    Step(PUSH, "rubbish", lambda t: _pushed(t, b"garbage"), NO_METRICS),
    _asked("who packs rubbish"),
    Step(PUSH, "not packed", lambda t: _pushed(t, b"garbage", compression_type=Compression.ZSTD), NO_METRICS),
    _asked("who has a bomb"),
    Step(PUSH, "a bomb", lambda t: _pushed(t, BOMB, compression_type=Compression.ZSTD), NO_METRICS),
    *(step for codec in Compression if codec for step in _packed(codec)),
)
