"""Describes topics, partitions and brokers as metadata tells of them. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["BrokerAddress", "PartitionView", "TopicView"]


class BrokerAddress(NamedTuple):
    """The address at which a broker serves clients, as it advertises it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """One partition. `leader_id` and `leader_epoch` are -1 while unknown."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: int


class TopicView(NamedTuple):
    """One topic. `topic_id` is None for brokers older than topic ids."""

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: Mapping[int, PartitionView]
