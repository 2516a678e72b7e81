"""`barnabas topic …`: administer topics, with the option names of Kafka's tools, over `Admin`."""

import asyncio
import difflib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas_broker.cli.admin import with_admin
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.output import complain, print_table, say, say_json
from barnabas_broker.cli.times import timestamp_ms
from barnabas_broker.config.witness_rows import decode_witnesses
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import ConfigEntry, ConfigResource, OffsetSpec
from barnabas_clients.admin.configs import ConfigSource
from barnabas_clients.cluster.view import TopicView
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

__all__ = ["alter", "create", "delete", "delete_records", "describe", "list_"]

# Time for a topic's offsets and configurations: they are worth less than the rest of the description.
DETAILS_TIMEOUT_S = 2.0
ALL_RECORDS = -1
NO_WITNESS = (
    "with 2 replicas and no third broker for a witness a partition stops when either broker does; "
    "`barnabas reassign` adds the witness when there is a third broker"
)

Offsets = dict[int, tuple[int, int]]
Configs = dict[str, ConfigEntry]


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
    from .cluster import settings_from  # noqa: PLC0415 - loads what starts clusters, for one function

    if partitions == 0 or partitions < -1:
        raise CommandError(f"--partitions {partitions} does not work: it must be 1 or more")
    if not -1 <= replication_factor <= 32_767 or replication_factor == 0:
        raise CommandError(f"--replication-factor {replication_factor} does not work: it must be 1 or more")
    settings = settings_from(configs)

    async def run(admin: Admin) -> None:
        try:
            view = await admin.create_topic(name, partitions, replication_factor, settings)
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            say(f"{name} exists")
        else:
            replicas = len(next(iter(view.partitions.values())).replicas)
            say(f"created {name}: {len(view.partitions)} partitions, {replicas} replicas each")
            if replicas == 2 and len(_witnesses(await _configs(admin, name, DETAILS_TIMEOUT_S))) < len(view.partitions):
                complain(NO_WITNESS)

    with_admin(bootstrap, timeout_s, run)
    return 0


def list_(bootstrap: str, timeout_s: float, *, as_json: bool, include_internal: bool) -> int:
    """Print the topics' names, or everything about them as JSON."""
    topics = with_admin(bootstrap, timeout_s, lambda admin: admin.list_topics(include_internal=include_internal))
    if as_json:
        say_json([_as_json(topic, {}, {}) for topic in topics])
    elif topics:
        say(*(topic.name for topic in topics))
    return 0


def describe(bootstrap: str, name: str, timeout_s: float, *, as_json: bool) -> int:
    """Print the leader, replicas and offsets of each partition, and the configurations."""

    async def run(admin: Admin) -> tuple[TopicView, Offsets, Configs]:
        (topic,) = await admin.describe_topics([name])
        limit_s = min(timeout_s, DETAILS_TIMEOUT_S)
        return topic, *await asyncio.gather(_offsets(admin, topic, limit_s), _configs(admin, name, limit_s))

    topic, offsets, configs = with_admin(bootstrap, timeout_s, run)
    if as_json:
        rows = {entry.name: {"value": entry.value, "source": entry.source.name} for entry in configs.values()}
        say_json(_as_json(topic, offsets, _witnesses(configs)) | {"configs": rows})
    else:
        _show(topic, offsets, configs)
    return 0


def alter(
    bootstrap: str,
    name: str,
    partitions: int | None,
    configs: Sequence[str],
    delete_configs: Sequence[str],
    timeout_s: float,
) -> int:
    """Give a topic more partitions, or configure it differently."""
    from .cluster import settings_from  # noqa: PLC0415 - loads what starts clusters, for one function

    if partitions is None and not configs and not delete_configs:
        raise CommandError("say what to alter: --partitions N, --config NAME=VALUE or --delete-config NAME")
    if partitions is not None and partitions < 1:
        raise CommandError(f"--partitions {partitions} does not work: it must be 1 or more")
    changes: dict[str, str | None] = dict(settings_from(configs))
    if both := sorted(changes.keys() & set(delete_configs)):
        raise CommandError(f"{both[0]} cannot be set and deleted at once")
    changes |= dict.fromkeys(delete_configs)

    async def run(admin: Admin) -> None:
        if delete_configs:
            # Brokers, Kafka's too, take the deletion of a name that they do not know for done.
            await _refuse_unknown(admin, name, delete_configs)
        if changes:
            await admin.alter_configs(ConfigResource.topic(name), changes)
            said = [f"{key} deleted" if value is None else f"{key}={value}" for key, value in changes.items()]
            say(f"{name}: {', '.join(said)}")
        if partitions is not None:
            await _grow(admin, name, partitions)

    with_admin(bootstrap, timeout_s, run)
    return 0


