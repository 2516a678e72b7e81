"""IncrementalAlterConfigs, API key 44: change some configurations of resources, and no others. Pure.

Versions: 1 flexible.
"""

from barnabas_raftlog.wire.schema import Bool, Int8, Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResource",
    "IncrementalAlterConfigsResourceResponse",
    "IncrementalAlterConfigsResponse",
    "IncrementalAlterableConfig",
]


class IncrementalAlterableConfig(Struct):
    """One configuration; `config_operation` is 0 set, 1 delete, 2 append to a list, 3 take out of one."""

    name: String = ""
    config_operation: Int8 = 0
    value: String | None = None


class IncrementalAlterConfigsResource(Struct):
    """The changes to one resource."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[IncrementalAlterableConfig] = field(default_factory=list)


@message(api_key=44, versions=range(2), flexible_since=1)
class IncrementalAlterConfigsRequest(Message):
    """The changes to resources; `validate_only` only checks them."""

    resources: list[IncrementalAlterConfigsResource] = field(default_factory=list)
    validate_only: Bool = False


class IncrementalAlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""


@message(api_key=44, versions=range(2), flexible_since=1)
class IncrementalAlterConfigsResponse(Message):
    """One result for each resource of the request."""

    throttle_time_ms: Int32 = 0
    responses: list[IncrementalAlterConfigsResourceResponse] = field(default_factory=list)
