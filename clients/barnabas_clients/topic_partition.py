"""Two values that producer, consumer and admin share: a partition, and a stored position. Pure."""

from typing import NamedTuple

__all__ = ["OffsetAndMetadata", "TopicPartition"]


class TopicPartition(NamedTuple):
    """One partition of one topic, by name; partitions count from 0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A position that a group stores: the next offset to read, a note of the application, the leader epoch or -1."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
