"""Measures rows that are read in order: what a file, or a piece of a log, has of each unit.

Fragments that follow each other are joined without their rows. Those that do not (their offsets are mixed, or a file is
not sorted) must be merged first (merging.py).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas_spark.lake.checksums import CHECKED_COLUMNS, RowsChecksum, Stream

__all__ = ["HOLES_MAX", "Fragment", "Measuring", "fragment_from_plain", "is_in_order", "joined_fragments"]

HOLES_MAX = 20


class Fragment(NamedTuple):
    """Rows of one unit. `steps_back` is how many have an earlier timestamp than the row before.

    `missing` counts offsets between the first and the last one without a row; `holes` are the first of them, as
    [start, end). `doubled` counts rows whose offset an earlier row has; these are in nothing else. `checksum` is None
    if the columns are not there that it needs.
    """

    unit: int
    rows: int
    first_offset: int
    last_offset: int
    is_sorted: bool
    checksum: RowsChecksum | None
    first_us: int
    last_us: int
    missing: int = 0
    holes: tuple[tuple[int, int], ...] = ()
    steps_back: int = 0
    doubled: int = 0
    doubled_offset: int = -1

    def followed_by(self, other: "Fragment") -> "Fragment":
        """Return both as one."""
        between = other.first_offset - self.last_offset - 1
        hole = ((self.last_offset + 1, other.first_offset),) if between > 0 else ()
        both = None
        if self.checksum is not None and other.checksum is not None:
            pairs = zip(self.checksum.streams, other.checksum.streams, strict=True)
            both = RowsChecksum(tuple(one.followed_by(another) for one, another in pairs))
        return Fragment(
            self.unit,
            self.rows + other.rows,
            self.first_offset,
            max(self.last_offset, other.last_offset),
            self.is_sorted and other.is_sorted and between >= 0,
            both,
            self.first_us,
            other.last_us,
            self.missing + max(between, 0) + other.missing,
            (*self.holes, *hole, *other.holes)[:HOLES_MAX],
            self.steps_back + (other.first_us < self.last_us) + other.steps_back,
            self.doubled + other.doubled,
            self.doubled_offset if self.doubled else other.doubled_offset,
        )


def fragment_from_plain(said: Sequence[Any]) -> Fragment:
    """Return a fragment that went through JSON."""
    one = Fragment(*said)
    checksum = None if one.checksum is None else RowsChecksum(tuple(Stream(*each) for each in one.checksum[0]))
    return one._replace(checksum=checksum, holes=tuple((start, end) for start, end in one.holes))


def is_in_order(parts: Sequence[Fragment]) -> bool:
    """Tell whether fragments, sorted by their first offsets, can be joined as they are."""
    return all(one.is_sorted for one in parts) and all(
        one.last_offset < other.first_offset for one, other in pairwise(parts)
    )


def joined_fragments(parts: Iterable[Fragment]) -> Fragment | None:
    """Return fragments that follow each other as one; None if there are none."""
    found: Fragment | None = None
    for one in parts:
        found = one if found is None else found.followed_by(one)
    return found


class Measuring:
    """Rows that are being read, by their units. Rows of a unit come in the order in which they are read."""

    def __init__(self) -> None:
        self.found: dict[int, Fragment] = {}

    def add(self, unit: int, batch: Any) -> None:
        """Add rows of one unit."""
        offsets = _plain(batch.column("offset"))
        times = _plain(batch.column("timestamp"))
        steps = np.diff(offsets)
        wide = np.flatnonzero(steps > 1)
        names = batch.schema.names
        is_whole = all(name in names for name in CHECKED_COLUMNS)
        one = Fragment(
            unit,
            len(offsets),
            int(offsets[0]),
            int(offsets.max()),
            bool((steps > 0).all()),
            RowsChecksum().extended(batch) if is_whole and unit not in self.found else None,
            int(times[0]),
            int(times[-1]),
            int((steps[wide] - 1).sum()),
            tuple((int(offsets[at]) + 1, int(offsets[at + 1])) for at in wide[:HOLES_MAX].tolist()),
            int((np.diff(times) < 0).sum()),
        )
        before = self.found.get(unit)
        if before is not None:
            # To go on with a checksum costs less than to join two.
            checksum = before.checksum
            one = before._replace(checksum=None).followed_by(one)
            one = one._replace(checksum=checksum.extended(batch) if checksum is not None and is_whole else None)
        self.found[unit] = one

    def add_doubled(self, unit: int, count: int, offset: int) -> None:
        """Count rows that were left out because their offsets were there."""
        one = self.found[unit]
        first = one.doubled_offset if one.doubled else offset
        self.found[unit] = one._replace(doubled=one.doubled + count, doubled_offset=first)

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        return tuple(self.found.values())


def times_us(column: Any) -> Any:
    """Return timestamps as numpy integers, in microseconds since 1970."""
    return _plain(column)


def _plain(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return column.to_numpy(zero_copy_only=False).astype(np.int64)