async def _refuse_unknown(admin: Admin, name: str, configs: Sequence[str]) -> None:
    resource = ConfigResource.topic(name)
    known = (await admin.describe_configs([resource]))[resource]
    for config in configs:
        if config not in known:
            close = difflib.get_close_matches(config, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise CommandError(f"a topic has no configuration {config!r}; {hint}")


async def _grow(admin: Admin, name: str, partitions: int) -> None:
    (before,) = await admin.describe_topics([name])
    if len(before.partitions) > partitions:
        had = len(before.partitions)
        raise CommandError(f"{name} has {had} partitions; their number can grow and never shrink")
    if len(before.partitions) < partitions:
        await admin.create_partitions(name, partitions)
    say(f"{name}: {partitions} partitions, before {len(before.partitions)}")


def delete(bootstrap: str, name: str, timeout_s: float, *, if_exists: bool) -> int:
    """Delete a topic."""

    async def run(admin: Admin) -> None:
        try:
            await admin.delete_topics([name])
        except UnknownTopicOrPartitionError:
            if not if_exists:
                raise
            say(f"{name} does not exist")
        else:
            say(f"deleted {name}")

    with_admin(bootstrap, timeout_s, run)
    return 0


def delete_records(
    bootstrap: str,
    name: str,
    partitions: Sequence[int],
    before_offset: int | None,
    before_time: str | None,
    timeout_s: float,
    *,
    everything: bool,
) -> int:
    """Delete the beginning of some partitions, or of all."""
    if (before_offset is not None) + (before_time is not None) + everything != 1:
        raise CommandError("say which records to delete: --before-offset N, --before-time T, or --all")
    if before_offset is not None and before_offset < 0:
        raise CommandError(f"--before-offset {before_offset} does not work: it must be 0 or more")
    at_ms = None if before_time is None else timestamp_ms(before_time, int(time.time() * 1000))

    async def run(admin: Admin) -> dict[TopicPartition, int]:
        (topic,) = await admin.describe_topics([name])
        chosen = [TopicPartition(name, number) for number in sorted(set(partitions) or topic.partitions)]
        before = dict.fromkeys(chosen, ALL_RECORDS if before_offset is None else before_offset)
        if at_ms is not None:
            # -1 is both "no record is that late" and "delete all there are", which is right.
            found = await admin.list_offsets(dict.fromkeys(chosen, at_ms))
            before = {key: listed.offset for key, listed in found.items()}
        return await admin.delete_records(before)

    starts = with_admin(bootstrap, timeout_s, run)
    for key, start in starts.items():
        say(f"{key} starts at {start}")
    return 0


async def _offsets(admin: Admin, topic: TopicView, timeout_s: float) -> Offsets:
    """Return (start, end) of every partition; nothing if some cannot be had, since the rest is worth showing."""
    keys = [TopicPartition(topic.name, partition) for partition in topic.partitions]
    try:
        starts, ends = await asyncio.gather(
            admin.list_offsets(dict.fromkeys(keys, int(OffsetSpec.EARLIEST)), timeout_s=timeout_s),
            admin.list_offsets(dict.fromkeys(keys, int(OffsetSpec.LATEST)), timeout_s=timeout_s),
        )
    except ClientError:
        return {}
    return {key.partition: (starts[key].offset, ends[key].offset) for key in keys}


async def _configs(admin: Admin, name: str, timeout_s: float) -> Configs:
    """Return the topic's configurations; nothing from a broker that cannot say."""
    resource = ConfigResource.topic(name)
    try:
        return (await admin.describe_configs([resource], timeout_s=timeout_s))[resource]
    except ClientError:
        return {}


def _witnesses(configs: Configs) -> dict[int, int]:
    """Return the witness of each partition that has one, as far as the cluster says."""
    return decode_witnesses({name: entry.value for name, entry in configs.items()})


def _as_json(topic: TopicView, offsets: Offsets, witnesses: Mapping[int, int]) -> dict[str, Any]:
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
            | ({"witness": witnesses[view.partition]} if view.partition in witnesses else {})
            | (
                dict(zip(("start_offset", "end_offset"), offsets[view.partition], strict=True))
                if view.partition in offsets
                else {}
            )
            for _, view in sorted(topic.partitions.items())
        ],
    }


def _show(topic: TopicView, offsets: Offsets, configs: Configs) -> None:
    from rich.text import Text  # noqa: PLC0415 - slow to load, and only needed here

    header = (
        f"{topic.name}  id {topic.topic_id.hex() if topic.topic_id else 'none'}  {len(topic.partitions)} partitions"
    )
    own = [f"{entry.name}={entry.value}" for entry in configs.values() if entry.source is ConfigSource.TOPIC]
    witnesses = _witnesses(configs)
    print_table(
        ("partition", "leader", "epoch", "replicas", "in sync", "offsets", *(["witness"] if witnesses else [])),
        [
            (
                partition,
                view.leader_id if view.leader_id >= 0 else Text("none", "red"),
                view.leader_epoch,
                ",".join(map(str, view.replicas)),
                ",".join(map(str, view.in_sync_replicas)),
                "{} to {}".format(*offsets[partition]) if partition in offsets else None,
                *([witnesses.get(partition)] if witnesses else []),
            )
            for partition, view in sorted(topic.partitions.items())
        ],
        [header, *own],
    )
