"""DescribeConfigs: say how topics, brokers and groups are configured, and why.

Any broker answers for topics, with their own configurations, behind those the settings of this broker, and the
witnesses of their partitions, if there are any; for groups, which need not exist; and under the empty name for what was
set for all brokers while they ran. A broker answers for itself alone. Loggers and client metrics have no configuration
here, and say so.
"""

from collections.abc import Generator, Hashable, Sequence

from barnabas_broker.config.entries import (
    ConfigEntry,
    all_brokers_entries,
    broker_entries,
    client_metrics_entries,
    group_entries,
    topic_entries,
    witness_entries,
)
from barnabas_broker.config.witness_rows import encode_witnesses
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import distinct
from barnabas_clients.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.client_metrics import CLIENT_METRICS
from barnabas_metadata_quorum.resource_configs import BROKER, GROUP, group_key
from barnabas_metadata_quorum.topic_names import name_complaint

__all__ = ["handle", "refuse"]

TOPIC = 2  # Kafka's ConfigResource.Type


class _RefusedError(Exception):
    def __init__(self, code: ErrorCode, text: str | None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def handle(
    broker: BrokerContext, _: Exchange, request: DescribeConfigsRequest
) -> Generator[None, None, DescribeConfigsResponse]:
    """Describe each resource once; if one is named again with other keys, the last ones count."""
    results = []
    for resource in (yield from distinct(request.resources, _key)):
        results.append(_one(broker, resource, request))
        yield
    return DescribeConfigsResponse(results=results)


def _key(resource: DescribeConfigsResource) -> Hashable:
    name = resource.resource_name
    return name if resource.resource_type == TOPIC else (resource.resource_type, name)


def refuse(request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    """Answer every resource with `code`."""
    return DescribeConfigsResponse(results=[_result(resource, code, None) for resource in request.resources])


def _result(resource: DescribeConfigsResource, code: ErrorCode, text: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=in_words(text),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _one(
    broker: BrokerContext, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        entries = _entries(broker, resource)
    except _RefusedError as refused:
        return _result(resource, refused.code, refused.text)
    result = _result(resource, ErrorCode.NONE, None)
    # An empty list of names asks for all of them, as in Kafka, although null is the way to say that.
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            synonyms=_synonyms(entry) if request.include_synonyms else [],
            config_type=entry.type,
            documentation=entry.documentation if request.include_documentation else None,
        )
        for entry in entries
        if not wanted or entry.name in wanted
    ]
    return result


def _synonyms(entry: ConfigEntry) -> list[DescribeConfigsSynonym]:
    return [DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in entry.synonyms]


def _entries(broker: BrokerContext, resource: DescribeConfigsResource) -> Sequence[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        complaint = name_complaint(name)
        if complaint is not None:
            raise _RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {complaint}")
        hosted = broker.partitions.topics.get(name)
        if hosted is None:
            raise _RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        entries = topic_entries(name, hosted.topic.configs, broker.settings)
        return entries + witness_entries(encode_witnesses(hosted.topic.partitions))
    if resource.resource_type == GROUP:
        if not name:
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(broker.image.resource_configs.get(group_key(name), {}), broker.settings)
    if resource.resource_type == CLIENT_METRICS:
        if not name:
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return client_metrics_entries(broker.image.resource_configs.get((CLIENT_METRICS, name), {}))
    if resource.resource_type != BROKER:
        text = (
            f"Resources of type {resource.resource_type} have no configuration here; "
            "topics (2), brokers (4), subscriptions to clients' metrics (16) and groups (32) have"
        )
        raise _RefusedError(ErrorCode.INVALID_REQUEST, text)
    if not name:
        return all_brokers_entries(broker.settings)
    if name != str(broker.node_id):
        digits = name.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            raise _RefusedError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        text = f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}"
        raise _RefusedError(ErrorCode.INVALID_REQUEST, text)
    return broker_entries(broker.settings)
