"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken: there are no tokens.

Every answer says so, as a broker of Kafka does that has no secret for them. (To whom it does not know, Kafka does not
say even that, but that the connection is not one on which to ask.)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas_clients.protocol.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas_clients.protocol.registry import Message
from barnabas_clients.protocol.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

__all__ = ["CREATE", "DESCRIBE", "EXPIRE", "RENEW"]

USER = "User"
NOBODY = "ANONYMOUS"  # whom Kafka takes a client for that has not said who it is
NEVER = -1


class _Disabled(NamedTuple):
    refuse: Callable[[Any, ErrorCode], Message]

    def handle(self, _: BrokerContext, __: Exchange, request: Any) -> Message:
        return self.refuse(request, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _create(request: CreateDelegationTokenRequest, code: ErrorCode) -> CreateDelegationTokenResponse:
    owner = request.owner_principal_name or ""
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=(request.owner_principal_type or "") if owner else USER,
        principal_name=owner or NOBODY,
        token_requester_principal_type=USER,
        token_requester_principal_name=NOBODY,
        issue_timestamp_ms=NEVER,
        expiry_timestamp_ms=NEVER,
        max_timestamp_ms=NEVER,
    )


def _renew(_: RenewDelegationTokenRequest, code: ErrorCode) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NEVER)


def _expire(_: ExpireDelegationTokenRequest, code: ErrorCode) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NEVER)


def _describe(_: DescribeDelegationTokenRequest, code: ErrorCode) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code)


CREATE = _Disabled(_create)
RENEW = _Disabled(_renew)
EXPIRE = _Disabled(_expire)
DESCRIBE = _Disabled(_describe)
