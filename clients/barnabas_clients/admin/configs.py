"""Changing configurations, as a function over a `Cluster`: what `Admin.alter_configs` does.

Only what is named changes (IncrementalAlterConfigs, KIP-339): the older request that replaces everything would undo
what somebody else set a moment before. Setting twice what was set once changes nothing, so a lost answer is asked for
again.

Not here: appending to lists, item by item. Describe the list, and set what it is to be.
"""

from collections.abc import Mapping

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.errors import error_for
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

from .offsets import left_s
from .topics import ConfigResource, ConfigResourceType, known_topics

__all__ = ["alter_configs"]

SET, DELETE = 0, 1


async def alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    configs: Mapping[str, str | None],
    timeout_s: float,
    *,
    validate_only: bool = False,
) -> None:
    """Set configurations of one resource; None deletes one, so that its default counts again.

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
        if resource.type is ConfigResourceType.BROKER:
            response = await cluster.ask_broker(int(resource.name), request, left_s(deadline))
        else:
            response = await cluster.ask_controller(request, left_s(deadline))
        assert isinstance(response, IncrementalAlterConfigsResponse)
        for row in response.responses:
            if row.error_code:
                said = f": {row.error_message}" if row.error_message else ""
                raise error_for(row.error_code, f"{row.resource_name}{said}")

    await cluster.retry(f"altering the configuration of {resource.name}", timeout_s, attempt)
