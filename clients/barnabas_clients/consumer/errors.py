"""The errors that only a consumer meets. Pure.

Each of them waits at its partition: the call that comes to that point raises it, and so does every further one, until
the application decides (by `seek`, `pause`, or another assignment). Records of other partitions are handed out in
between.
"""

from barnabas_clients.errors import ClientError
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import CorruptBatchError

__all__ = ["CorruptRecordsError", "LogTruncatedError", "NoOffsetError", "NotAssignedError"]


class CorruptRecordsError(CorruptBatchError):
    """A batch that cannot be read: its `partition`, the first lost `offset`, and `next_offset` behind the batch.

    `await consumer.skip(error)` goes on behind the damage. If the bytes that tell the end of the batch are damaged,
    `next_offset` is only one more than `offset`.
    """

    hint = "await consumer.skip(error) goes on behind it"

    def __init__(self, partition: TopicPartition, offset: int, next_offset: int, reason: str) -> None:
        super().__init__(f"{partition} at offset {offset}: {reason}; what follows begins at offset {next_offset}")
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.reason = reason


class NoOffsetError(ClientError):
    """The group has committed nothing for `partition`, and `auto_offset_reset` is "none"."""

    hint = "seek to where reading shall begin, or set auto_offset_reset to earliest or latest"

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition}: no offset is committed, and auto_offset_reset is none")
        self.partition = partition


class LogTruncatedError(ClientError):
    """Records of `partition` before `offset`, which were handed out, are gone: the log now ends at `end_offset`.

    The cause is an unclean election. If `auto_offset_reset` is not "none", the consumer goes on at `end_offset`.
    """

    hint = "seek to end_offset, and see whether the results of the records that are gone must be undone"

    def __init__(self, partition: TopicPartition, offset: int, end_offset: int) -> None:
        super().__init__(f"{partition}: the log was cut at {end_offset}, the position was {offset}")
        self.partition = partition
        self.offset = offset
        self.end_offset = end_offset


class NotAssignedError(ClientError):
    """A call named a partition that this consumer does not hold, or does not hold any more."""

    hint = "see consumer.assignment for the partitions that are read now"

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is not assigned to this consumer")
        self.partition = partition
