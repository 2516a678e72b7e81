"""A topic of the metadata image as this broker holds it, and how the Raft groups of its partitions are named."""

import struct

from barnabas_metadata_quorum.image import Topic
from barnabas_raftlog.raft.messages import GroupId

from .partition import Partition
from .topic_settings import TopicSettings

__all__ = ["GROUP_ID_BYTES", "HostedTopic", "group_id_of", "place_of"]

_TOPIC_ID_BYTES = 16
_PARTITION = struct.Struct(">I")
GROUP_ID_BYTES = _TOPIC_ID_BYTES + _PARTITION.size


class HostedTopic:
    """A topic of the image, and those of its partitions that have a replica here. `unled`: one that had no leader."""

    __slots__ = ("partitions", "settings", "topic", "unled")

    def __init__(self, topic: Topic, settings: TopicSettings) -> None:
        self.topic, self.settings = topic, settings
        self.partitions: dict[int, Partition] = {}
        self.unled = 0


def group_id_of(topic_id: bytes, partition: int) -> GroupId:
    """Return the name of a partition's Raft group."""
    return GroupId(topic_id + _PARTITION.pack(partition))


def place_of(group_id: GroupId) -> tuple[bytes, int]:
    """Return the topic's id and the partition of a group's name."""
    return group_id[:_TOPIC_ID_BYTES], _PARTITION.unpack_from(group_id, _TOPIC_ID_BYTES)[0]
