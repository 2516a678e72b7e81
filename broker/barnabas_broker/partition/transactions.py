"""Follows the transactions of one replica: what is open, what was aborted, up to where all is decided. Pure.

A transaction begins in a partition with the first transactional batch of a producer that has none open there, and ends
with the producer's next marker (`barnabas_raftlog.records.markers`). A marker of a producer without one ends nothing,
and nobody need hear of it.

- *The log decides.* The table is a function of the log, on leaders, followers and observers alike; nobody is told of a
  transaction otherwise. It is saved with an entry, and the log behind that is replayed over it.
- *Beginnings count when they are appended, ends when they are committed.* So what is undecided as of the commit index
  is what readers of committed records must not see, and the list of aborted transactions needs no way back. Ends that
  are not committed are kept with what they would end: truncating the log from an index leaves exactly the table of the
  log that remains. They are as many as the markers in the uncommitted part of the log.
- *What was compacted away.* A batch without records begins nothing: it stands for data that nobody will read, of a
  transaction that was decided. A marker without its record is one that commits, and still says all that it said; one
  that aborts stays whole, for the sake of readers (`barnabas_raftlog.log.replica.compaction`).

*The last stable offset* is the high watermark, or the first offset of the first undecided transaction if that is
smaller, though never below the start of the log; `Partition` puts the three together. It cannot go back: whatever
begins later stands behind what was committed before.

*A state that is ahead of its log* (`replica_state`) knows what has ended by entries that the log does not surely have
yet, and has forgotten what was aborted before the start that the log is about to have. So it says nothing of the log
as it is, and the last stable offset stands still until the two are together: a follower that was restarted lets such
readers wait for its leader's next word. Only a loss of power that takes committed entries from a majority can truncate
the log below such a state. Then what was ended by a lost marker is open no more, and if it was aborted it is not listed
any more (`forget_from`).

Not here: whether a batch or a marker is in order (`producer_state`), and whether the coordinator knows the transaction
(`Partition.verification`).
"""

import struct
from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer

from .aborted_index import ROW_BYTES, AbortedImage, AbortedIndex, AbortedTransaction

__all__ = ["OpenTransaction", "TransactionImage", "TransactionTable"]

PIECE = 1_000
"""Open transactions that are decoded without a pause: half a millisecond."""
_COUNTS = struct.Struct("<qq")
_OPEN = struct.Struct("<5q")


class OpenTransaction(NamedTuple):
    """A transaction as it began. `first_offset`: of the batch at `first_index`, appended at `timestamp_ms`."""

    producer_id: int
    epoch: int
    first_offset: int
    first_index: int
    timestamp_ms: int


class _End(NamedTuple):
    """A marker that is not committed, and what it would end."""

    log_index: int
    offset: int
    is_commit: bool
    transaction: OpenTransaction


class TransactionImage(NamedTuple):
    """The table as of a commit index. It never changes."""

    undecided: Sequence[OpenTransaction]
    aborted: AbortedImage

    @property
    def is_empty(self) -> bool:
        return not self.undecided and not self.aborted.row_count

    def to_blob(self) -> bytes:
        """Return the image to be saved. It takes long, and is for a worker."""
        counts = _COUNTS.pack(len(self.undecided), self.aborted.row_count)
        return b"".join((counts, *[_OPEN.pack(*one) for one in self.undecided], *self.aborted.parts()))


