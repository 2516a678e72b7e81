"""The contracts of a partition: its log, those who wait for it, and its observer."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.log.replica.compacting import Compacted, CompactionLimits, Pause, TransactionOutcomes
from barnabas_raftlog.log.replica.measuring import RangePart
from barnabas_raftlog.log.replica.retention import SegmentSpan
from barnabas_raftlog.log.state_file import StateOrMaker
from barnabas_raftlog.multiraft.interfaces import GroupLog
from barnabas_raftlog.raft.messages import Buffer, Entry

__all__ = ["PartitionLog", "PartitionObserver", "PendingAppend"]


class PartitionLog(GroupLog, Protocol):
    """The part of a replica's log that a partition uses beside what the driver does with it."""

    on_state_needed: Callable[[], None] | None

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def epoch_at_offset(self, offset: int) -> int: ...
    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int] | None: ...
    def read(self, start_offset: int, end_offset: int, bytes_max: int) -> list[Buffer] | None: ...
    async def read_cold(self, start_offset: int, end_offset: int, bytes_max: int) -> list[Buffer]: ...
    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: int, believed_ms: int
    ) -> tuple[int, int, int] | None: ...
    async def max_timestamp(self, end_offset: int, believed_ms: int) -> tuple[int, int, int] | None: ...
    async def range_parts(
        self, start_offset: int, end_offset: int, target_bytes: int, parts_max: int
    ) -> list[RangePart]: ...
    def replay(self, from_index: int) -> AsyncIterator[Entry]: ...
    def save_state(self, index: int, state: StateOrMaker) -> None: ...
    def load_state(self) -> tuple[int, bytes] | None: ...
    def has_segments_before(self, offset: int) -> bool: ...
    def drop_before(self, offset: int, committed_index: int) -> None: ...
    def spans(self) -> list[SegmentSpan]: ...
    async def look_at_files(self, now_ms: int) -> None: ...
    async def begun_ms(self, now_ms: int) -> int | None: ...
    def roll(self) -> bool: ...
    def limit_segments(self, segment_bytes: int) -> None: ...
    async def compact(
        self, limits: CompactionLimits, index: int, now_ms: int, pause: Pause, outcomes: TransactionOutcomes, /
    ) -> Compacted | None: ...


class PendingAppend(Protocol):
    """A request that waits for an index of this partition.

    One that has given up (`is_closed`) may be told all the same, and then does nothing.
    """

    @property
    def is_closed(self) -> bool:
        """Whether it has given up; most never do."""
        return False

    def on_committed(self) -> None:
        """It is committed, and on as many replicas as the topic asks for."""

    def on_failed(self, code: ErrorCode) -> None:
        """It will not be known whether it commits."""


class PartitionObserver(Protocol):
    """A keeper of state that rests on this partition, as the group coordinator is. Called before waiters are."""

    def on_leadership(self, term: int, *, is_leader: bool, confirmed: bool) -> None:
        """One of these has changed."""

    def on_committed(self, commit_index: int) -> None:
        """Everything up to `commit_index`, inclusive, is committed.

        Another leader may have appended it, of which `on_leadership` tells only after this. Waiters hear of it later:
        when `min.insync.replicas` replicas have it.
        """

    def on_ended(self) -> None:
        """This replica serves nothing any more."""
