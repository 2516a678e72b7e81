"""CreateDelegationToken, API key 38: make a token that speaks for a user (KIP-48). Pure.

Versions: 1 is the first; 2 flexible; 3 for somebody else (KIP-373).
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bytes, Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "CreatableRenewers",
    "CreateDelegationTokenRequest",
    "CreateDelegationTokenResponse",
]


class CreatableRenewers(Struct):
    """Somebody who may renew the token."""

    principal_type: String = ""
    principal_name: String = ""


@message(api_key=38, versions=range(1, 4), flexible_since=2)
class CreateDelegationTokenRequest(Message):
    """Without an owner the token is the asker's own."""

    owner_principal_type: Annotated[String | None, wire(since=3)] = None
    owner_principal_name: Annotated[String | None, wire(since=3)] = None
    renewers: list[CreatableRenewers] = field(default_factory=list)
    max_lifetime_ms: Int64 = 0


@message(api_key=38, versions=range(1, 4), flexible_since=2)
class CreateDelegationTokenResponse(Message):
    """The token, its owner, and how long it is good for."""

    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, wire(since=3)] = ""
    token_requester_principal_name: Annotated[String, wire(since=3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
