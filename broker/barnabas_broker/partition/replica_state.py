"""Keeps the state of a replica beside its log: loads, saves and replaces it.

Two things are functions of the log: the table of producers and the start of the log. They are saved together, as of a
committed entry, and the log behind it is replayed over them. Before entries are deleted from the beginning of the log
they are saved again, so that the rest of the log can be replayed over what was saved.

The saved state may be ahead of the log: it is as of an entry that others had committed before this replica had it on
its disk, or that the sender of a snapshot had. Until the log is there, nothing is known as of a committed entry
(`is_ahead`), and the saved state stays true.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from barnabas_broker.timing.slices import taken
from barnabas_raftlog.errors import BarnabasError, CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.state_file import StateOrMaker
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import parse_header

from .log_starts import LogStarts, decode_replica_state, decode_replica_state_in_steps, encode_replica_state
from .producer_state import ANY_ID, ProducerImage, ProducerTable

__all__ = ["ReplayedLog", "ReplicaState", "SavingLog", "load_replica_state"]

logger = logging.getLogger(__name__)

SAVE_BYTES = 64 << 20
SAVE_ENTRIES = 2_000
"""Committed bytes or entries after which the state is saved again, on leaders and followers alike: they bound what a
start after a crash replays; 2,000 entries take about 40 ms. A large table is saved less often."""


class ReplayedLog(Protocol):
    """The part of a replica's log that is used when it is opened."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def replay(self, from_index: int) -> AsyncIterator[Entry]: ...
    def load_state(self) -> tuple[int, bytes] | None: ...


