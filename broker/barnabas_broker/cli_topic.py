"""`barnabas topic …`: what kafka-topics.sh does, with its option names, over our own client."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from barnabas_clients import admin
from barnabas_clients.cluster_view import TopicView
from barnabas_clients.connections import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from .cli_cluster import settings_from
from .cluster_files import ClusterError

__all__ = ["create", "delete", "describe", "list_"]

T = TypeVar("T")
# What a topic's offsets may take: they are worth less than the rest of the description.
OFFSETS_TIMEOUT_S = 2.0


def create(
    bootstrap: str,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Sequence[str],
    timeout_s: float,
    *,
    if_not_exists: bool,
) -> int:
    """Create a topic and wait for its leaders."""
    if partitions == 0 or partitions < -1:
        raise ClusterError(f"--partitions {partitions} does not work: it must be 1 or more")
    if not -1 <= replication_factor <= 32_767 or replication_factor == 0:
        raise ClusterError(f"--replication-factor {replication_factor} does not work: it must be 1 or more")
    settings = settings_from(configs)

    async def run(cluster: Cluster) -> None:
        try:
            view = await admin.create_topic(
                cluster, name, partitions, replication_factor, settings, timeout_s=timeout_s
            )
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            print(f"{name} exists")
        else:
            replicas = len(next(iter(view.partitions.values())).replicas)
            print(f"created {name}: {len(view.partitions)} partitions, {replicas} replicas each")

    _with_cluster(bootstrap, timeout_s, run)
    return 0


def list_(bootstrap: str, timeout_s: float, *, as_json: bool, include_internal: bool) -> int:
    """Print the topics' names, or everything about them as JSON."""
    topics = _with_cluster(
        bootstrap,
        timeout_s,
        lambda cluster: admin.list_topics(cluster, timeout_s, include_internal=include_internal),
    )
    if as_json:
        print(json.dumps([_as_json(topic, {}) for topic in topics], indent=2))
    else:
        for topic in topics:
            print(topic.name)
    return 0


def describe(bootstrap: str, name: str, timeout_s: float, *, as_json: bool) -> int:
    """Print who leads and holds each partition, and which offsets it has."""

    async def run(cluster: Cluster) -> tuple[TopicView, dict[int, tuple[int, int]]]:
        (topic,) = await admin.describe_topics(cluster, [name], timeout_s)
        return topic, await _offsets(cluster, topic, min(timeout_s, OFFSETS_TIMEOUT_S))

    topic, offsets = _with_cluster(bootstrap, timeout_s, run)
    if as_json:
        print(json.dumps(_as_json(topic, offsets), indent=2))
    else:
        _show(topic, offsets)
    return 0


def delete(bootstrap: str, name: str, timeout_s: float, *, if_exists: bool) -> int:
    """Delete a topic."""

    async def run(cluster: Cluster) -> None:
        # Asked for first, because deleting retries an unknown topic: a broker may not have heard of it yet.
        try:
            await admin.describe_topics(cluster, [name], timeout_s)
        except UnknownTopicOrPartitionError:
            if not if_exists:
                raise
            print(f"{name} does not exist")
            return
        await admin.delete_topics(cluster, [name], timeout_s)
        print(f"deleted {name}")

    _with_cluster(bootstrap, timeout_s, run)
    return 0


def _with_cluster(bootstrap: str, timeout_s: float, use: Callable[[Cluster], Awaitable[T]]) -> T:
    async def main() -> T:
        try:
            cluster = Cluster(bootstrap, client_id="barnabas-cli", request_timeout_s=timeout_s)
        except ValueError as error:
            raise ClusterError(f"--bootstrap-server: {error}") from error
        async with cluster:
            return await use(cluster)

    return asyncio.run(main())


async def _offsets(cluster: Cluster, topic: TopicView, timeout_s: float) -> dict[int, tuple[int, int]]:
    """Return (start, end) of every partition; nothing if some cannot be had, since the rest is worth showing."""
    keys = [(topic.name, partition) for partition in topic.partitions]
    try:
        starts, ends = await asyncio.gather(
            admin.list_offsets(cluster, dict.fromkeys(keys, int(admin.OffsetSpec.EARLIEST)), timeout_s),
            admin.list_offsets(cluster, dict.fromkeys(keys, int(admin.OffsetSpec.LATEST)), timeout_s),
        )
    except ClientError:
        return {}
    return {key[1]: (starts[key].offset, ends[key].offset) for key in keys}


def _as_json(topic: TopicView, offsets: dict[int, tuple[int, int]]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex() if topic.topic_id else None,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "partition": view.partition,
                "leader": view.leader_id,
                "leader_epoch": view.leader_epoch,
                "replicas": list(view.replicas),
                "isr": list(view.in_sync_replicas),
                "offline_replicas": list(view.offline_replicas),
            }
            | (
                dict(zip(("start_offset", "end_offset"), offsets[view.partition], strict=True))
                if view.partition in offsets
                else {}
            )
            for _, view in sorted(topic.partitions.items())
        ],
    }


def _show(topic: TopicView, offsets: dict[int, tuple[int, int]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to load, and only needed here
    from rich.table import Table  # noqa: PLC0415 - see above

    console = Console(highlight=False, soft_wrap=True)
    topic_id = topic.topic_id.hex() if topic.topic_id else "none"
    console.print(f"{topic.name}  id {topic_id}  {len(topic.partitions)} partitions", markup=False)
    table = Table("partition", "leader", "epoch", "replicas", "in sync", "offsets", box=None, pad_edge=False)
    for partition, view in sorted(topic.partitions.items()):
        table.add_row(
            str(partition),
            str(view.leader_id) if view.leader_id >= 0 else "[red]none[/]",
            str(view.leader_epoch),
            ",".join(map(str, view.replicas)),
            ",".join(map(str, view.in_sync_replicas)),
            "{} to {}".format(*offsets[partition]) if partition in offsets else "-",
        )
    console.print(table)
