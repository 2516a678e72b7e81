"""DeleteAcls, API key 31: remove what matches filters from the access control lists. Pure.

Versions: 1 is the first, with kinds of patterns (KIP-290); 2 flexible; 3 users as resources.
"""

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
]


class DeleteAclsFilter(Struct):
    """What the resource, the principal and the permission must be; null lets every name pass."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = None
    host_filter: String | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(api_key=31, versions=range(1, 4), flexible_since=2)
class DeleteAclsRequest(Message):
    """The filters; what matches any of them goes."""

    filters: list[DeleteAclsFilter] = field(default_factory=list)


class DeleteAclsMatchingAcl(Struct):
    """An entry that matched, and whether it is gone."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    """What one filter has removed."""

    error_code: Int16 = 0
    error_message: String | None = None
    matching_acls: list[DeleteAclsMatchingAcl] = field(default_factory=list)


@message(api_key=31, versions=range(1, 4), flexible_since=2)
class DeleteAclsResponse(Message):
    """One result for each filter, in the order of the request."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)