class SavingLog(Protocol):
    """The part of a replica's log that keeps the state."""

    @property
    def first_index(self) -> int: ...
    @property
    def durable_index(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def save_state(self, index: int, state: StateOrMaker) -> None: ...


class ReplicaState:
    """The state beside one log. Its `Partition` owns it, and tells it of every change of the log.

    `saved_index`: as of which entry it was saved; 0 if it was not. `saved_size_bytes`: how large the log was then.
    """

    __slots__ = ("_prepared", "producers", "saved_index", "saved_size_bytes", "starts")

    def __init__(
        self,
        producers: ProducerTable | None = None,
        starts: LogStarts | None = None,
        *,
        saved_index: int = 0,
        size_bytes: int = 0,
    ) -> None:
        self.producers = ProducerTable() if producers is None else producers
        self.starts = LogStarts() if starts is None else starts
        self.saved_index = saved_index
        self.saved_size_bytes = size_bytes
        self._prepared: tuple[bytes, tuple[int, ProducerTable]] | None = None  # a snapshot's state, and it decoded

    @property
    def is_ahead(self) -> bool:
        """True while what is known is as of an entry that the log does not surely have."""
        return self.producers.commit_index < self.starts.known_index

    def note(self, entries: Sequence[Entry], timestamp_ms: int) -> None:
        """Come up to the last of `entries`, seen at `timestamp_ms`; those that are known are skipped.

        Not the batches' own timestamps: a producer that loads records of ten years ago is not ten years old.
        """
        producers = self.producers
        starts = self.starts
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

    def truncate_from(self, index: int) -> None:
        """Follow the log, which has lost the entries at and after `index`."""
        self.producers.truncate_from(index)
        self.starts.truncate_from(index)

    # Saving.

    def is_save_due(self, commit_index: int, size_bytes: int) -> bool:
        """Tell whether enough has been committed since the last time; `size_bytes`: of the log now."""
        entries = commit_index - self.saved_index
        if entries < SAVE_ENTRIES and size_bytes - self.saved_size_bytes < SAVE_BYTES:
            return False
        # Writing the table must stay small beside what was written to the log meanwhile.
        return entries * 4 >= len(self.producers)

    def save(self, log: SavingLog) -> None:
        """Save it beside the log as of the commit index: entries beyond might be truncated after a crash.

        It is kept with an entry that this replica surely has after a crash, though it may say more than that: others
        may have made durable, and so committed, what is still on its way to this disk. The writer encodes it, as of
        this call.
        """
        if self.is_ahead:
            return  # The saved state is ahead of the log, and stays true.
        if log.log_end_offset == 0:
            return  # Nobody has ever written: there is nothing to know.
        self.saved_index = self.producers.commit_index
        self.saved_size_bytes = log.size_bytes
        committed = self.producers.committed()
        if committed.applied_index > 0:
            index = max(log.first_index - 1, min(committed.applied_index, log.durable_index))
            log.save_state(index, self._encoder(committed))

    # Snapshots.

    def encoder(self) -> Callable[[], bytes]:
        """Return what encodes the state of the committed entries, as of this call. For a worker: it takes long."""
        return self._encoder(self.producers.committed())

    async def prepare(self, data: bytes) -> None:
        """Read in pieces what `install` is about to be given; cancelled, that reads it again."""
        with suppress(BarnabasError):
            self._prepared = data, await taken(decode_replica_state_in_steps(data))

    def install(self, index: int, data: bytes, size_bytes: int) -> None:
        """Become what a snapshot says of entry `index`, at which this log, of so many bytes, begins now."""
        try:
            start_offset, producers = self._decoded(data)
        except BarnabasError:
            # Of another version. The log is what counts; without the table a repetition may pass for something new.
            start_offset = 0
            producers = ProducerTable()
            producers.forgotten_id_max = ANY_ID
        producers.applied_index = max(producers.applied_index, index)
        producers.commit_index = index
        self.producers = producers
        self.starts = LogStarts(producers.applied_index, start_offset)
        self.saved_index = index
        self.saved_size_bytes = size_bytes

    def reset(self) -> None:
        """Become that of an empty log."""
        self.producers = ProducerTable()
        self.starts = LogStarts()
        self.saved_index = 0
        self.saved_size_bytes = 0

    def _encoder(self, committed: ProducerImage) -> Callable[[], bytes]:
        # A replica that was just opened may know of a committed start that it has not applied yet.
        return partial(encode_replica_state, self.starts.offset_as_of(committed.commit_index), committed)

    def _decoded(self, data: bytes) -> tuple[int, ProducerTable]:
        prepared, self._prepared = self._prepared, None
        return prepared[1] if prepared is not None and prepared[0] == data else decode_replica_state(data)


async def load_replica_state(log: ReplayedLog, timestamp_ms: int) -> ReplicaState:
    """Return the state of everything in `log`: the saved one, with the log behind it replayed.

    Producers that are read from the log count as seen at `timestamp_ms`.

    Raises:
        StorageFailedError: the log cannot be read.
    """
    base_index = log.first_index - 1
    state = ReplicaState(size_bytes=log.size_bytes)
    # Beside a log without a record nothing is saved, and ten thousand such logs are opened without a look at the disk.
    saved = log.load_state() if base_index or log.log_end_offset else None
    is_known = base_index == 0  # whether there is anything to replay the log over
    if saved is not None and saved[0] >= base_index:
        try:
            start_offset, producers = await taken(decode_replica_state_in_steps(saved[1]))
        except BarnabasError as error:
            logger.warning("the state saved beside a log is of no use, replaying the log: %s", error)
        else:
            state.producers = producers
            state.starts = LogStarts(producers.applied_index, start_offset)
            state.saved_index = producers.applied_index
            is_known = True
            # Entries committed elsewhere may not be here yet; the table must be ready for others in their place.
            producers.commit_index = min(producers.commit_index, saved[0])
    producers = state.producers
    if not is_known:
        producers.forgotten_id_max = ANY_ID
    # Entries that were dropped from the log were committed.
    producers.applied_index = max(producers.applied_index, base_index)
    producers.commit_index = max(producers.commit_index, base_index)
    if log.log_end_offset == 0:
        # No records at all, only what Raft needs for itself: nothing to read, also with ten thousand such replicas.
        producers.applied_index = log.last_index
    if log.last_index > producers.applied_index:
        try:
            async for entry in log.replay(producers.applied_index + 1):
                state.note((entry,), timestamp_ms)
        except CorruptBatchError as error:
            raise StorageFailedError(f"the log does not read back: {error}") from error
    return state
