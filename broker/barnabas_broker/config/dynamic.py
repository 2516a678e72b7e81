"""The settings of a broker that may change while it runs, for it alone or for all brokers, and what holds then. Pure.

What is set at run time lies in the metadata, for one broker (by its id) or for all (under the empty name). It comes
before the settings that the broker was started with: its own first, then that of all. Those that may change are those
that may in Kafka, as far as they are settings here, and a few of our own; all others are read once, and refused.

Values are numbers and words as Kafka takes them, without units. A broker checks what it is asked to store. What it
finds stored is checked again before it counts: it may have been stored by another version, or beside settings of
another broker that fitted. A value that is none is passed over (`ignored`), and the others hold.
"""

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from .addresses import ConfigError
from .broker import BrokerConfig, SettingValue, read_settings, settings
from .topic import BEHIND_TOPICS

__all__ = ["DYNAMIC", "BrokerSettings", "complaint_about", "settle"]

# A topic's flush.mode never changes, so that of topics that say nothing does not, either.
_BEHIND = frozenset(BEHIND_TOPICS.values()) - {"flush.mode"}
DYNAMIC = _BEHIND | {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "max.connections",
    "max.connections.per.ip",
    "producer.id.expiration.ms",
    "replica.catchup.rate.bytes",
}
"""The names of settings that may change while a broker runs."""
_PLAIN = {"integer": re.compile(r"[+-]?[0-9]+"), "number": re.compile(r"[0-9+-.]+"), "boolean": re.compile(r"\w+")}


class BrokerSettings(NamedTuple):
    """What holds for a broker, and where it comes from.

    `started` is what it was started with, `of_broker` and `of_all` what was set at run time and counts; `now` is all of
    it together. `ignored` are complaints about what was set and does not count.
    """

    started: BrokerConfig
    now: BrokerConfig
    of_broker: Mapping[str, str] = {}
    of_all: Mapping[str, str] = {}
    ignored: tuple[str, ...] = ()

    @classmethod
    def static(cls, config: BrokerConfig) -> "BrokerSettings":
        """Return the settings of a broker for which nothing was set at run time."""
        return cls(config, config)


def settle(started: BrokerConfig, of_broker: Mapping[str, str], of_all: Mapping[str, str]) -> BrokerSettings:
    """Return what holds for a broker: it passes over what is no setting, or does not fit the others."""
    ignored: list[str] = []
    kept: list[dict[str, str]] = []
    now = started
    for whose, values in (("all brokers", of_all), ("this broker", of_broker)):
        now, holding, complaints = _settled(now, values)
        ignored += [f"{name[:100]}={values[name][:100]}, set for {whose}: {text}" for name, text in complaints]
        kept.append(holding)
    of_all, of_broker = kept
    return BrokerSettings(started, now, of_broker, of_all, tuple(ignored))


def _settled(
    config: BrokerConfig, values: Mapping[str, str]
) -> tuple[BrokerConfig, dict[str, str], list[tuple[str, str]]]:
    """Return `config` with those values that can be, these, and (name, complaint) of the others."""
    complaints: list[tuple[str, str]] = []
    read: dict[str, SettingValue] = {}
    for name, text in sorted(values.items()):
        try:
            read[name] = _read(name, text)
        except ConfigError as error:
            complaints.append((name, str(error)))
    try:
        now = _replaced(config, read)
        fitting = list(read)
    except ConfigError:  # Each is right for itself: so one by one, as far as they fit together.
        now, fitting = config, []
        for name, value in read.items():
            try:
                now = _replaced(now, {name: value})
                fitting.append(name)
            except ConfigError as error:
                complaints.append((name, str(error)))
    return now, {name: values[name].strip() for name in fitting}, complaints


def complaint_about(started: BrokerConfig, values: Mapping[str, str]) -> str | None:
    """Return why these values can't be what is set for a broker at run time; None: they can."""
    if fixed := sorted(values.keys() - DYNAMIC):
        return f"Cannot update these configs dynamically: {', '.join(name[:100] for name in fixed[:10])}"
    try:
        _replaced(started, {name: _read(name, text) for name, text in values.items()})
    except ConfigError as error:
        return str(error)
    return None


def _read(name: str, text: str) -> SettingValue:
    """Return the value of a setting that may change.

    Raises:
        ConfigError: it may not, or the text is no value of it.
    """
    if name not in DYNAMIC:
        raise ConfigError(f"{name[:100]} cannot change while a broker runs")
    value = text.strip()
    kind = _kinds()[name]
    pattern = _PLAIN.get(kind)
    if pattern is not None and not pattern.fullmatch(value):
        raise ConfigError(f"{name} is {value[:100]!r}, not a plain {kind}")
    return read_settings({name: value})[name]


def _replaced(config: BrokerConfig, values: Mapping[str, SettingValue]) -> BrokerConfig:
    """Return `config` with other values of some settings.

    Raises:
        ConfigError: they do not fit together.
    """
    if not values:
        return config
    changes: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
    return dataclasses.replace(config, **changes)  # Its constructor checks.


@cache
def _kinds() -> Mapping[str, str]:
    return {setting.name: setting.type for setting in settings()}
