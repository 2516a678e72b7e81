"""DescribeAcls, API key 29: the access control lists that match a filter. Pure.

Versions: 1 is the first, with kinds of patterns (KIP-290); 2 flexible; 3 users as resources.
"""

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "AclDescription",
    "DescribeAclsRequest",
    "DescribeAclsResource",
    "DescribeAclsResponse",
]


@message(api_key=29, versions=range(1, 4), flexible_since=2)
class DescribeAclsRequest(Message):
    """What the resource, the principal and the permission must be; null lets every name pass."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = None
    host_filter: String | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Struct):
    """Who may, or may not, do what, and from where."""

    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    """A resource, or a pattern of some, and what holds for it."""

    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = field(default_factory=list)


@message(api_key=29, versions=range(1, 4), flexible_since=2)
class DescribeAclsResponse(Message):
    """What matches."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    resources: list[DescribeAclsResource] = field(default_factory=list)
