"""The records that a consumer hands out, alone or in a batch of one partition. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from barnabas_clients.topic_partition import TopicPartition

__all__ = ["HEADERS_AT_ONCE", "ConsumerRecord", "Header", "RecordBatch"]

HEADERS_AT_ONCE = 100_000
"""Records are handed out at once up to that which brings this many headers: a header takes three objects."""

Header = tuple[str, bytes | None]


class ConsumerRecord(msgspec.Struct, frozen=True, gc=False):
    """One record. `timestamp_ms` counts from 1970, or is -1 for none; `leader_epoch` is -1 if the broker told none.

    It is a struct, not a tuple: it is made a quarter faster, is smaller, and the garbage collector leaves it alone,
    since nothing in it can be part of a cycle.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int

    def _replace(self, **changes: Any) -> "ConsumerRecord":
        """Return a record with other fields, under the name that named tuples use."""
        return msgspec.structs.replace(self, **changes)


class RecordBatch(Sequence[ConsumerRecord]):
    """Consecutive records of one partition, at least one, in the order of their offsets.

    Reading goes on at `next_offset`, which is the position to store elsewhere. It may be more than the last record's
    offset plus one: markers of transactions and compacted records take offsets too.
    """

    __slots__ = ("next_offset", "partition", "records")

    def __init__(self, partition: TopicPartition, records: list[ConsumerRecord], next_offset: int) -> None:
        self.partition = partition
        self.records = records
        self.next_offset = next_offset

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # as of a list: a record, or a list of them
        return self.records[index]

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.partition} from {self.records[0].offset}>"
