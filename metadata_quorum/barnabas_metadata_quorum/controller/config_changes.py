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
from collections.abc import Mapping

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

__all__ = ["FIXED", "alter_configs"]

FIXED = frozenset({"flush.mode"})
"""Configurations that are set when a topic is created, and never again."""


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
    """Return the configurations after the changes, by name, or raise `Refused`."""
    if twice := [name for name, times in Counter(change.name for change in wanted.changes).items() if times > 1]:
        raise Refused(RefusalReason.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")
    configs = {name: value for name, value in before.items() if not wanted.replace or name in FIXED}
    for change in wanted.changes:
        _make(change, configs)
    if changed := [name for name in sorted(FIXED) if configs.get(name) != before.get(name)]:
        raise Refused(RefusalReason.INVALID_CONFIG, f"{changed[0]} is set when a topic is created, and cannot change")
    return dict(sorted(configs.items()))


def _make(change: ConfigChange, configs: dict[str, str]) -> None:
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
    known = TOPIC_CONFIGS.get(name)
    if known is None or known.type != "LIST":
        asked = ConfigOperation(change.operation).name
        raise Refused(RefusalReason.INVALID_CONFIG, f"Can't {asked} to key {name} because its type is not LIST.")
    items = _items(configs.get(name, known.default))
    named = _items(value)
    if change.operation == ConfigOperation.APPEND:
        items += [item for item in named if item not in items]
    else:
        items = [item for item in items if item not in named]
    configs[name] = ",".join(items)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]
