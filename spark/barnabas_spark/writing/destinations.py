"""Decides to which topic and partition each row of a piece goes, and refuses rows that cannot go anywhere.

The number of partitions of a topic is asked for when the task meets its name for the first time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_spark.options.writes import WriteOptions

from .columns import Piece
from .partitioning import Keys, spread
from .rows import data_of, places

__all__ = ["Destination", "Destinations", "Routed", "UnsuitableRowError"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class UnsuitableRowError(BarnabasError, ValueError):
    """A row cannot become a record. `row` counts the rows of its task, from 0."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row} of the task: {reason}")
        self.row = row
        self.reason = reason


class Destination(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Routed(NamedTuple):
    """The rows of a piece by destination: run i has the rows `order[run_ends[i - 1]:run_ends[i]]`.

    `order` is None if the rows are in that order already.
    """

    destinations: list[Destination]
    run_ends: list[int]
    order: Ints | None


class Destinations:
    """The topics of a task. `count_of` asks for the number of a topic's partitions."""

    def __init__(self, options: WriteOptions, count_of: Callable[[str], int], turn: int) -> None:
        self._options = options
        self._count_of = count_of
        self._first_turn = turn
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    def route(self, piece: Piece) -> Routed:
        """Return where the rows go.

        Raises:
            UnsuitableRowError: one cannot go anywhere.
            ClientError, KafkaError: the partitions of a topic cannot be learned.
        """
        self._check(piece)
        names, topic_of_row = self._topics(piece)
        row_count = piece.columns.row_count
        codes = np.empty(row_count, np.int64)
        first_code = 0
        destinations: list[Destination] = []
        for number, topic in enumerate(names):
            chosen = None if len(names) == 1 else np.flatnonzero(topic_of_row == number)
            partitions = self._partitions(piece, topic, chosen)
            count = self._counts[topic]
            if chosen is None:
                codes = partitions
            else:
                codes[chosen] = partitions + first_code
            first_code += count
            destinations += [Destination(topic, partition) for partition in range(count)]
        order = None if (codes[1:] >= codes[:-1]).all() else _stable_order(codes, first_code)
        sorted_codes = codes if order is None else codes[order]
        run_ends = np.append(np.flatnonzero(np.diff(sorted_codes)) + 1, row_count)
        used = [destinations[code] for code in sorted_codes[run_ends - 1].tolist()]
        return Routed(used, run_ends.tolist(), order)

    def _check(self, piece: Piece) -> None:
        limit = self._options.request_bytes_max
        sizes = piece.sizes + HEADER_BYTES
        if (row := _first(sizes > limit)) is not None:
            raise UnsuitableRowError(
                piece.first_row + row,
                f"a record of {sizes[row]} bytes is larger than {limit}, which is the value of kafka.max.request.size",
            )
        headers = piece.columns.headers
        if headers is None:
            return
        pairs = headers.flatten()
        names = pairs.field(0)
        if pairs.null_count or names.null_count:
            is_null = _nulls(pairs) | _nulls(names)
            ends = np.cumsum(headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
            row = int(np.searchsorted(ends, np.flatnonzero(is_null)[0], side="right"))
            raise UnsuitableRowError(piece.first_row + row, "a header without a key; null is possible for values only")

    def _topics(self, piece: Piece) -> tuple[list[str], Ints]:
        """Return the names of the topics, and which each row has."""
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(0, np.int64)
        if piece.topics.null_count:
            row = _first(_nulls(piece.topics))
            assert row is not None
            raise UnsuitableRowError(
                piece.first_row + row,
                "it has a null topic. Use the `topic` option for setting a default topic.",
            )
        encoded = piece.topics.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()

    def _partitions(self, piece: Piece, topic: str, chosen: Ints | None) -> Ints:
        """Return the partitions of all rows, or of those that are chosen."""
        if topic not in self._counts:
            self._counts[topic] = self._count_of(topic)
            self._turns[topic] = self._first_turn
        named = self._named(piece, topic, chosen)
        keys = None
        if piece.columns.keys is not None and not self._options.ignores_keys:
            starts, sizes = places(piece.columns.keys)
            if chosen is not None:
                starts, sizes = starts[chosen], sizes[chosen]
            keys = Keys(data_of(piece.columns.keys), starts, sizes)
        row_bytes = piece.sizes if chosen is None else piece.sizes[chosen]
        partitions, self._turns[topic] = spread(
            keys, named, row_bytes, self._counts[topic], self._options.batch_bytes, self._turns[topic]
        )
        return partitions

    def _named(self, piece: Piece, topic: str, chosen: Ints | None) -> Ints | None:
        """Return the partitions that rows ask for, -1 for none."""
        if piece.partitions is None or piece.partitions.null_count == len(piece.partitions):
            return None
        named: Ints = piece.partitions.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        is_wrong = named < (-1 if piece.partitions.null_count else 0)
        if piece.partitions.null_count:
            is_wrong |= (named < 0) & ~_nulls(piece.partitions)
        if (row := _first(is_wrong)) is not None:
            raise UnsuitableRowError(
                piece.first_row + row,
                f"Invalid partition: {named[row]}. Partition number should always be non-negative or null.",
            )
        if chosen is not None:
            named = named[chosen]
        if named.max(initial=-1) >= self._counts[topic]:
            # Perhaps the topic has more of them by now.
            self._counts[topic] = self._count_of(topic)
        count = self._counts[topic]
        if (place := _first(named >= count)) is not None:
            row = place if chosen is None else int(chosen[place])
            raise UnsuitableRowError(
                piece.first_row + row,
                f"{topic} has no partition {named[place]}; it has {count}, from 0 to {count - 1}",
            )
        return named


def _stable_order(codes: Ints, code_count: int) -> Ints:
    # numpy sorts small integers by radix.
    narrow = codes.astype(np.uint16) if code_count <= 1 << 16 else codes
    return np.argsort(narrow, kind="stable")


def _nulls(column: Any) -> Bools:
    nulls: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _first(is_so: Bools) -> int | None:
    return int(is_so.argmax()) if is_so.any() else None
