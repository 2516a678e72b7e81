"""Reads one file of a table and measures what it has: what a task does. A file that cannot be read is a result, too."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import Location, MissingError

from .fragments import Fragment, Measuring, times_us
from .timeline import Timeline
from .units import Unit

__all__ = ["FileFound", "Strange", "UnitIndex", "file_batches", "index_of", "rows_by_unit", "scan_file"]

BATCH_ROWS = 32_768
_WHERE = ("topicId", "partition")
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=pa.schema([]))


class Strange(NamedTuple):
    """Rows of a partition whose offsets are in no unit."""

    topic_id: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int


class FileFound(NamedTuple):
    """What one file has. `trouble` says why it could not be read, or not to its end; `is_missing`: it is not there."""

    path: str
    size_bytes: int = 0
    rows: int = 0
    fragments: tuple[Fragment, ...] = ()
    strange: tuple[Strange, ...] = ()
    timeline: Timeline = Timeline()
    trouble: str = ""
    is_missing: bool = False


class _Places(NamedTuple):
    starts: Any
    ends: Any
    numbers: Any


class UnitIndex(NamedTuple):
    """Finds the unit of a row. Rows of the topics in `others`, which are ids, are left out."""

    places: dict[tuple[str, int], _Places]
    others: frozenset[str]
    topic: str


def index_of(units: Sequence[Unit], others: Collection[str], topic: str) -> UnitIndex:
    """Return the index of units, which are sorted and disjoint."""
    by_key: dict[tuple[str, int], list[int]] = {}
    for number, unit in enumerate(units):
        by_key.setdefault((unit.key.topic_id, unit.key.partition), []).append(number)
    places = {
        key: _Places(
            np.array([units[one].start_offset for one in numbers], np.int64),
            np.array([units[one].end_offset for one in numbers], np.int64),
            np.array(numbers, np.int64),
        )
        for key, numbers in by_key.items()
    }
    return UnitIndex(places, frozenset(others), topic)


def scan_file(path: str, location: Location, index: UnitIndex) -> FileFound:
    """Read a file and measure it.

    Raises:
        StoreError: the store does not answer; another attempt may succeed.
    """
    found = FileFound(path)
    measuring = Measuring()
    strange: dict[tuple[str, int], Strange] = {}
    timeline = Timeline()
    try:
        for size_bytes, batch in file_batches(location, path):
            found = found._replace(size_bytes=size_bytes, rows=found.rows + batch.num_rows)
            for number, where, part in rows_by_unit(batch, index):
                timeline = timeline.with_times(times_us(part.column("timestamp")))
                if number < 0:
                    _count_strange(strange, where, part)
                else:
                    _check_name(part, index.topic)
                    measuring.add(number, part)
    except MissingError:
        return found._replace(trouble="it is not there", is_missing=True)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        # What was read before that may be wrong, too: the whole file counts as unreadable.
        return found._replace(trouble=_line(error), timeline=timeline)
    return found._replace(fragments=measuring.fragments, strange=tuple(strange.values()), timeline=timeline)


def file_batches(location: Location, path: str) -> Iterator[tuple[int, Any]]:
    """Yield the size of a file, and its rows with all of its columns."""
    with open_store(location).open(path) as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        names = set(file.schema_arrow.names)
        lacking = [name for name in (*_WHERE, "offset", "timestamp") if name not in names]
        if lacking:
            raise ValueError(f"it has no column '{lacking[0]}'")
        size_bytes = stream.seek(0, 2)
        yield size_bytes, _NO_ROWS
        # All columns, also those that no checksum covers: damage to any of them is found only by reading it.
        for batch in file.iter_batches(BATCH_ROWS):
            yield size_bytes, batch


def rows_by_unit(batch: Any, index: UnitIndex) -> Iterator[tuple[int, tuple[str, int], Any]]:
    """Yield runs of rows of one unit, in order: its number, topic id and partition, rows. -1: of no unit."""
    for where, part in _by_partition(batch):
        if where[0] in index.others:
            continue
        offsets = part.column("offset").to_numpy(zero_copy_only=False)
        places = index.places.get(where)
        if places is None:
            yield -1, where, part
            continue
        at = np.searchsorted(places.starts, offsets, side="right") - 1
        inside = (at >= 0) & (offsets < places.ends[np.maximum(at, 0)])
        numbers = np.where(inside, places.numbers[np.maximum(at, 0)], -1)
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        start = 0
        for end in ends:
            yield int(numbers[start]), where, part.slice(start, end - start)
            start = end


def _by_partition(batch: Any) -> Iterator[tuple[tuple[str, int], Any]]:
    if not batch.num_rows:
        return
    ids, partitions = (batch.column(name) for name in _WHERE)
    pairs = [(one, other) for one in pc.unique(ids).to_pylist() for other in pc.unique(partitions).to_pylist()]
    if len(pairs) == 1:
        yield pairs[0], batch
        return
    for topic_id, partition in pairs:
        part = batch.filter(pc.and_(pc.equal(ids, topic_id), pc.equal(partitions, partition)))
        if part.num_rows:
            yield (topic_id, partition), part


def _check_name(part: Any, topic: str) -> None:
    """Check the one column of a record that is not in its checksum."""
    names = pc.unique(part.column("topic")).to_pylist() if "topic" in part.schema.names else [topic]
    if names != [topic]:
        raise ValueError(f"it has rows of a topic {next(name for name in names if name != topic)!r}")


def _count_strange(strange: dict[tuple[str, int], Strange], where: tuple[str, int], part: Any) -> None:
    offsets = part.column("offset").to_numpy(zero_copy_only=False)
    before = strange.get(where, Strange(*where, 0, int(offsets[0]), int(offsets[0])))
    strange[where] = Strange(
        *where,
        before.rows + part.num_rows,
        min(before.first_offset, int(offsets.min())),
        max(before.last_offset, int(offsets.max())),
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
