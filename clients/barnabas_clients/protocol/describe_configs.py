"""DescribeConfigs, API key 32: the configuration of topics, brokers and other resources. Pure.

Versions: 1 synonyms and sources; 3 types and documentation; 4 flexible.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int8, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
]


class DescribeConfigsResource(Struct):
    """A resource; null `configuration_keys` asks for all of its configurations."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Sequence[String] | None = None


@message(api_key=32, versions=range(1, 5), flexible_since=4)
class DescribeConfigsRequest(Message):
    """The resources to describe, and the wanted details."""

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, wire(since=3)] = False


class DescribeConfigsSynonym(Struct):
    """Another place where a configuration is set, in order of precedence."""

    name: String = ""
    value: String | None = None
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    """One configuration; null `value` for one that is sensitive."""

    name: String = ""
    value: String | None = None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: Annotated[Int8, wire(since=3)] = 0
    documentation: Annotated[String | None, wire(since=3)] = None


class DescribeConfigsResult(Struct):
    """The configurations of one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


@message(api_key=32, versions=range(1, 5), flexible_since=4)
class DescribeConfigsResponse(Message):
    """One result for each resource of the request."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)
