"""The leader-epoch cache: which term wrote which part of the log (KIP-101, KIP-320). Pure.

A partition's leader epoch is its Raft term, so one table answers two questions: Raft's "which term has the entry at
this index?" and Kafka's "where does this epoch end?". Three columns, one row per term that wrote anything: the
term, its first index, and the log's end offset just before that entry. The offset of a row may equal that of the
next one: a leader whose only entry was its no-op control frame wrote no record.

The table is small (elections are rare) and is saved whole with every checkpoint. Not here: terms in which nothing was
written. The log never asks for them.
"""

from bisect import bisect_left, bisect_right
from operator import le, lt

__all__ = ["LeaderEpochs"]


class LeaderEpochs:
    """Maps every index of one log to its term, and every term to the offsets written in it.

    Invariant: terms and first indexes are strictly increasing, start offsets never decrease, and rows from the
    second on begin inside the log. The first row may begin before the log does: it covers the entry just before
    `first_index`, whose term Raft still needs after a prefix was dropped.
    """

    __slots__ = ("_first_indexes", "_start_offsets", "_terms")

    def __init__(self) -> None:
        self._terms: list[int] = []
        self._first_indexes: list[int] = []
        self._start_offsets: list[int] = []

    def assign(self, term: int, first_index: int, start_offset: int) -> None:
        """Record that the entry at `first_index` has `term`; a term that is already the newest is ignored."""
        if self._terms:
            if term == self._terms[-1]:
                return
            assert term > self._terms[-1], (term, self._terms[-1])
            assert first_index > self._first_indexes[-1]
            assert start_offset >= self._start_offsets[-1]
        self._terms.append(term)
        self._first_indexes.append(first_index)
        self._start_offsets.append(start_offset)

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`, which must be in the log; 0 before the first row."""
        position = bisect_right(self._first_indexes, index)
        return self._terms[position - 1] if position else 0

    def term_at_offset(self, offset: int) -> int:
        """Return the term that wrote, or will write, the record at `offset`; 0 before the first row."""
        position = bisect_right(self._start_offsets, offset)
        return self._terms[position - 1] if position else 0

    @property
    def last_term(self) -> int:
        return self._terms[-1] if self._terms else 0

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Return (epoch, end_offset) of the newest epoch not above `leader_epoch`.

        `end_offset` is exclusive: the first offset that belongs to a later epoch, or
        `log_end_offset`. None when the log holds nothing that old.
        """
        position = bisect_right(self._terms, leader_epoch)
        if position == 0:
            return None
        is_latest = position == len(self._terms)
        end_offset = log_end_offset if is_latest else self._start_offsets[position]
        return self._terms[position - 1], end_offset

    def truncate_from(self, index: int) -> None:
        """Forget every term whose first entry is at or after `index`."""
        keep = bisect_left(self._first_indexes, index)
        del self._terms[keep:], self._first_indexes[keep:], self._start_offsets[keep:]

    def drop_prefix(self, index: int) -> None:
        """Forget the terms that ended before `index`; the term of `index` itself stays known."""
        drop = bisect_right(self._first_indexes, index) - 1
        if drop > 0:
            del self._terms[:drop], self._first_indexes[:drop], self._start_offsets[:drop]

    def rows(self) -> list[tuple[int, int, int]]:
        """Return (term, first_index, start_offset), oldest first."""
        return list(zip(self._terms, self._first_indexes, self._start_offsets, strict=True))

    @classmethod
    def from_rows(cls, rows: list[tuple[int, int, int]]) -> "LeaderEpochs":
        """Return the table that `rows()` described."""
        epochs = cls()
        if rows:
            terms, first_indexes, start_offsets = map(list, zip(*rows, strict=True))
            assert all(map(lt, terms, terms[1:])), rows
            assert all(map(lt, first_indexes, first_indexes[1:])), rows
            assert all(map(le, start_offsets, start_offsets[1:])), rows
            epochs._terms = terms
            epochs._first_indexes = first_indexes
            epochs._start_offsets = start_offsets
        return epochs
