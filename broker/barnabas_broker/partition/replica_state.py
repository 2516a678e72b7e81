"""What a replica knows beside its log, brought up to the log's end when the replica is opened.

Two things are functions of the log: the table of producers and the start of the log. They are saved together, as of a
committed entry, and the log behind it is replayed over them. Before entries are deleted from the beginning of the log
they are saved again, so that whatever is left of the log can be replayed over what was saved.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from barnabas_broker.timing.slices import taken
from barnabas_raftlog.errors import BarnabasError, CorruptBatchError, StorageFailedError
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import parse_header

from .log_starts import LogStarts, decode_replica_state_in_steps
from .producer_state import ANY_ID, ProducerTable

__all__ = ["ReplayedLog", "ReplicaState", "load_replica_state", "note_entries"]

logger = logging.getLogger(__name__)


class ReplayedLog(Protocol):
    """The part of a replica's log that is used here."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def replay(self, from_index: int) -> AsyncIterator[Entry]: ...
    def load_state(self) -> tuple[int, bytes] | None: ...


class ReplicaState(NamedTuple):
    """Beside a log that was just opened. `saved_index`: as of which entry it was saved; 0 if it was not."""

    producers: ProducerTable
    starts: LogStarts
    saved_index: int


def note_entries(producers: ProducerTable, starts: LogStarts, entries: Sequence[Entry], timestamp_ms: int) -> None:
    """Bring both up to the last of `entries`, seen at `timestamp_ms`; those that are known are skipped.

    Not the batches' own timestamps: a producer that loads records of ten years ago is not ten years old.
    """
    for entry in entries:
        index = entry.index
        if index <= producers.applied_index:
            continue
        header = parse_header(entry.frame)
        if header.is_raft_control:
            starts.note(index, header, entry.frame)
            producers.skip(index)
        elif header.producer_id < 0:
            producers.skip(index)
        else:
            producers.append(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                index,
                header.base_offset,
                timestamp_ms,
            )


async def load_replica_state(log: ReplayedLog, timestamp_ms: int) -> ReplicaState:
    """Return the state of everything in `log`: what was saved, and the log from there on.

    Producers that are read from the log count as seen at `timestamp_ms`. What was saved may be ahead of the log: it is
    as of an entry that others had committed before this replica had it on its disk, or that a snapshot's sender had.

    Raises:
        StorageFailedError: the log cannot be read.
    """
    producers, starts, base_index, saved_index = ProducerTable(), LogStarts(), log.first_index - 1, 0
    # Beside a log without a record nothing is saved, and ten thousand such logs are opened without a look at the disk.
    saved = log.load_state() if base_index or log.log_end_offset else None
    is_known = base_index == 0  # whether there is anything to replay the log over
    if saved is not None and saved[0] >= base_index:
        try:
            start_offset, producers = await taken(decode_replica_state_in_steps(saved[1]))
            starts = LogStarts(producers.applied_index, start_offset)
            saved_index, is_known = producers.applied_index, True
            # What is committed elsewhere may not be here yet; the table must be ready for whatever comes in its place.
            producers.commit_index = min(producers.commit_index, saved[0])
        except BarnabasError as error:
            logger.warning("what was saved beside a log is of no use, replaying the log: %s", error)
    if not is_known:
        producers.forgotten_id_max = ANY_ID
    # What was dropped from the log was committed.
    producers.applied_index = max(producers.applied_index, base_index)
    producers.commit_index = max(producers.commit_index, base_index)
    if log.log_end_offset == 0:
        # No records at all, only what Raft needs for itself: nothing to read, also with ten thousand such replicas.
        producers.applied_index = log.last_index
    if log.last_index > producers.applied_index:
        try:
            async for entry in log.replay(producers.applied_index + 1):
                note_entries(producers, starts, (entry,), timestamp_ms)
        except CorruptBatchError as error:
            raise StorageFailedError(f"the log does not read back: {error}") from error
    return ReplicaState(producers, starts, saved_index)
