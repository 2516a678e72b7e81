"""Reads configurations as people write them: `retention.ms=7d`, `segment.bytes=1GiB`. Pure.

The name says what a number counts, here as in Kafka: those that end in `.ms` are durations, those in `.bytes` sizes.
Plain numbers stay what they are, and so does every other value: the brokers decide what is possible.
"""

from collections.abc import Collection, Sequence

from barnabas_broker.cli.near_names import did_you_mean
from barnabas_broker.cli.wording import in_words, listed
from barnabas_broker.config.quantities import parse_bytes, parse_duration_ms
from barnabas_clients.protocol.errors import ErrorCode, KafkaError
from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS

__all__ = ["config_value", "config_values", "refused_config", "unknown_config"]

MORE_THAN_FIT = 25
"""Of so many names a list would help nobody: a broker has more than a hundred settings."""


def config_values(words: Sequence[str]) -> dict[str, str]:
    """Split NAME=VALUE words, and return the values as brokers take them.

    Raises:
        ValueError: a word has no name or no `=`, a name comes twice with different values, a duration or a size is
            none; it says what to write.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise ValueError(f"{word!r} is not a configuration; write NAME=VALUE, as in retention.ms=7d")
        value = config_value(name, value)
        if found.setdefault(name, value) != value:
            raise ValueError(f"{name} is given twice, as {found[name]} and as {value}")
    return found


def config_value(name: str, value: str) -> str:
    """Return a value as brokers take it: `7d` is `604800000` for a name that ends in `.ms`.

    Raises:
        ValueError: it must be a duration or a size, and is none.
    """
    parse = parse_duration_ms if name.endswith(".ms") else parse_bytes if name.endswith(".bytes") else None
    if parse is None:
        return value
    try:
        return str(parse(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def unknown_config(kind: str, name: str, known: Collection[str]) -> str:
    """Return the refusal of a name that no topic, or no broker, has. Near names are told, or all if they are few."""
    hint = did_you_mean(name, known)
    if not hint and 0 < len(known) <= MORE_THAN_FIT:
        hint = f"; there are {listed(known)}"
    return f"there is no {kind} configuration {name!r}{hint} [{ErrorCode.INVALID_CONFIG.name}]"


def refused_config(error: KafkaError, names: Collection[str]) -> str:
    """Return why a broker refuses topic configurations of these names, with the name that was meant."""
    text = str(error)
    if error.code is ErrorCode.INVALID_CONFIG and "nknown" in text:
        for name in sorted(set(names) - TOPIC_CONFIGS.keys()):
            if name in text and did_you_mean(name, TOPIC_CONFIGS):
                return unknown_config("topic", name, TOPIC_CONFIGS)
    return in_words(error)
