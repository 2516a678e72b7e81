"""Checks the arguments about places that `Consumer` and `Admin` take: partitions, offsets, times. Pure.

As in arguments.py, a wrong type is a `TypeError` and an impossible value a `ValueError`, both at the call.

A partition may be a `TopicPartition`, or any tuple of a name and a number. The functions here return `TopicPartition`s.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from .arguments import INT32_MAX, INT64_MAX, names, seconds, shown, text, topic_name, whole_number
from .topic_partition import OffsetAndMetadata, TopicPartition

__all__ = [
    "GROUP_STATES",
    "GROUP_TYPES",
    "TRANSACTION_STATES",
    "configs_of",
    "deadline_s",
    "group_states",
    "group_types",
    "offset_of",
    "offsets_of",
    "partition_of",
    "partitions_of",
    "replicas_of",
    "several",
    "timestamps_of",
    "transaction_states",
]

GROUP_STATES: Final = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Dead",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Unknown",
)
"""Kafka's names for the states of groups, of all kinds."""
GROUP_TYPES: Final = ("classic", "consumer", "share", "streams")
"""Kafka's names for the types of groups: by whom, and how, the partitions are divided."""
TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Kafka's names for the states of transactional ids."""
METADATA_CHARACTERS_MAX = 8_000
SPECS_MIN: Final = -5
"""The lowest of the numbers that stand for an end of a log, or for the record with the largest time (KIP-734, 1005)."""


def several(name: str, value: object, what: str) -> list[object]:
    """Return the items of a list, a tuple, a set or another iterable. A text and a mapping are refused.

    Raises:
        TypeError: it is not an iterable of items.
    """
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {shown(value)}; it must be a list of {what}")
    if isinstance(value, TopicPartition):
        raise TypeError(f"{name} is one partition; it must be a list of {what}")
    return list(value)


def partition_of(value: object, name: str = "partition") -> TopicPartition:
    """Return a partition.

    Raises:
        TypeError: it is no (topic, number). ValueError: the name is impossible, or the number is.
    """
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{name} is {shown(value)}; it must be a TopicPartition")
    topic, number = value
    return TopicPartition(
        topic_name(f"the topic of {name}", topic), whole_number(f"the number of {name}", number, 0, INT32_MAX)
    )


def partitions_of(name: str, value: object) -> list[TopicPartition]:
    """Return partitions, in the order given.

    Raises:
        TypeError, ValueError: as `several` and `partition_of`.
    """
    return [partition_of(each, f"a partition in {name}") for each in several(name, value, "partitions")]


def offset_of(name: str, value: object) -> OffsetAndMetadata:
    """Return an offset to be stored, which was given as a number or with its metadata.

    Raises:
        TypeError: it is neither. ValueError: it is negative, or the metadata cannot be sent.
    """
    if not isinstance(value, OffsetAndMetadata):
        return OffsetAndMetadata(whole_number(name, value, 0))
    return OffsetAndMetadata(
        whole_number(name, value.offset, 0),
        text(f"the metadata of {name}", value.metadata, may_be_empty=True, characters_max=METADATA_CHARACTERS_MAX),
        whole_number(f"the leader epoch of {name}", value.leader_epoch, -1, INT32_MAX),
    )


def offsets_of(name: str, value: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to be stored, by partition.

    Raises:
        TypeError: it is not a mapping. TypeError, ValueError: as `partition_of` and `offset_of`.
    """
    return {
        (partition := partition_of(key, f"a partition in {name}")): offset_of(f"the offset of {partition}", given)
        for key, given in _items(name, value)
    }


def timestamps_of(name: str, value: object, low: int = SPECS_MIN, high: int = INT64_MAX) -> dict[TopicPartition, int]:
    """Return a number for each partition: a time in ms, an offset, or a negative number that stands for either.

    Raises:
        TypeError: it is not a mapping to ints. ValueError: a number is out of range.
    """
    return {
        (partition := partition_of(key, f"a partition in {name}")): whole_number(
            f"{name} of {partition}", given, low, high
        )
        for key, given in _items(name, value)
    }


def replicas_of(name: str, value: object) -> dict[TopicPartition, list[int] | None]:
    """Return the brokers given for each partition, or None.

    Raises:
        TypeError: it is not a mapping to lists of ints. ValueError: an id is out of range.
    """
    found: dict[TopicPartition, list[int] | None] = {}
    for key, given in _items(name, value):
        partition = partition_of(key, f"a partition in {name}")
        found[partition] = None
        if given is not None:
            brokers = several(f"{name} of {partition}", given, "broker ids")
            # The controller knows whether they exist.
            found[partition] = [
                whole_number(f"a broker of {partition}", each, -INT32_MAX, INT32_MAX) for each in brokers
            ]
    return found


def configs_of(name: str, value: object, *, may_be_none: bool) -> dict[str, str | None]:
    """Return configurations as texts: "true" for True, "5" for 5. With `may_be_none`, None stays: the default.

    Raises:
        TypeError: it is not a mapping, or has a name or a value of another type. ValueError: as `text`.
    """
    found: dict[str, str | None] = {}
    for key, given in _items(name, value):
        setting = text(f"a name in {name}", key)
        if given is None and may_be_none:
            found[setting] = None
        elif isinstance(given, bool):
            found[setting] = str(given).lower()
        elif isinstance(given, int):
            found[setting] = str(whole_number(setting, given, -INT64_MAX - 1))
        elif isinstance(given, str):
            found[setting] = text(setting, given, may_be_empty=True)
        else:
            raise TypeError(f"{setting} is {shown(given)}; it must be a str, an int or a bool")
    return found


def group_states(value: object) -> list[str]:
    """Return states of groups as Kafka writes them. Capitals do not matter.

    Raises:
        TypeError: it is not a list of texts. ValueError: there is no such state.
    """
    return _states(value, GROUP_STATES)


def group_types(value: object) -> list[str]:
    """Return types of groups as Kafka writes them. Capitals do not matter.

    Raises:
        TypeError: it is not a list of texts. ValueError: there is no such type.
    """
    return _states(value, GROUP_TYPES, "type")


def transaction_states(value: object) -> list[str]:
    """Return states of transactional ids as Kafka writes them. Capitals do not matter.

    Raises:
        TypeError: it is not a list of texts. ValueError: there is no such state.
    """
    return _states(value, TRANSACTION_STATES)


def deadline_s(value: object) -> float | None:
    """Return how long a call may take. None stands for the client's own deadline.

    Raises:
        TypeError: it is not a number. ValueError: it is negative, or longer than the protocol can express.
    """
    return None if value is None else seconds("timeout_s", value)


def _items(name: str, value: object) -> list[tuple[object, object]]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {shown(value)}; it must be a mapping")
    return list(value.items())


def _states(value: object, there: Sequence[str], what: str = "state") -> list[str]:
    known = {state.lower(): state for state in there}
    found = []
    for state in names(f"{what}s", value):
        if state.lower() not in known:
            raise ValueError(f"there is no {what} {state[:80]!r}; choose from {', '.join(there)}")
        found.append(known[state.lower()])
    return found
