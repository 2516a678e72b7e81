"""What the walker tells of the keys and the timestamps in a batch. Pure."""

from typing import NamedTuple

__all__ = ["SECRET_BYTES", "Kept", "Timed"]

SECRET_BYTES = 16
"""Of the random key that a table of keys is made with."""


class Kept(NamedTuple):
    """The records of a batch that compaction keeps.

    Attributes:
        records: How many they are.
        max_timestamp: The largest of their timestamps by their deltas, in milliseconds; -1 if that is negative, or if
            there are none.
        marks: A bit for each record of the batch, the lowest of the first byte for the first one: 1, it stays.
    """

    records: int
    max_timestamp: int
    marks: bytearray


class Timed(NamedTuple):
    """A record that was found by its timestamp: its offset and that, in milliseconds since 1970."""

    offset: int
    timestamp: int
