"""Keeps the state of a replica beside its log: loads, saves and replaces it.

Three things are functions of the log: the producers, the transactions, and the start of the log. They are saved
together, as of a committed entry, and the log behind it is replayed over them. Before entries are deleted from the
beginning of the log they are saved again, so that the rest of the log can be replayed over what was saved.

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
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, BatchHeader, parse_header
from barnabas_raftlog.records.markers import EndMarker, is_marker, read_marker

from .log_starts import LogStarts
from .producer_state import ANY_ID, ProducerTable
from .saved_state import SavedState, decode_replica_state, decode_replica_state_in_steps, encode_replica_state
from .transactions import TransactionTable

__all__ = ["ReplayedLog", "ReplicaState", "SavingLog", "load_replica_state"]

logger = logging.getLogger(__name__)

ABORTED_PER_PRODUCER = 6
"""Aborted transactions that take as many bytes in a saved state as a producer does."""
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

    __slots__ = ("_prepared", "producers", "saved_index", "saved_size_bytes", "starts", "transactions")

    def __init__(self, *, size_bytes: int = 0) -> None:
        self.producers = ProducerTable()
        self.transactions = TransactionTable()
        self.starts = LogStarts()
        self.saved_index = 0
        self.saved_size_bytes = size_bytes
        self._prepared: tuple[bytes, SavedState] | None = None  # a snapshot's state, and it decoded

    @property
    def is_ahead(self) -> bool:
        """True while what is known is as of an entry that the log does not surely have."""
        return self.producers.commit_index < self.starts.known_index

    def note(self, entries: Sequence[Entry], timestamp_ms: int) -> None:
        """Come up to the last of `entries`, seen at `timestamp_ms`; those that are known are skipped.

        A producer is forgotten by when it was seen, not by its batches' own timestamps: one that loads records of ten
        years ago is not ten years old. With a transaction open none is forgotten. Of those the log says how old they
        are (`_written_ms`), and so it does of markers, which have the time of a broker: a transaction that hangs is
        not young again because this replica was restarted, or has come late.
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
            elif header.attributes & CONTROL:
                marker = _marker_in(header, entry.frame)
                if marker is None:
                    producers.skip(index)
                else:
                    self.note_marker(marker, index, header.base_offset, _written_ms(header, timestamp_ms))
            elif header.attributes & TRANSACTIONAL and header.record_count > 0:
                self.note_batch(header, index, header.base_offset, _written_ms(header, timestamp_ms))
            else:
                self.note_batch(header, index, header.base_offset, timestamp_ms)

    def note_batch(self, header: BatchHeader, index: int, base_offset: int, timestamp_ms: int) -> None:
        """Note a producer's batch at `index` and `base_offset`, which need not stand in the header yet.

        `timestamp_ms`: when it was appended, as far as that is known. Of a transactional one that was compacted to a
        header nothing is left that a transaction could decide.
        """
        is_transactional = header.attributes & TRANSACTIONAL != 0 and header.record_count > 0
        self.producers.append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            index,
            base_offset,
            timestamp_ms,
            is_transactional,
        )
        if is_transactional:
            self.transactions.begin(header.producer_id, header.producer_epoch, index, base_offset, timestamp_ms)

    def note_marker(self, marker: EndMarker, index: int, offset: int, timestamp_ms: int) -> None:
        """Note the end of a producer's transaction at `index`, whose record has `offset`."""
        producer_id, epoch, is_commit, coordinator_epoch = marker
        self.producers.append_marker(producer_id, epoch, coordinator_epoch, is_commit, index, timestamp_ms)
        self.transactions.end(producer_id, index, offset, is_commit)

    def commit(self, commit_index: int) -> None:
        """Follow the commit index; the start of the log has more to do then, and is told by `Partition`."""
        self.producers.commit_index = commit_index
        self.transactions.commit(commit_index)

    def truncate_from(self, index: int, offset_after: Callable[[int], int]) -> None:
        """Follow the log, which has lost the entries at and after `index`; `offset_after` an entry is its own."""
        self.producers.truncate_from(index)
        self.transactions.truncate_from(index)
        if index <= self.starts.known_index and len(self.transactions.aborted):
            # Committed ones, which only a loss of power can take.
            self.transactions.aborted.forget_from(offset_after(index - 1))
        self.starts.truncate_from(index)

    # Saving.

    def is_save_due(self, commit_index: int, size_bytes: int) -> bool:
        """Tell whether enough has been committed since the last time; `size_bytes`: of the log now."""
        entries = commit_index - self.saved_index
        if entries < SAVE_ENTRIES and size_bytes - self.saved_size_bytes < SAVE_BYTES:
            return False
        # Writing the table must stay small beside what was written to the log meanwhile.
        return entries * 4 >= len(self.producers) + len(self.transactions.aborted) // ABORTED_PER_PRODUCER

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
        applied_index = min(self.producers.applied_index, self.producers.commit_index)
        if applied_index > 0:
            log.save_state(max(log.first_index - 1, min(applied_index, log.durable_index)), self.encoder())

    # Snapshots.

    def encoder(self) -> Callable[[], bytes]:
        """Return what encodes the state of the committed entries, as of this call. For a worker: it takes long."""
        committed = self.producers.committed()
        # A replica that was just opened may know of a committed start that it has not applied yet.
        start_offset = self.starts.offset_as_of(committed.commit_index)
        return partial(encode_replica_state, start_offset, committed, self.transactions.committed())

    async def prepare(self, data: bytes) -> None:
        """Read in pieces what `install` is about to be given; cancelled, that reads it again."""
        with suppress(BarnabasError):
            self._prepared = data, await taken(decode_replica_state_in_steps(data))

    def install(self, index: int, data: bytes, size_bytes: int) -> None:
        """Become what a snapshot says of entry `index`, at which this log, of so many bytes, begins now."""
        try:
            start_offset, producers, transactions = self._decoded(data)
        except BarnabasError:
            # Of another version. The log is what counts; without the table a repetition may pass for something new.
            start_offset = 0
            producers = ProducerTable()
            producers.forgotten_id_max = ANY_ID
            transactions = TransactionTable()
        producers.applied_index = max(producers.applied_index, index)
        self.producers = producers
        self.transactions = transactions
        self.commit(index)
        self.starts = LogStarts(producers.applied_index, start_offset)
        self.saved_index = index
        self.saved_size_bytes = size_bytes

    def reset(self) -> None:
        """Become that of an empty log."""
        self.producers = ProducerTable()
        self.transactions = TransactionTable()
        self.starts = LogStarts()
        self.saved_index = 0
        self.saved_size_bytes = 0

    def _decoded(self, data: bytes) -> SavedState:
        prepared, self._prepared = self._prepared, None
        return prepared[1] if prepared is not None and prepared[0] == data else decode_replica_state(data)


