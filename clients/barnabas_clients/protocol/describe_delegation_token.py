"""DescribeDelegationToken, API key 41: the tokens of users (KIP-48). Pure.

Versions: 1 is the first; 2 flexible; 3 who has asked for each (KIP-373).
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bytes, Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "DescribeDelegationTokenOwner",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "DescribedDelegationToken",
    "DescribedDelegationTokenRenewer",
]


class DescribeDelegationTokenOwner(Struct):
    """A user."""

    principal_type: String = ""
    principal_name: String = ""


@message(api_key=41, versions=range(1, 4), flexible_since=2)
class DescribeDelegationTokenRequest(Message):
    """The users whose tokens are wanted; null: everybody's."""

    owners: list[DescribeDelegationTokenOwner] | None = None


class DescribedDelegationTokenRenewer(Struct):
    """Somebody who may renew the token."""

    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, wire(since=3)] = ""
    token_requester_principal_name: Annotated[String, wire(since=3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = field(default_factory=list)


@message(api_key=41, versions=range(1, 4), flexible_since=2)
class DescribeDelegationTokenResponse(Message):
    """The tokens that the asker may see."""

    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = field(default_factory=list)
    throttle_time_ms: Int32 = 0
