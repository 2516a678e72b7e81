"""RenewDelegationToken, API key 39: let a token be good for longer (KIP-48). Pure.

Versions: 1 is the first; 2 flexible.
"""

from barnabas_raftlog.wire.schema import Bytes, Int16, Int32, Int64, Message, message

__all__ = [
    "RenewDelegationTokenRequest",
    "RenewDelegationTokenResponse",
]


@message(api_key=39, versions=range(1, 3), flexible_since=2)
class RenewDelegationTokenRequest(Message):
    """The token, by its secret."""

    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


@message(api_key=39, versions=range(1, 3), flexible_since=2)
class RenewDelegationTokenResponse(Message):
    """When it ends now."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
