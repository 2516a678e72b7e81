"""Changes of the configurations of topics: the rules, and the records that carry them out. Pure.

There are two ways to ask, as in Kafka. *Incremental* changes name configurations to set, to delete, to append to or to
take items out of. A *replacement* names all that is to be set; any other configuration counts as never set. Either way
the result is checked as a whole, as on creation, so nothing can be put together in two steps that would be refused in
one.

`APPEND` and `SUBTRACT` on a list that nobody has set begin with its default.

`flush.mode` cannot change while a topic exists: its replicas may be anywhere between two promises then. A replacement
that does not name it leaves it alone. Internal topics keep their data as long as the coordinators need it, so the
configurations that limit this time are refused for them.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import Record, TopicConfigured
from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS, check_topic_configs

from .commands import (
    AlterConfigs,
    AlteredTopic,
    ConfigChange,
    ConfigOperation,
    ConfiguredTopic,
    RefusalReason,
    Refused,
    check_named,
)

__all__ = ["FIXED", "alter_configs", "changed"]

FIXED = frozenset({"flush.mode"})
"""Configurations that are set when a topic is created, and never again."""
LISTS: Mapping[str, str] = {name: known.default for name, known in TOPIC_CONFIGS.items() if known.type == "LIST"}


def alter_configs(
    image: Image, command: AlterConfigs, flush_mode: str = "fsync"
) -> tuple[list[Record], tuple[AlteredTopic, ...]]:
    """Return the records of all topics that may be changed, and the fate of each topic, in order.

    `flush_mode` is that of topics that say nothing.

    Raises:
        Refused: POLICY_VIOLATION, too many topics in one command.
    """
    check_named(len(command.topics))
    times = Counter(wanted.name for wanted in command.topics)
    records: list[Record] = []
    fates: list[AlteredTopic] = []
    for wanted in command.topics:
        try:
            if times[wanted.name] > 1:
                raise Refused(RefusalReason.INVALID_REQUEST, "the request names this topic more than once")
            topic = image.topic_named(wanted.name)
            if topic is None:
                raise Refused(RefusalReason.UNKNOWN_TOPIC, f"The topic '{wanted.name}' does not exist.")
            configs = _changed(wanted, topic.configs)
            complaint = check_topic_configs(wanted.name, configs, image.brokers, flush_mode)
            if complaint is not None:
                raise Refused(RefusalReason.INVALID_CONFIG, complaint)
        except Refused as refused:
            fates.append(AlteredTopic(wanted.name, refused.reason, refused.message))
            continue
        if configs != dict(topic.configs):
            records.append(TopicConfigured(topic.topic_id, configs))
        fates.append(AlteredTopic(wanted.name))
    return records, tuple(fates)


def _changed(wanted: ConfiguredTopic, before: Mapping[str, str]) -> dict[str, str]:
    """Return a topic's configurations after the changes, by name, or raise `Refused`."""
    configs = changed(wanted.changes, before, LISTS, kept=FIXED if wanted.replace else before.keys())
    if fixed := [name for name in sorted(FIXED) if configs.get(name) != before.get(name)]:
        raise Refused(RefusalReason.INVALID_CONFIG, f"{fixed[0]} is set when a topic is created, and cannot change")
    return configs


def changed(
    changes: Sequence[ConfigChange], before: Mapping[str, str], lists: Mapping[str, str], *, kept: Container[str]
) -> dict[str, str]:
    """Return configurations after changes, by name.

    Args:
        changes: What is asked for, in order.
        before: What is set now.
        lists: The defaults of all configurations that are lists.
        kept: The names of which the present value stays unless a change names it.

    Raises:
        Refused: INVALID_REQUEST or INVALID_CONFIG, one of the changes is none.
    """
    if twice := [name for name, times in Counter(change.name for change in changes).items() if times > 1]:
        raise Refused(RefusalReason.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")
    configs = {name: value for name, value in before.items() if name in kept}
    for change in changes:
        _make(change, configs, lists)
    return dict(sorted(configs.items()))


def _make(change: ConfigChange, configs: dict[str, str], lists: Mapping[str, str]) -> None:
    name = change.name
    value = change.value
    if change.operation == ConfigOperation.DELETE:
        configs.pop(name, None)
        return
    if change.operation not in ConfigOperation.__members__.values():
        raise Refused(RefusalReason.INVALID_REQUEST, f"Unknown operation {change.operation} for {name}")
    if value is None:
        raise Refused(RefusalReason.INVALID_REQUEST, f"Null value not supported for: {name}")
    if change.operation == ConfigOperation.SET:
        configs[name] = value
        return
    default = lists.get(name)
    if default is None:
        asked = ConfigOperation(change.operation).name
        raise Refused(RefusalReason.INVALID_CONFIG, f"Can't {asked} to key {name} because its type is not LIST.")
    items = _items(configs.get(name, default))
    named = _items(value)
    if change.operation == ConfigOperation.APPEND:
        items += [item for item in named if item not in items]
    else:
        items = [item for item in items if item not in named]
    configs[name] = ",".join(items)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]