async def load_replica_state(log: ReplayedLog, timestamp_ms: int) -> ReplicaState:
    """Return the state of everything in `log`: the saved one, with the log behind it replayed.

    Producers that are read from the log count as seen at `timestamp_ms`; but see `ReplicaState.note`.

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
            start_offset, producers, transactions = await taken(decode_replica_state_in_steps(saved[1]))
        except BarnabasError as error:
            logger.warning("the state saved beside a log is of no use, replaying the log: %s", error)
        else:
            state.producers = producers
            state.transactions = transactions
            state.starts = LogStarts(producers.applied_index, start_offset)
            state.saved_index = producers.applied_index
            is_known = True
            # Entries committed elsewhere may not be here yet; the table must be ready for others in their place.
            producers.commit_index = min(producers.commit_index, saved[0])
    producers = state.producers
    if not is_known:
        producers.forgotten_id_max = ANY_ID
    # Entries that were dropped from the log were committed. What they have of transactions nobody can read.
    producers.applied_index = max(producers.applied_index, base_index)
    state.commit(max(producers.commit_index, base_index))
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


def _written_ms(header: BatchHeader, seen_ms: int) -> int:
    """Return when a batch was appended: its newest timestamp, unless that is later than it was seen, or says nothing.

    It is the clock of a client, unless the topic has the broker's. A client whose clock is behind makes its
    transaction look older than it is. None makes it look younger than it is here.
    """
    return min(header.max_timestamp, seen_ms) if header.max_timestamp >= 0 else seen_ms


def _marker_in(header: BatchHeader, frame: Buffer) -> EndMarker | None:
    """Return what a control batch says that takes an offset; None if it ends no transaction."""
    if not is_marker(header):
        return None
    try:
        return read_marker(header, memoryview(frame))
    except CorruptBatchError as error:
        logger.warning("a control batch is of no use, and ends no transaction: %s", error)
        return None
