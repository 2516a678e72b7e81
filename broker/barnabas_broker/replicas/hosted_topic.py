"""A topic as this broker holds it; names of its partitions' groups and directories."""

import struct

from barnabas_broker.config.topic import TopicSettings
from barnabas_broker.partition.partition import Partition
from barnabas_metadata_quorum.image.image import Topic
from barnabas_raftlog.raft.messages import GroupId

__all__ = ["GROUP_ID_BYTES", "HostedTopic", "directory_of", "group_id_of", "place_of"]

_TOPIC_ID_BYTES = 16
_PARTITION = struct.Struct(">I")
GROUP_ID_BYTES = _TOPIC_ID_BYTES + _PARTITION.size
_FILE_NAME_MAX = 255
_CUT_NAME_MAX = 200  # leaves room for what a deleted replica's directory is called, too


class HostedTopic:
    """A topic of the image, and those of its partitions that have a replica here."""

    __slots__ = ("partitions", "settings", "topic")

    def __init__(self, topic: Topic, settings: TopicSettings) -> None:
        self.topic = topic
        self.settings = settings
        self.partitions: dict[int, Partition] = {}


def group_id_of(topic_id: bytes, partition: int) -> GroupId:
    """Return the name of a partition's Raft group."""
    return GroupId(topic_id + _PARTITION.pack(partition))


def place_of(group_id: GroupId) -> tuple[bytes, int]:
    """Return the topic's id and the partition of a group's name."""
    return group_id[:_TOPIC_ID_BYTES], _PARTITION.unpack_from(group_id, _TOPIC_ID_BYTES)[0]


def directory_of(topic: Topic, partition: int) -> str:
    """Return the name of a replica's directory: readable, and never longer than a file's name may be."""
    suffix = f"-{partition}-{topic.topic_id.hex()[:8]}"
    whole = topic.name + suffix
    return whole if len(whole) <= _FILE_NAME_MAX else topic.name[:_CUT_NAME_MAX] + suffix
