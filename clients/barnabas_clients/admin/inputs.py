"""Describes what callers of `Admin` name: resources, topics to create, places in logs. Pure.

These values stand apart from the functions that take them, because a program that has imported `NewTopic` need not load
the requests of every call.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, Self

__all__ = ["ConfigResource", "ConfigResourceType", "NewTopic", "OffsetSpec"]


class ConfigResourceType(IntEnum):
    """The kinds of resources that have configurations, with the protocol's numbers."""

    TOPIC = 2
    BROKER = 4


class ConfigResource(NamedTuple):
    """A topic by name, or a broker by its id in decimal digits."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> Self:
        return cls(ConfigResourceType.BROKER, str(node_id))


class OffsetSpec(IntEnum):
    """Positions that ListOffsets knows by a negative timestamp. Anything from 0 up is a timestamp in ms."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class NewTopic(NamedTuple):
    """A topic to create. -1 leaves partitions or replicas to the cluster's defaults.

    Configurations may be numbers and bools: 5 is "5", True is "true".
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | int | bool | None] = {}
