"""CreateAcls, API key 30: add to the access control lists. Pure.

Versions: 1 is the first, with kinds of patterns (KIP-290); 2 flexible; 3 users as resources.
"""

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "AclCreation",
    "AclCreationResult",
    "CreateAclsRequest",
    "CreateAclsResponse",
]


class AclCreation(Struct):
    """Who may, or may not, do what with a resource, and from where."""

    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(api_key=30, versions=range(1, 4), flexible_since=2)
class CreateAclsRequest(Message):
    """The entries to add."""

    creations: list[AclCreation] = field(default_factory=list)


class AclCreationResult(Struct):
    """The fate of one entry."""

    error_code: Int16 = 0
    error_message: String | None = None


@message(api_key=30, versions=range(1, 4), flexible_since=2)
class CreateAclsResponse(Message):
    """One fate for each entry, in the order of the request."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = field(default_factory=list)
