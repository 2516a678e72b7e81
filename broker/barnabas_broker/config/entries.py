"""Describes configurations to clients: value, source, and what else would have set it. Pure.

A topic's configuration has the value that was set for it; else that of the broker's setting behind it, if there is one;
else our default. It can be altered, unless it is fixed when a topic is created. A broker's configuration is the one
that it was started with: all of it is read-only, which is the one thing that Kafka would say otherwise. The retention
of internal topics is not configured at all.

Values of secrets are never told, not even whether there is one. One entry of a topic is no setting: who the witnesses
of its partitions are (`witness_rows`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_metadata_quorum.controller.config_changes import FIXED
from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS

from .broker import BrokerConfig, Setting, settings
from .topic import BEHIND_TOPICS, kept_by_itself

__all__ = ["ConfigEntry", "ConfigSource", "broker_entries", "topic_entries", "witness_entries"]

INT32_MAX = 2**31 - 1
# Kafka's ConfigType.
_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "CLASS": 8, "PASSWORD": 9}
_SECRETS = frozenset({"cluster.secret"})


class ConfigSource:
    """Kafka's numbers for where a value comes from."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigEntry(NamedTuple):
    """One configuration. `synonyms`: (name, value, source) of all places that set it, the one that counts first."""

    name: str
    value: str | None
    source: int
    type: int
    is_sensitive: bool
    documentation: str
    is_read_only: bool
    synonyms: tuple[tuple[str, str | None, int], ...]


def topic_entries(topic: str, configs: Mapping[str, str], config: BrokerConfig) -> list[ConfigEntry]:
    """Return all configurations of the topic of that name, for which `configs` are set, in the table's order."""
    entries = []
    for name, known in TOPIC_CONFIGS.items():
        places: list[tuple[str, str | None, int]] = []
        kept = kept_by_itself(topic, name)
        behind = BEHIND_TOPICS.get(name)
        if name in configs:
            places.append((name, configs[name], ConfigSource.TOPIC))
        if kept is not None:
            places = [(name, kept, ConfigSource.DEFAULT)]
        elif behind is None:
            places.append((name, known.default, ConfigSource.DEFAULT))
        else:
            places += _places(_SETTINGS[behind], config)
        _, value, source = places[0]
        entries.append(
            ConfigEntry(
                name=name,
                value=value,
                source=source,
                type=_TYPES[known.type],
                is_sensitive=False,
                documentation=known.documentation,
                is_read_only=kept is not None or name in FIXED,
                synonyms=tuple(places),
            )
        )
    return entries


def witness_entries(witnesses: Mapping[str, str]) -> list[ConfigEntry]:
    """Return the entries that say which brokers are a topic's witnesses, from `encode_witnesses`."""
    documentation = "The brokers that vote beside two replicas and serve nobody, as partition:broker."
    return [
        ConfigEntry(
            name=name,
            value=text,
            source=ConfigSource.DEFAULT,
            type=_TYPES["LIST"],
            is_sensitive=False,
            documentation=documentation,
            is_read_only=True,
            synonyms=(),
        )
        for name, text in witnesses.items()
    ]


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Return all settings of a broker, in the order of their declaration."""
    entries = []
    for name, setting in _SETTINGS.items():
        places = _places(setting, config)
        _, value, source = places[0]
        entries.append(
            ConfigEntry(
                name=name,
                value=value,
                source=source,
                type=_type_of(setting),
                is_sensitive=name in _SECRETS,
                documentation=setting.doc,
                is_read_only=True,
                synonyms=tuple(places),
            )
        )
    return entries


_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in settings()}


def _places(setting: Setting, config: BrokerConfig) -> list[tuple[str, str | None, int]]:
    """Return (name, value, source) of a broker's setting, and of its default behind it."""
    name = setting.name
    if name in _SECRETS:
        return [(name, None, ConfigSource.STATIC_BROKER)]
    value = getattr(config, name.replace(".", "_"))
    default = [] if setting.default is None else [(name, _text(setting.default), ConfigSource.DEFAULT)]
    if value == setting.default:
        return default
    return [(name, _text(value), ConfigSource.STATIC_BROKER), *default]


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{node_id}@{address}" for node_id, address in sorted(value.items()))
    return str(value)


def _type_of(setting: Setting) -> int:
    if setting.name in _SECRETS:
        return _TYPES["PASSWORD"]
    if setting.type == "number":
        return _TYPES["DOUBLE"]
    if setting.type == "integer":
        return _TYPES["INT" if setting.maximum is not None and setting.maximum <= INT32_MAX else "LONG"]
    return _TYPES[{"boolean": "BOOLEAN", "table": "LIST"}.get(setting.type, "STRING")]
