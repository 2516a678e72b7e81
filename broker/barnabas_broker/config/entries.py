"""Describes configurations to clients: value, source, and what else would have set it. Pure.

A topic's configuration has the value that was set for it; else that of the broker's setting behind it, if there is one;
else our default. It can be altered, unless it is fixed when a topic is created. A broker's setting has the value that
was set for this broker at run time; else for all; else the one that it was started with; else our default. Those that
can't be set at run time are read-only. A group's configuration has the value that was set for it, else that of the
broker's setting behind it. The retention of internal topics is not configured at all.

Values of secrets are never told, not even whether there is one. One entry of a topic is no setting: who the witnesses
of its partitions are (`witness_rows`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_metadata_quorum.controller.client_metrics import CLIENT_METRICS_CONFIGS
from barnabas_metadata_quorum.controller.config_changes import FIXED
from barnabas_metadata_quorum.resource_configs import GROUP_CONFIGS
from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS

from .broker import Setting, settings
from .dynamic import DYNAMIC, BrokerSettings
from .topic import BEHIND_TOPICS, kept_by_itself

__all__ = [
    "ConfigEntry",
    "ConfigSource",
    "all_brokers_entries",
    "broker_entries",
    "client_metrics_entries",
    "group_entries",
    "topic_entries",
    "witness_entries",
]

INT32_MAX = 2**31 - 1
# Kafka's ConfigType.
_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "CLASS": 8, "PASSWORD": 9}
_SECRETS = frozenset({"cluster.secret"})
_Places = list[tuple[str, str | None, int]]
"""(name, value, source) of all that sets a configuration; the first one counts."""


class ConfigSource:
    """Kafka's numbers for where a value comes from."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


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


def topic_entries(topic: str, configs: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """Return all configurations of the topic of that name, for which `configs` are set, in the table's order."""
    entries = []
    for name, known in TOPIC_CONFIGS.items():
        places: _Places = []
        kept = kept_by_itself(topic, name)
        behind = BEHIND_TOPICS.get(name)
        if name in configs:
            places.append((name, configs[name], ConfigSource.TOPIC))
        if kept is not None:
            places = [(name, kept, ConfigSource.DEFAULT)]
        elif behind is None:
            places.append((name, known.default, ConfigSource.DEFAULT))
        else:
            places += _places(_SETTINGS[behind], broker)
        entries.append(
            _entry(name, known.type, known.documentation, places, is_read_only=kept is not None or name in FIXED)
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


def broker_entries(broker: BrokerSettings) -> list[ConfigEntry]:
    """Return all settings of a broker, in the order of their declaration."""
    return [_broker_entry(setting, _places(setting, broker)) for setting in _SETTINGS.values()]


def all_brokers_entries(broker: BrokerSettings) -> list[ConfigEntry]:
    """Return what is set for all brokers at run time, and nothing else."""
    return [
        _broker_entry(_SETTINGS[name], [(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)])
        for name, value in sorted(broker.of_all.items())
    ]


def client_metrics_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all configurations of a subscription to clients' metrics for which `configs` are set."""
    entries = []
    for name, known in CLIENT_METRICS_CONFIGS.items():
        places: _Places = [(name, known.default, ConfigSource.DEFAULT)]
        if name in configs:
            places.insert(0, (name, configs[name], ConfigSource.CLIENT_METRICS))
        entries.append(_entry(name, known.type, known.documentation, places))
    return entries


def group_entries(configs: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """Return all configurations of a group for which `configs` are set, in the table's order."""
    entries = []
    for name, known in GROUP_CONFIGS.items():
        places: _Places = []
        if name in configs:
            places.append((name, configs[name], ConfigSource.GROUP))
        behind = _SETTINGS.get(f"group.{name}")
        if behind is None:
            places.append((name, known.default, ConfigSource.DEFAULT))
        else:
            places += _places(behind, broker)
        entries.append(_entry(name, known.type, known.documentation, places))
    return entries


_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in settings()}


def _broker_entry(setting: Setting, places: _Places) -> ConfigEntry:
    name = setting.name
    return _entry(name, _type_of(setting), setting.doc, places, is_read_only=name not in DYNAMIC)


def _entry(
    name: str, config_type: str, documentation: str, places: _Places, *, is_read_only: bool = False
) -> ConfigEntry:
    """Return a configuration, whose value is that of the first of its `places`."""
    _, value, source = places[0]
    is_sensitive = name in _SECRETS
    kind = _TYPES[config_type]
    return ConfigEntry(name, value, source, kind, is_sensitive, documentation, is_read_only, tuple(places))


def _places(setting: Setting, broker: BrokerSettings) -> _Places:
    """Return (name, value, source) of all that sets a broker's setting, and of its default behind them."""
    name = setting.name
    if name in _SECRETS:
        return [(name, None, ConfigSource.STATIC_BROKER)]
    places: _Places = []
    if name in broker.of_broker:
        places.append((name, broker.of_broker[name], ConfigSource.DYNAMIC_BROKER))
    if name in broker.of_all:
        places.append((name, broker.of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
    value = getattr(broker.started, name.replace(".", "_"))
    if value != setting.default:
        places.append((name, _text(value), ConfigSource.STATIC_BROKER))
    if setting.default is not None:
        places.append((name, _text(setting.default), ConfigSource.DEFAULT))
    return places


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{node_id}@{address}" for node_id, address in sorted(value.items()))
    return str(value)


def _type_of(setting: Setting) -> str:
    if setting.name in _SECRETS:
        return "PASSWORD"
    if setting.type == "integer":
        return "INT" if setting.maximum is not None and setting.maximum <= INT32_MAX else "LONG"
    return {"boolean": "BOOLEAN", "number": "DOUBLE", "table": "LIST"}.get(setting.type, "STRING")
