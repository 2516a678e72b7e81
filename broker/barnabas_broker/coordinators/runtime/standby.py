"""Reads committed records ahead on every replica: a new leader is ready at once.

A follower reads on whenever `STANDBY_ENTRIES` more entries are committed than it has read. A replica that becomes the
leader has only those left to read before it may answer, not the whole log. Measured with records that take 30 µs each:
500 of them take 15 ms, and a log of 4 MiB a second, during which the partition would serve nobody.

Only committed entries are read, so nothing that is read is ever truncated. A leader (`shard`) does not read what it
has appended itself: it takes that in as it commits, in the order of the log, and hands everything back when its
leadership ends. The replica goes on from there, as a follower or as the next leader, and reads from `applied_index` on.

A log that was replaced (its beginning went while this replica was away) may have dropped tombstones that were never
seen here. Then everything is forgotten and read from the log's new beginning, which says all that counts.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from barnabas_broker.partition.contracts import PartitionLog
from barnabas_broker.timing.slices import Slices
from barnabas_raftlog.records.header import CONTROL, BatchHeader, parse_header
from barnabas_raftlog.records.markers import is_marker, read_marker
from barnabas_raftlog.records.reader import read_batch

from .contracts import Steps, Table

__all__ = ["STANDBY_ENTRIES", "Standby"]

STANDBY_ENTRIES = 500

T = TypeVar("T", bound=Table[Any])


class Standby(Generic[T]):
    """A table that says exactly what the log says up to `applied_index`. `record_count` is of what was read, ever."""

    __slots__ = ("_make_table", "applied_index", "record_count", "table")

    def __init__(self, make_table: Callable[[], T]) -> None:
        self._make_table = make_table
        self.table = make_table()
        self.applied_index = 0
        self.record_count = 0

    async def advance(self, log: PartitionLog, commit_index: int, is_wanted: Callable[[], bool]) -> None:
        """Read up to `commit_index`, inclusive, or until `is_wanted` says no more.

        Cancelled, it has read a part, and can be called again.

        Raises:
            StorageFailedError: the log cannot be read.
            MalformedMessageError, CorruptBatchError: it holds something that nobody can have meant.
        """
        if log.first_index > self.applied_index + 1:
            # The beginning went, and of what follows nothing may have come yet: that is read as far as it goes, too.
            self._forget()
            self.applied_index = log.first_index - 1
        slices = Slices()
        async for entry in log.replay(self.applied_index + 1):
            if entry.index > commit_index or not is_wanted():
                return
            if entry.index != self.applied_index + 1:
                self._forget()
            frame = memoryview(entry.frame)
            header = parse_header(frame)
            # A single record may be long. If this is cancelled meanwhile, the entry is taken in once more.
            for _ in self._take(header, frame):
                await slices.yield_if_due()
            self.applied_index = entry.index
            await slices.yield_if_due()

    def _take(self, header: BatchHeader, frame: memoryview) -> Steps:
        """Take in what an entry says, if it is not Raft's own."""
        if is_marker(header):
            marker = read_marker(header, frame)
            if marker is not None:
                yield from self.table.take_marker(marker)
        elif not (header.attributes & CONTROL or header.is_raft_control):
            yield from self.table.take(header, read_batch(header, frame))
            self.record_count += header.record_count

    def _forget(self) -> None:
        # A shard that has ended may still be asked for the table that it had: that one is left as it is.
        self.table = self._make_table()