class TransactionTable:
    """The transactions of one replica, as of the end of its log and as of `commit_index`.

    Invariants: `_undecided` has what has not ended as of the commit index, by first offset, in the order of the log;
    `_open` has what has not ended as of the log's end, by producer; the difference is what `_ends` would end.
    """

    __slots__ = ("_ends", "_open", "_undecided", "aborted", "commit_index")

    def __init__(self) -> None:
        # Taking the first one of many is quick from an OrderedDict, and from a dict that had others before it is not.
        self._undecided: OrderedDict[int, OpenTransaction] = OrderedDict()
        self._open: dict[int, OpenTransaction] = {}
        self._ends: list[_End] = []
        self.aborted = AbortedIndex()
        self.commit_index = 0

    def begin(self, producer_id: int, epoch: int, index: int, base_offset: int, timestamp_ms: int) -> None:
        """Note a transactional batch with records, at `index`, appended at `timestamp_ms`."""
        if producer_id in self._open:
            return
        begun = OpenTransaction(producer_id, epoch, base_offset, index, timestamp_ms)
        self._open[producer_id] = begun
        self._undecided[base_offset] = begun

    def end(self, producer_id: int, index: int, offset: int, is_commit: bool) -> None:
        """Note a marker at `index`, whose one record has `offset`."""
        transaction = self._open.pop(producer_id, None)
        if transaction is not None:
            self._ends.append(_End(index, offset, is_commit, transaction))

    def truncate_from(self, index: int) -> None:
        """Follow the log, which has lost the entries at and after `index`."""
        undecided = self._undecided
        while undecided and next(reversed(undecided.values())).first_index >= index:
            _, transaction = undecided.popitem()
            if self._open.get(transaction.producer_id) is transaction:
                del self._open[transaction.producer_id]
        while self._ends and self._ends[-1].log_index >= index:
            transaction = self._ends.pop().transaction
            if transaction.first_index < index:
                self._open[transaction.producer_id] = transaction

    def commit(self, commit_index: int) -> None:
        """Let the markers up to `commit_index` count."""
        self.commit_index = commit_index
        ends = self._ends
        undecided = self._undecided
        count = 0
        while count < len(ends) and ends[count].log_index <= commit_index:
            _, offset, is_commit, transaction = ends[count]
            count += 1
            del undecided[transaction.first_offset]
            if not is_commit:
                # Of those that are left, some began behind the marker.
                last_stable_offset = min(next(iter(undecided), offset + 1), offset + 1)
                aborted = AbortedTransaction(transaction.producer_id, transaction.first_offset, offset)
                self.aborted.add(aborted, last_stable_offset)
        del ends[:count]

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of what is undecided as of the commit index; None: all is decided."""
        transaction = next(iter(self._undecided.values()), None)
        if transaction is None or transaction.first_index > self.commit_index:
            return None
        return transaction.first_offset

    def transaction_of(self, producer_id: int) -> OpenTransaction | None:
        """Return what a producer has open as of the end of the log."""
        return self._open.get(producer_id)

    def open_transactions(self) -> list[OpenTransaction]:
        """Return what is open as of the end of the log."""
        return list(self._open.values())

    def undecided(self) -> list[OpenTransaction]:
        """Return what is open as of the commit index, in the order of the log: the first holds all readers up."""
        return [one for one in self._undecided.values() if one.first_index <= self.commit_index]

    def committed(self) -> TransactionImage:
        """Return what is known of the committed entries."""
        return TransactionImage(self.undecided(), self.aborted.image())

    @classmethod
    def from_blob_in_steps(cls, blob: Buffer) -> "Generator[None, None, TransactionTable]":
        """Read what `TransactionImage.to_blob` wrote, with pauses.

        Raises:
            CorruptBatchError: the blob has another size than it says.
        """
        view = memoryview(blob)
        open_count, row_count = _COUNTS.unpack_from(view) if len(view) >= _COUNTS.size else (-1, -1)
        rows_begin = _COUNTS.size + open_count * _OPEN.size
        if min(open_count, row_count) < 0 or rows_begin + row_count * ROW_BYTES != len(view):
            about = f"{open_count} open transactions and {row_count} aborted ones in {len(view)} bytes"
            raise CorruptBatchError(f"saved transactions cannot be read: {about}")
        table = cls()
        for number, fields in enumerate(_OPEN.iter_unpack(view[_COUNTS.size : rows_begin]), 1):
            transaction = OpenTransaction._make(fields)
            table._open[transaction.producer_id] = table._undecided[transaction.first_offset] = transaction
            if not number % PIECE:
                yield
        table.aborted = yield from AbortedIndex.read_in_steps(view[rows_begin:])
        return table
