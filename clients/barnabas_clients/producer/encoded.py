"""Describes a batch that the caller of a producer has encoded. Pure.

A program that has its records in columns encodes them faster than `send` can, which takes one after the other.
`Producer.send_batch` does the rest: numbers, order, requests, repetitions.
"""

from typing import Final, NamedTuple

__all__ = ["EncodedBatch", "Frame"]

Frame = bytearray | memoryview
"""A whole batch, header included, which can be written."""
HEADER_BYTES: Final = 61
"""As in `barnabas_raftlog.records.header`, which loads more than a program needs that only imports the client."""


class EncodedBatch(NamedTuple):
    """Records of one partition as the producer sends them, with its compression.

    `frame` is writable, and belongs to the producer until the batch is done: 61 bytes that the producer overwrites with
    the header, then the records, as one compressed piece. There is at least one record, and their distances in offset
    from the first are 0, 1, 2, and so on. Timestamps are in milliseconds since 1970.
    """

    frame: Frame
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def records_bytes(self) -> int:
        """The size of the records, compressed as they are, without the header."""
        return len(self.frame) - HEADER_BYTES
