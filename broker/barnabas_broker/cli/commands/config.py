"""Shows and changes the configurations of topics, brokers and groups.

Some settings of brokers can be set while they run, for one broker or for all; a change of any other is refused with
what to do instead. The brokers themselves say which those are.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_broker.cli.commands.administration.calls import administer, for_each, usage
from barnabas_broker.cli.commands.administration.config_values import config_values, unknown_config
from barnabas_broker.cli.commands.administration.names import topics_named
from barnabas_broker.cli.commands.topic.changes import change_configs
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import print_table, say, say_json
from barnabas_broker.cli.wording import in_words
from barnabas_broker.config.quantities import BYTE_UNITS, TIME_UNITS_MS, UNLIMITED, shown_bytes, shown_duration_ms
from barnabas_clients import Admin
from barnabas_clients.admin.client import ConfigEntry, ConfigResource
from barnabas_clients.admin.values import ConfigResourceType, ConfigSource
from barnabas_clients.protocol.errors import KafkaError

__all__ = ["Whose", "change", "show"]

DIGITS_MAX = 19
SOURCES = {
    ConfigSource.TOPIC: "topic",
    ConfigSource.STATIC_BROKER: "broker's settings",
    ConfigSource.DYNAMIC_BROKER: "broker, at run time",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers, at run time",
    ConfigSource.DEFAULT: "default",
    ConfigSource.GROUP: "group",
    ConfigSource.CLIENT_METRICS: "subscription",
}


class Whose(NamedTuple):
    """The resources that a command names; `all_brokers` stands for what is set for all of them while they run."""

    topics: Sequence[str] = ()
    brokers: Sequence[int] = ()
    groups: Sequence[str] = ()
    all_brokers: bool = False
    subscriptions: Sequence[str] = ()

    @property
    def resources(self) -> list[ConfigResource]:
        """Return each resource once.

        Raises:
            UsageError: there is none, or a name is none.
        """
        check_topic_names(self.topics)
        found = [*map(ConfigResource.topic, self.topics), *map(ConfigResource.broker, self.brokers)]
        found += map(ConfigResource.group, self.groups)
        found += map(ConfigResource.client_metrics, self.subscriptions)
        if self.all_brokers:
            found.append(ConfigResource.all_brokers())
        if not found:
            ways = "--topic TOPIC, --broker ID, --all-brokers, --group GROUP or --client-metrics NAME"
            raise UsageError(f"say whose configuration: {ways}")
        return list(dict.fromkeys(found))


def show(
    bootstrap: str,
    whose: Whose,
    names: Sequence[str],
    timeout_s: float,
    *,
    changed_only: bool,
    with_documentation: bool,
    as_json: bool,
) -> int:
    """Print configurations, all or those named: value and source, with `with_documentation` default and meaning."""
    resources = whose.resources

    async def run(admin: Admin) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        await _check(admin, whose)
        return await admin.describe_configs(resources, include_documentation=with_documentation or as_json)

    found = administer(bootstrap, timeout_s, run)
    for number, (resource, entries) in enumerate(found.items()):
        kind = _kind(resource)
        # What is set for all brokers is all that is told of them.
        chosen = [name for name in dict.fromkeys(names) if name in entries or resource != ConfigResource.all_brokers()]
        for name in chosen:
            if name not in entries:
                raise CommandError(unknown_config(kind, name, entries))
        shown = [entries[name] for name in chosen] if names else list(entries.values())
        if changed_only:
            shown = [entry for entry in shown if not entry.is_default]
        if as_json:
            for entry in shown:
                say_json({kind: resource.name} | _as_json(entry))
            continue
        if number:
            say("")
        if len(found) > 1:
            say(_said(resource))
        if with_documentation:
            say(*(line for entry in shown for line in _described(entry)))
        else:
            rows = [(entry.name, _value(entry), SOURCES.get(entry.source)) for entry in shown]
            print_table(("name", "value", "set by"), rows)
    return 0


def change(
    bootstrap: str,
    whose: Whose,
    words: Sequence[str],
    timeout_s: float,
    *,
    unset: bool,
    as_json: bool,
) -> int:
    """Set NAME=VALUE configurations, or take some back to their defaults."""
    resources = whose.resources
    changes: dict[str, str | None] = dict.fromkeys(words)
    if unset:
        if wrong := [word for word in words if "=" in word]:
            raise UsageError(f"{wrong[0]!r}: `config unset` takes names alone; `config set` takes NAME=VALUE")
    else:
        with usage():
            changes = dict(config_values(words))

    async def run(admin: Admin) -> int:
        await _check(admin, whose)
        by_name = {_said(resource): resource for resource in resources}

        async def one(said: str) -> None:
            resource = by_name[said]
            if resource.type is ConfigResourceType.TOPIC:
                await change_configs(admin, resource, changes)
            else:
                await _change(admin, resource, changes)
            if as_json:
                say_json({_kind(resource): resource.name, "configs": changes})
            else:
                parts = [f"{key} unset" if value is None else f"{key}={value}" for key, value in changes.items()]
                say(f"{said}: {', '.join(parts)}")

        return await for_each(by_name, one)

    return administer(bootstrap, timeout_s, run)


async def _check(admin: Admin, whose: Whose) -> None:
    """Refuse topics and brokers that do not exist: the question itself would wait for them until its deadline."""
    if whose.topics:
        await topics_named(admin, whose.topics)
    if whose.brokers:
        there = [one.node_id for one in (await admin.describe_cluster()).brokers]
        if absent := sorted(set(whose.brokers) - set(there)):
            raise CommandError(
                f"broker {absent[0]} is not in the cluster, or is down; there are {', '.join(map(str, there))}"
            )


async def _change(admin: Admin, resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
    """Set configurations of a broker, all brokers or a group; None takes one back."""
    asked = resource
    if resource == ConfigResource.all_brokers():  # Each broker knows which there are.
        asked = ConfigResource.broker((await admin.describe_cluster()).brokers[0].node_id)
    known = (await admin.describe_configs([asked]))[asked]
    for name in changes:
        if name not in known:
            raise CommandError(unknown_config(_kind(resource), name, known))
        if known[name].read_only:
            who = f"broker {resource.name}" if resource.name else "every broker"
            text = "change it in the broker's configuration file and restart the broker"
            raise CommandError(f"{who} reads {name} when it starts: {text}")
    try:
        await admin.alter_configs(resource, changes)
    except KafkaError as error:
        raise CommandError(in_words(error)) from error


def _said(resource: ConfigResource) -> str:
    return f"{_kind(resource)} {resource.name}" if resource.name else "all brokers"


def _kind(resource: ConfigResource) -> str:
    return resource.type.name.lower().replace("_", "-")


def _value(entry: ConfigEntry) -> str | None:
    return "(secret)" if entry.is_sensitive else _readable(entry.name, entry.value)


def _readable(name: str, value: str | None) -> str | None:
    """Return a number of ms or bytes with what people call it, `604800000 (7d)`; others as they are."""
    if value is None or not re.fullmatch(f"[0-9]{{1,{DIGITS_MAX}}}", value):
        return value
    count = int(value)
    # Nobody needs to be told that 500 ms are 500ms, or that the largest number there is means no limit.
    if count in UNLIMITED:
        return value
    if name.endswith(".ms") and count >= TIME_UNITS_MS["s"]:
        return f"{value} ({shown_duration_ms(count)})"
    return f"{value} ({shown_bytes(count)})" if name.endswith(".bytes") and count >= BYTE_UNITS["k"] else value


def _described(entry: ConfigEntry) -> list[str]:
    source = SOURCES.get(entry.source, "unknown")
    default = _readable(entry.name, entry.default)
    usual = "" if default is None or entry.is_default else f"; default {default}"
    fixed = "; read-only" if entry.read_only else ""
    lines = [f"{entry.name} = {_value(entry)}  (set by: {source}{usual}{fixed})"]
    return lines + ([f"    {entry.documentation}"] if entry.documentation else [])


def _as_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "default": entry.default,
        "read_only": entry.read_only,
        "is_sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
    }
