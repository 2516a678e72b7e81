"""Describes and changes the configurations of topics, brokers and groups: functions over a `Cluster`.

*Changing.* Only the named configurations change (IncrementalAlterConfigs, KIP-339). The older request, which replaces
all of them, would undo changes that others made a moment before. Setting a value twice does no harm, so a request whose
answer was lost is repeated.

Not here: appending to lists, item by item. Describe the list, and set the whole new list.
"""

import asyncio
from collections.abc import Mapping, Sequence

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas_clients.protocol.errors import ErrorCode, error_for
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_clients.protocol.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

from .attempts import raise_for
from .offsets import left_s
from .topics import known_topics
from .values import ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource

__all__ = ["alter_configs", "describe_configs", "list_config_resources"]

SET = 0
DELETE = 1


async def list_config_resources(
    cluster: Cluster, types: Sequence[ConfigResourceType], timeout_s: float
) -> list[ConfigResource]:
    """Return all resources of some types that can be configured, or are, sorted.

    Raises:
        UnsupportedVersionError: the brokers do not tell (before Apache Kafka 4.1).
        DeadlineExceededError: no answer in time.
    """
    known = {int(one) for one in types}
    request = ListConfigResourcesRequest(resource_types=sorted(known))

    async def attempt(deadline: float) -> ListConfigResourcesResponse:
        # Version 0 is about subscriptions to clients' metrics alone.
        found: ListConfigResourcesResponse = await cluster.ask_any(request, left_s(deadline), range(1, 2))
        raise_for(found.error_code, "listing resources", None)
        return found

    response = await cluster.retry("listing resources", timeout_s, attempt)
    return sorted(
        ConfigResource(ConfigResourceType(row.resource_type), row.resource_name)
        for row in response.config_resources
        if row.resource_type in known
    )


async def describe_configs(
    cluster: Cluster, resources: Sequence[ConfigResource], timeout_s: float, *, include_documentation: bool = False
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Return the configurations of topics, brokers and groups by name. A broker is asked about itself.

    Raises:
        KafkaError: the first refusal, naming the resource.
        UnknownLeaderError: a broker is not in the cluster.
        DeadlineExceededError: no answer in time.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    if topics := [resource.name for resource in resources if resource.type is ConfigResourceType.TOPIC]:
        await known_topics(cluster, topics, timeout_s)
    found: dict[ConfigResource, dict[str, ConfigEntry]] = {}

    def take(response: DescribeConfigsResponse) -> None:
        for row in response.results:
            raise_for(row.error_code, row.resource_name, row.error_message)
            resource = ConfigResource(ConfigResourceType(row.resource_type), row.resource_name)
            found[resource] = {
                config.name: _entry(config) for config in sorted(row.configs, key=lambda config: config.name)
            }

    async def attempt(deadline: float) -> None:
        # Any broker knows all configurations but those of another broker. Of all brokers and of groups the controller
        # is asked: what this client has just altered is known there first.
        asked: dict[int | None, list[ConfigResource]] = {}
        for resource in resources:
            if resource not in found:
                node_id = _broker_of(resource)
                asked.setdefault(node_id, []).append(resource)
        for node_id, wanted in asked.items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=int(resource.type), resource_name=resource.name)
                    for resource in wanted
                ],
                include_synonyms=include_documentation,
                include_documentation=include_documentation,
            )
            if node_id is None:
                is_topics = all(resource.type is ConfigResourceType.TOPIC for resource in wanted)
                ask = cluster.ask_any if is_topics else cluster.ask_controller
                take(await ask(request, left_s(deadline)))
            else:
                take(await cluster.ask_broker(node_id, request, left_s(deadline)))

        for resource in resources:
            if resource not in found:
                raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"a broker said nothing of {resource.name}")

    await cluster.retry("describing configurations", left_s(deadline), attempt)
    return {resource: found[resource] for resource in resources}


async def alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    configs: Mapping[str, str | None],
    timeout_s: float,
    *,
    validate_only: bool = False,
) -> None:
    """Set configurations of one resource. None deletes one, so that its default counts again.

    Cancellation: the change may happen nevertheless.

    Raises:
        KafkaError: refused, and nothing was changed.
        DeadlineExceededError: no answer in time; it may be changed.
    """
    if resource.type is ConfigResourceType.TOPIC:
        await known_topics(cluster, [resource.name], timeout_s)
    rows = [
        IncrementalAlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in sorted(configs.items())
    ]
    named = IncrementalAlterConfigsResource(resource_type=int(resource.type), resource_name=resource.name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[named], validate_only=validate_only)

    async def attempt(deadline: float) -> None:
        if (node_id := _broker_of(resource)) is not None:
            response = await cluster.ask_broker(node_id, request, left_s(deadline))
        else:
            response = await cluster.ask_controller(request, left_s(deadline))
        assert isinstance(response, IncrementalAlterConfigsResponse)
        for row in response.responses:
            raise_for(row.error_code, row.resource_name, row.error_message)

    await cluster.retry(f"altering the configuration of {resource.name}", timeout_s, attempt)


def _broker_of(resource: ConfigResource) -> int | None:
    """Return the one broker that can be asked about a resource, and told to change it; None: any."""
    return int(resource.name) if resource.type is ConfigResourceType.BROKER and resource.name else None


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    # The places that set it, the one that counts first; of defaults there is one, for a broker or a topic.
    defaults = [one.value for one in row.synonyms if one.source == ConfigSource.DEFAULT]
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=_source_of(row.config_source),
        read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        default=defaults[0] if defaults else None,
        documentation=row.documentation or None,
    )


def _source_of(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource.__members__.values() else ConfigSource.UNKNOWN
