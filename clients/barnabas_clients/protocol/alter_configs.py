"""AlterConfigs, API key 33: replace all configurations of resources. Pure.

A configuration that is not named goes back to its default.

Versions: 1 is 0 again; 2 flexible.
"""

from barnabas_raftlog.wire.schema import Bool, Int8, Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
    "AlterableConfig",
]


class AlterableConfig(Struct):
    """One configuration and its value."""

    name: String = ""
    value: String | None = None


class AlterConfigsResource(Struct):
    """The changes to one resource."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@message(api_key=33, versions=range(3), flexible_since=2)
class AlterConfigsRequest(Message):
    """The changes to resources; `validate_only` only checks them."""

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""


@message(api_key=33, versions=range(3), flexible_since=2)
class AlterConfigsResponse(Message):
    """One result for each resource of the request."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
