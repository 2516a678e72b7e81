"""Finds the aborted transactions that have records in a range of offsets. Pure.

A reader of committed records is told, with what it fetches, which transactions in there were aborted, and drops their
records. The transactions stand here in the order in which they ended. So those that matter to a range are among the
ones that ended at or behind its start, and the last of them is the one behind whose end everything before the end of
the range was decided: as in Kafka's transaction index, each row says up to where that was so (`last_stable_offset`).

*Cost.* Beside the answer: a search by halves, then a look at each block of `BLOCK` rows in which a transaction may
matter. A block whose transactions all began behind the range is passed over. So a transaction that was open while a
million others were aborted costs a look at four thousand blocks.

*A great many.* A fetch of 50 MB may have seven hundred thousand. What may matter to a range is chosen at once and never
changes (`AbortedRange`); the rows are made of it in steps.

*Memory.* 32 bytes a row. A block that is full never changes, so a copy of the index is one of the list of blocks.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterable
from heapq import merge
from itertools import islice
from typing import NamedTuple

from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.steps import at_once

__all__ = ["ROW_BYTES", "AbortedImage", "AbortedIndex", "AbortedRange", "AbortedTransaction"]

BLOCK = 256
"""Rows."""
COLUMNS = 4
ROW_BYTES = 8 * COLUMNS
PIECE = 64
"""Blocks that are decoded without a pause: half a mebibyte."""
MERGED_PIECE = 500
"""Rows that are brought into order without a pause: half a millisecond."""


class AbortedTransaction(NamedTuple):
    """What a producer wrote from `first_offset` to its marker at `last_offset`, inclusive, is not to be read."""

    producer_id: int
    first_offset: int
    last_offset: int


class _Block(NamedTuple):
    """Rows, column after column of each: producer id, first offset, last offset, last stable offset behind it."""

    rows: "array[int]"
    first_offset_min: int

    @property
    def last_offset(self) -> int:
        return self.rows[-2]

    @property
    def last_stable_offset(self) -> int:
        return self.rows[-1]


class AbortedImage(NamedTuple):
    """An index that never changes."""

    blocks: tuple[_Block, ...]
    tail: "array[int]"

    @property
    def row_count(self) -> int:
        return len(self.blocks) * BLOCK + len(self.tail) // COLUMNS

    def parts(self) -> Iterable[Buffer]:
        """Return the rows as bytes, little-endian, in parts. For a worker: it takes long."""
        return [_swapped(rows).tobytes() for rows in (*(block.rows for block in self.blocks), self.tail)]


class AbortedRange(NamedTuple):
    """What an index has of a range of offsets. It never changes."""

    blocks: tuple["array[int]", ...]
    start_offset: int
    end_offset: int

    @property
    def row_count_max(self) -> int:
        """How many transactions there are at most."""
        return sum(len(rows) for rows in self.blocks) // COLUMNS

    def in_steps(self) -> Generator[None, None, list[AbortedTransaction]]:
        """Return those that have something in the range, by first offset."""
        runs: list[list[AbortedTransaction]] = []
        for rows in self.blocks:
            if runs:
                yield
            run = _within(rows, self.start_offset, self.end_offset)
            run.sort(key=_first_offset_of)
            runs.append(run)
        if len(runs) <= 1:
            return runs[0] if runs else []
        found: list[AbortedTransaction] = []
        merged = merge(*runs, key=_first_offset_of)
        while piece := list(islice(merged, MERGED_PIECE)):
            found += piece
            yield
        return found


class AbortedIndex:
    """The aborted transactions of one log, as far as it is committed, in the order of their ends.

    Invariant: the last offsets increase, and the last stable offsets never decrease.
    """

    __slots__ = ("_blocks", "_tail")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._tail = array("q")  # rows that do not fill a block yet

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._tail) // COLUMNS

    def add(self, transaction: AbortedTransaction, last_stable_offset: int) -> None:
        """Note a transaction that ended behind all others; everything below `last_stable_offset` is decided then."""
        tail = self._tail
        assert transaction.first_offset <= transaction.last_offset < 1 << 62, transaction
        assert not tail or transaction.last_offset > tail[-2], transaction
        tail.extend((*transaction, last_stable_offset))
        if len(tail) == BLOCK * COLUMNS:
            self._blocks.append(_block(tail[:]))
            self._tail = array("q")

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return those that have something from `start_offset` to `end_offset`, exclusive, by first offset."""
        return at_once(self.range(start_offset, end_offset).in_steps())

    def range(self, start_offset: int, end_offset: int) -> AbortedRange:
        """Return what there is now of a range, `end_offset` exclusive."""
        blocks = self._blocks
        found: list[array[int]] = []
        number = bisect_left(blocks, start_offset, key=_last_offset_of)
        while number < len(blocks):
            block = blocks[number]
            if block.first_offset_min < end_offset:
                found.append(block.rows)
            if block.last_stable_offset >= end_offset:
                break
            number += 1
        else:
            if self._tail and self._tail[-2] >= start_offset:
                found.append(self._tail[:])
        return AbortedRange(tuple(found), start_offset, end_offset)

    def forget_before(self, log_start_offset: int) -> None:
        """Forget transactions of which nothing can be read; some may stay that share a block with others."""
        count = bisect_left(self._blocks, log_start_offset, key=_last_offset_of)
        del self._blocks[:count]
        if not self._blocks and self._tail and self._tail[-2] < log_start_offset:
            self._tail = array("q")

    def forget_from(self, log_end_offset: int) -> None:
        """Forget transactions that ended at or behind `log_end_offset`: entries that were committed are lost."""
        while True:
            while self._tail and self._tail[-2] >= log_end_offset:
                del self._tail[-COLUMNS:]
            if self._tail or not self._blocks:
                return
            self._tail = self._blocks.pop().rows[:]
            if self._tail[-2] < log_end_offset:
                self._blocks.append(_block(self._tail))
                self._tail = array("q")
                return

    def image(self) -> AbortedImage:
        """Return what stands here now."""
        return AbortedImage(tuple(self._blocks), self._tail[:])

    @classmethod
    def read_in_steps(cls, data: memoryview) -> "Generator[None, None, AbortedIndex]":
        """Read what `AbortedImage.parts` gave, whole rows, with pauses."""
        assert len(data) % ROW_BYTES == 0, len(data)
        index = cls()
        for number, position in enumerate(range(0, len(data), BLOCK * ROW_BYTES), 1):
            rows = array("q")
            rows.frombytes(data[position : position + BLOCK * ROW_BYTES])
            rows = _swapped(rows)
            if len(rows) == BLOCK * COLUMNS:
                index._blocks.append(_block(rows))
            else:
                index._tail = rows
            if not number % PIECE:
                yield
        return index


def _block(rows: "array[int]") -> _Block:
    return _Block(rows, min(rows[1::COLUMNS]))


def _within(rows: "array[int]", start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the transactions among these rows that have something in a range."""
    if not rows or rows[-2] < start_offset:
        return []
    begin = COLUMNS * bisect_left(rows[2::COLUMNS], start_offset)
    columns = (rows[begin + column :: COLUMNS] for column in range(3))
    found = zip(*columns, strict=True)
    return [AbortedTransaction._make(one) for one in found if one[1] < end_offset]


def _swapped(rows: "array[int]") -> "array[int]":
    """Return rows of this machine's byte order in little-endian, or the other way round."""
    if sys.byteorder == "little":
        return rows
    rows = rows[:]
    rows.byteswap()
    return rows


def _last_offset_of(block: _Block) -> int:
    return block.last_offset


def _first_offset_of(transaction: AbortedTransaction) -> int:
    return transaction.first_offset
