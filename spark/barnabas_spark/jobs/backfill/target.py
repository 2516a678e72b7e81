"""Asks the brokers about the topic that is written, and keeps the marker there."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_clients.admin.configs import describe_configs
from barnabas_clients.admin.groups import alter_group_offsets, delete_groups, group_offsets
from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.values import ConfigResource, OffsetSpec
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_spark.clusters import cluster_for, run
from barnabas_spark.lake.logs import ask_logs
from barnabas_spark.options.reads import ReadOptions

from .marker import Marker, group_of, read_marker

__all__ = ["Target", "ask_target", "end_of", "forget_marker", "keep_marker"]


class Target(NamedTuple):
    """A topic: where its logs start and end, what it does with timestamps and old records, and the marker, if any.

    `begins` are where its logs ended when the marker was set.
    """

    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    configs: Mapping[str, str]
    marker: Marker | None
    begins: Mapping[int, int]

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing was ever written to it."""
        return not any(self.ends.values())


def ask_target(options: ReadOptions, topic: str) -> Target:
    """Ask for all of it.

    Raises:
        KafkaError, ClientError: the topic does not exist, or no broker answers.
    """
    logs = ask_logs(options, topic)
    timeout_s = options.poll_timeout_ms / 1000

    async def ask() -> tuple[dict[str, str], dict[int, OffsetAndMetadata]]:
        cluster = await cluster_for(options, is_driver=True)
        resource = ConfigResource.topic(topic)
        configs = (await describe_configs(cluster, [resource], timeout_s))[resource]
        stored = await group_offsets(cluster, group_of(topic), timeout_s)
        found = {key.partition: at for key, at in stored.items() if key.topic == topic and at is not None}
        return {name: entry.value or "" for name, entry in configs.items()}, found

    configs, found = run(ask(), timeout_s)
    markers = {partition: read_marker(at.metadata) for partition, at in found.items()}
    whole = set(markers) == set(logs.partitions) and len(set(markers.values())) == 1
    return Target(
        logs.topic_id,
        {partition: log.start_offset for partition, log in logs.partitions.items()},
        {partition: log.end_offset for partition, log in logs.partitions.items()},
        configs,
        next(iter(markers.values())) if whole else None,
        {partition: at.offset for partition, at in found.items()},
    )


def keep_marker(options: ReadOptions, topic: str, marker: Marker, ends: Mapping[int, int]) -> None:
    """Set the marker, before the first row is written."""
    timeout_s = options.poll_timeout_ms / 1000
    text = marker.encode()
    positions = {TopicPartition(topic, each): OffsetAndMetadata(end, metadata=text) for each, end in ends.items()}

    async def keep() -> None:
        cluster = await cluster_for(options, is_driver=True)
        await alter_group_offsets(cluster, group_of(topic), positions, timeout_s)

    run(keep(), timeout_s)


def forget_marker(options: ReadOptions, topic: str) -> None:
    """Take the marker away: the back-fill is done."""
    timeout_s = options.poll_timeout_ms / 1000

    async def forget() -> None:
        await delete_groups(await cluster_for(options, is_driver=True), [group_of(topic)], timeout_s)

    run(forget(), timeout_s)


def end_of(options: ReadOptions, topic: str, partition: int) -> int:
    """Return where the log of a partition ends now. For tasks."""
    timeout_s = options.poll_timeout_ms / 1000

    async def ask() -> int:
        cluster = await cluster_for(options, is_driver=False)
        key = TopicPartition(topic, partition)
        return (await list_offsets(cluster, {key: OffsetSpec.LATEST}, timeout_s))[key].offset

    return run(ask(), timeout_s)
