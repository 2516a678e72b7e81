"""Creates, alters and deletes topics, with the option names of Kafka's tools.

Several topics are changed one after the other, each with its result; what is refused does not keep the others. But a
deletion or an alteration does nothing at all if one of its topics does not exist: a mistyped name is a sign of haste.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas_broker.cli.commands.administration.calls import administer, for_each, usage
from barnabas_broker.cli.commands.administration.config_values import config_values, refused_config, unknown_config
from barnabas_broker.cli.commands.administration.names import compiled, some_topics
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.limits import check_replication_factor
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.cli.wording import counted
from barnabas_clients import Admin
from barnabas_clients.admin.client import ConfigResource
from barnabas_clients.cluster.topic_view import TopicView
from barnabas_clients.protocol.errors import KafkaError, TopicAlreadyExistsError

from .description import DETAILS_TIMEOUT_S, configs_of, witnesses_in

__all__ = ["alter", "change_configs", "create", "delete"]

NO_WITNESS = (
    "with 2 replicas and no third broker for a witness a partition stops when either broker does; "
    "`barnabas reassign` adds the witness when there is a third broker"
)


def create(
    bootstrap: str,
    names: Sequence[str],
    partitions: int,
    replication_factor: int,
    configs: Sequence[str],
    timeout_s: float,
    *,
    if_not_exists: bool,
    as_json: bool,
) -> int:
    """Create topics and wait for their leaders."""
    if partitions == 0 or partitions < -1:
        raise UsageError(f"--partitions must be 1 or more, or -1 for the cluster's default, not {partitions}")
    check_replication_factor(replication_factor)
    check_topic_names(names)
    with usage("--config"):
        settings = config_values(configs)

    async def run(admin: Admin) -> int:
        async def one(name: str) -> None:
            try:
                view = await admin.create_topic(name, partitions, replication_factor, settings)
            except TopicAlreadyExistsError as error:
                if not if_not_exists:
                    raise CommandError(f"the topic {name!r} exists already [{error.code.name}]") from error
                _tell({"name": name, "created": False}, f"{name} exists", as_json=as_json)
            except KafkaError as error:
                raise CommandError(refused_config(error, settings)) from error
            else:
                await _tell_created(admin, view, as_json=as_json)

        return await for_each(dict.fromkeys(names), one)

    return administer(bootstrap, timeout_s, run)


async def _tell_created(admin: Admin, view: TopicView, *, as_json: bool) -> None:
    count, replicas = len(view.partitions), len(next(iter(view.partitions.values())).replicas)
    _tell(
        {"name": view.name, "created": True, "partitions": count, "replicas": replicas},
        f"created {view.name}: {counted(count, 'partition')}, {counted(replicas, 'replica')}"
        + (" each" if count > 1 else ""),
        as_json=as_json,
    )
    if replicas == 2:
        found = await configs_of(admin, [view.name], DETAILS_TIMEOUT_S)
        if len(witnesses_in(found.get(view.name, {}))) < count:
            complain(NO_WITNESS)


def alter(
    bootstrap: str,
    names: Sequence[str],
    patterns: Sequence[str],
    partitions: int | None,
    configs: Sequence[str],
    delete_configs: Sequence[str],
    timeout_s: float,
    *,
    as_json: bool,
) -> int:
    """Give topics more partitions, or configure them differently."""
    if partitions is None and not configs and not delete_configs:
        raise UsageError("say what to alter: --partitions N, --config NAME=VALUE or --delete-config NAME")
    if partitions is not None and partitions < 1:
        raise UsageError(f"--partitions must be 1 or more, not {partitions}")
    with usage("--config"):
        changes: dict[str, str | None] = dict(config_values(configs))
    if both := sorted(changes.keys() & set(delete_configs)):
        raise UsageError(f"{both[0]} cannot be set and deleted at once")
    changes |= dict.fromkeys(delete_configs)
    wanted = _chosen(names, patterns)

    async def run(admin: Admin) -> int:
        topics = {one.name: one for one in await some_topics(admin, names, wanted, include_internal=False)}

        async def one(name: str) -> None:
            done: dict[str, Any] = {"name": name}
            before = len(topics[name].partitions)
            if partitions is not None and before > partitions:
                raise CommandError(f"{name} has {counted(before, 'partition')}; their number can grow and never shrink")
            if changes:
                await change_configs(admin, ConfigResource.topic(name), changes)
                said = [f"{key} deleted" if value is None else f"{key}={value}" for key, value in changes.items()]
                done["configs"] = changes
                _say_unless(as_json, f"{name}: {', '.join(said)}")
            if partitions is not None:
                if before < partitions:
                    await admin.create_partitions(name, partitions)
                done |= {"partitions": partitions, "partitions_before": before}
                _say_unless(as_json, f"{name}: {counted(partitions, 'partition')}, before {before}")
            if as_json:
                say_json(done)

        return await for_each(topics, one)

    return administer(bootstrap, timeout_s, run)


async def change_configs(admin: Admin, resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
    """Set configurations of a topic; None takes one back to its default.

    Raises:
        CommandError: one of them is impossible, or does not exist; nothing was changed.
    """
    if deleted := [name for name, value in changes.items() if value is None]:
        # Brokers, Kafka's too, take the deletion of a name that they do not know for done.
        known = (await admin.describe_configs([resource]))[resource]
        for name in deleted:
            if name not in known:
                raise CommandError(unknown_config("topic", name, known))
    try:
        await admin.alter_configs(resource, changes)
    except KafkaError as error:
        raise CommandError(refused_config(error, changes)) from error


def delete(
    bootstrap: str,
    names: Sequence[str],
    patterns: Sequence[str],
    timeout_s: float,
    *,
    if_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete topics, or say which would be deleted."""
    wanted = _chosen(names, patterns)

    async def run(admin: Admin) -> int:
        there: Sequence[str] = names
        if if_exists and names:
            every = {topic.name for topic in await admin.list_topics(include_internal=True)}
            there = [name for name in names if name in every]
            for name in sorted(set(names) - every):
                _tell({"name": name, "deleted": False}, f"{name} does not exist", as_json=as_json)
            if not there and not wanted:
                return 0
        topics = await some_topics(admin, there, wanted, include_internal=False)

        async def one(name: str) -> None:
            if not dry_run:
                await admin.delete_topics([name])
            _tell(
                {"name": name, "deleted": not dry_run},
                f"would delete {name}" if dry_run else f"deleted {name}",
                as_json=as_json,
            )

        return await for_each([topic.name for topic in topics], one)

    return administer(bootstrap, timeout_s, run)


def _chosen(names: Sequence[str], patterns: Sequence[str]) -> list[re.Pattern[str]]:
    if not names and not patterns:
        raise UsageError("say which topics: TOPIC... or --regex PATTERN")
    check_topic_names(names)
    return compiled(patterns)


def _tell(value: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        say_json(value)
    else:
        say(text)


def _say_unless(as_json: bool, text: str) -> None:
    if not as_json:
        say(text)
