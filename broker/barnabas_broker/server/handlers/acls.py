"""DescribeAcls, CreateAcls, DeleteAcls: there are no access control lists, and every answer says so.

It is what a broker of Kafka says that has no authorizer. Nothing in a request is looked at, so what Kafka cannot read
(an unknown kind of resource, say) is answered likewise, where Kafka closes the connection.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas_clients.protocol.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from barnabas_clients.protocol.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message

__all__ = ["CREATE", "DELETE", "DESCRIBE", "WITHOUT_ACLS"]

WITHOUT_ACLS = "There are no access control lists: whoever reaches a broker may do everything."


class _Disabled(NamedTuple):
    refuse: Callable[[Any, ErrorCode], Message]

    def handle(self, _: BrokerContext, __: Exchange, request: Any) -> Message:
        return self.refuse(request, ErrorCode.SECURITY_DISABLED)


def _text(code: ErrorCode) -> str | None:
    return WITHOUT_ACLS if code == ErrorCode.SECURITY_DISABLED else None


def _describe(_: DescribeAclsRequest, code: ErrorCode) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=_text(code))


def _create(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    # One row as often as there are entries: nobody changes it.
    row = AclCreationResult(error_code=code, error_message=_text(code))
    return CreateAclsResponse(results=[row] * len(request.creations))


def _delete(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    row = DeleteAclsFilterResult(error_code=code, error_message=_text(code))
    return DeleteAclsResponse(filter_results=[row] * len(request.filters))


DESCRIBE = _Disabled(_describe)
CREATE = _Disabled(_create)
DELETE = _Disabled(_delete)
