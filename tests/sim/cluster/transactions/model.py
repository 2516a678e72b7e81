"""What the entries of a partition say of producers and transactions, worked out naively. Pure.

Every entry that any replica has appended is known by its index and term. What has been committed is one sequence of
them; the state behind each is kept, so the state of any replica, as of its commit index and as of the end of its log,
can be told from the terms of its entries alone, however its tables came to be: appended, truncated, replayed, sent.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, parse_header
from barnabas_raftlog.records.markers import is_marker, read_marker

__all__ = ["Data", "End", "Model", "State", "UnknownEntryError", "is_left_of", "said_by"]

Rows = list[tuple[int, int, int]]


class Data(NamedTuple):
    """A producer's batch."""

    producer_id: int
    epoch: int
    offset: int
    is_transactional: bool


class End(NamedTuple):
    """A marker."""

    producer_id: int
    epoch: int
    offset: int
    is_commit: bool


class State(NamedTuple):
    """`open`: epoch and first offset of each producer's transaction. `last`: index and epoch of its last entry.

    `aborted`: so many of the model's aborted transactions; it says nothing behind entries that are not committed.
    """

    open: dict[int, tuple[int, int]]
    last: dict[int, tuple[int, int]]
    aborted: int


class UnknownEntryError(Exception):
    """Nobody has said what this entry is."""


def is_left_of(rows: Rows, wanted: Rows) -> bool:
    """Tell whether a replica can have these aborted transactions whose log was compacted, instead of all `wanted`.

    Batches that were emptied begin nothing: a table that was made from such a log has fewer, or later beginnings.
    """
    begins = {(producer_id, last_offset): first_offset for producer_id, first_offset, last_offset in wanted}
    return all(key in begins and first >= begins[key] for key, first in (((a, c), b) for a, b, c in rows))


def said_by(entry: Entry) -> Data | End | None:
    """Return what an entry says of its producer; None: nothing."""
    frame = memoryview(entry.frame)
    header = parse_header(frame)
    if header.is_raft_control or header.producer_id < 0:
        return None
    if header.attributes & CONTROL:
        marker = read_marker(header, frame) if is_marker(header) else None
        if marker is None:
            return None
        return End(marker.producer_id, marker.producer_epoch, header.base_offset, marker.is_commit)
    is_transactional = bool(header.attributes & TRANSACTIONAL)
    return Data(header.producer_id, header.producer_epoch, header.base_offset, is_transactional)


class Model:
    """One partition. `aborted`: producer, first and last offset of each aborted transaction, in the order of ends."""

    def __init__(self) -> None:
        self.said = dict[tuple[int, int], Data | End | None]()
        self.aborted = list[tuple[int, int, int]]()
        self.committed_index = 0
        self._indexes = [0]
        self._states = [State({}, {}, 0)]

    def append(self, entry: Entry) -> Data | End | None:
        """Hear of an entry; the same as often as it is appended anywhere."""
        key = entry.index, entry.term
        if key not in self.said:
            self.said[key] = said_by(entry)
        return self.said[key]

    def commit(self, index: int, term_at: Callable[[int], int | None]) -> None:
        """Take in the entries up to `index` that are not yet; `term_at` is of a replica that has committed them.

        Raises:
            UnknownEntryError: that replica has dropped one of them, or nobody has appended it.
        """
        while self.committed_index < index:
            at = self.committed_index + 1
            said = self._said(at, term_at)
            if said is not None:
                self._states.append(self._behind(self._states[-1], at, said, self.aborted))
                self._indexes.append(at)
            self.committed_index = at

    def at(self, index: int) -> State:
        """Return the state behind a committed entry."""
        assert index <= self.committed_index
        return self._states[bisect_right(self._indexes, index) - 1]

    def behind(self, commit_index: int, end_index: int, term_at: Callable[[int], int | None]) -> State:
        """Return the state at the end of a log whose entries up to `commit_index` are committed.

        Raises:
            UnknownEntryError: nobody has heard of one of the others.
        """
        state = self.at(commit_index)
        for index in range(commit_index + 1, end_index + 1):
            said = self._said(index, term_at)
            if said is not None:
                state = self._behind(state, index, said, [])
        return state

    def _said(self, index: int, term_at: Callable[[int], int | None]) -> Data | End | None:
        term = term_at(index)
        if term is None or (index, term) not in self.said:
            raise UnknownEntryError(index, term)
        return self.said[index, term]

    def _behind(self, state: State, index: int, said: Data | End, aborted: list[tuple[int, int, int]]) -> State:
        producer_id = said.producer_id
        still_open = state.open
        if isinstance(said, Data) and said.is_transactional and producer_id not in still_open:
            still_open = {**still_open, producer_id: (said.epoch, said.offset)}
        elif isinstance(said, End) and producer_id in still_open:
            still_open = {known: begun for known, begun in still_open.items() if known != producer_id}
            if not said.is_commit:
                aborted.append((producer_id, state.open[producer_id][1], said.offset))
        return State(still_open, {**state.last, producer_id: (index, said.epoch)}, len(aborted))
