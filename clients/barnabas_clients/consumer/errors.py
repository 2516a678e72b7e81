"""What only a consumer runs into. Pure.

Each of these waits at its partition: it is raised by the call that comes to that point, and again by every further one,
until the application decides (by `seek`, `pause`, or another assignment). Records of other partitions are handed out
between.
"""

from barnabas_clients.errors import ClientError
from barnabas_clients.topic_partition import TopicPartition

from .decoder import CorruptRecordsError

__all__ = ["CorruptRecordsError", "LogTruncatedError", "NoOffsetError", "NotAssignedError"]


class NoOffsetError(ClientError):
    """The group has committed nothing for `partition`, and `auto_offset_reset` is "none"."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition}: no offset is committed, and auto_offset_reset is none")
        self.partition = partition


class LogTruncatedError(ClientError):
    """Records before `offset` of `partition`, handed out before, are gone from the log, which now ends at `end_offset`.

    An unclean election did that; with `auto_offset_reset` other than "none" the consumer goes on at `end_offset`.
    """

    def __init__(self, partition: TopicPartition, offset: int, end_offset: int) -> None:
        super().__init__(f"{partition}: the log was cut at {end_offset}, the position was {offset}")
        self.partition = partition
        self.offset = offset
        self.end_offset = end_offset


class NotAssignedError(ClientError):
    """A partition was named that this consumer does not hold, or does not hold any more."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is not assigned to this consumer")
        self.partition = partition
