"""A changelog in the table of an archive, at one version: `--from-lake`, which asks no broker.

The driver reads the footers of the files once, and tells each task the row groups that may have its rows. A task reads
them in the order of offsets. Row groups whose offsets cross (another tool has rewritten the files) are read together
and sorted.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas_spark.lake.formats.choosing import open_archive
from barnabas_spark.lake.layout import RECORD_SCHEMA
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.ranges import Span
from barnabas_spark.lake.rounds import Gap, Log, Spans, TopicLogs
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError
from barnabas_spark.planning.plan import Split

from .writing import SiftedPiece

__all__ = ["ArchivedChangelog", "ReadArchive", "RowGroup", "missing_of"]

_ANY = (-(1 << 63), (1 << 63) - 1)


class RowGroup(NamedTuple):
    """A row group of a file, and which partitions and offsets it may have, the last ones inclusive."""

    path: str
    number: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]


class ArchivedChangelog:
    """What an archive has of one topic."""

    def __init__(self, kind: str, location: Location, topic: str) -> None:
        table = open_archive(kind, location)
        state = table.load()
        here = {key[:2] for key, spans in state.spans.items() if spans}
        if len(here) != 1:
            found = "no offsets" if not here else f"the offsets of {len(here)} topics, by their ids"
            raise TableError(f"{location.url} has {found}, and not of one")
        ((cluster_id, topic_id),) = here
        self._spans = {key.partition: list(spans) for key, spans in state.spans.items() if spans}
        logs = {
            partition: Log(spans[0].start_offset, spans[-1].end_offset, spans[-1].leader_epoch)
            for partition, spans in self._spans.items()
        }
        self.logs = TopicLogs(cluster_id, topic, _raw(topic_id), logs)
        if self.logs.topic_id != topic_id:
            raise TableError(f"{location.url} has the topic '{topic_id}', and not '{topic}'")
        self._groups = row_groups(location, table.files(state))

    def check(self, stored: Spans) -> None:
        """Do nothing: that the log is the one that was archived was found out when it was."""

    def gaps(self, stored: Spans) -> Sequence[Gap]:
        """Return none: what this archive lacks may come from elsewhere."""
        return []

    def missing(self, stored: Spans) -> Sequence[Split]:
        logs = self.logs
        return [
            Split(logs.topic, logs.raw_id, partition, logs.partitions[partition].leader_epoch, *span[:2])
            for partition, spans in sorted(self._spans.items())
            for span in missing_of(spans, stored.get(logs.key(partition), ()))
        ]

    def source(self, split: Split) -> object:
        return tuple(
            one
            for one in self._groups
            if one.partitions[0] <= split.partition <= one.partitions[1]
            and one.offsets[0] < split.end_offset
            and split.start_offset <= one.offsets[1]
        )


class ReadArchive:
    """Reads the range of a piece from the row groups that its `source` names."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def __call__(self, piece: SiftedPiece) -> Iterator[Any]:
        store = open_store(self._location)
        split = piece.split
        assert isinstance(piece.source, tuple), piece.source
        for crossing in _crossing(piece.source):
            parts = []
            for path in sorted({one.path for one in crossing}):
                with store.open(path) as stream:
                    numbers = [one.number for one in crossing if one.path == path]
                    found = pq.ParquetFile(stream).read_row_groups(numbers, columns=RECORD_SCHEMA.names)
                    parts.append(found.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA))
            rows = pa.concat_tables(parts)
            offsets = rows.column("offset")
            here = pc.and_(pc.equal(rows["partition"], split.partition), pc.equal(rows["topicId"], piece.topic_id))
            between = pc.and_(
                pc.greater_equal(offsets, split.start_offset),
                pc.less(offsets, split.end_offset),
            )
            rows = rows.filter(pc.and_(here, between))
            if len(crossing) > 1:
                rows = rows.sort_by("offset")
            names = pc.unique(rows.column("topic")).to_pylist()
            if names not in ([], [split.topic]):
                raise TableError(f"the archive has the topic '{names[0]}', and not '{split.topic}'")
            yield from rows.combine_chunks().to_batches()


def missing_of(archived: Sequence[Span], stored: Sequence[Span]) -> list[Span]:
    """Return the parts of some spans that others do not have, by offset. Both are sorted and disjoint."""
    found = []
    for span in archived:
        start_offset = span.start_offset
        for one in stored:
            if one.end_offset <= start_offset or one.start_offset >= span.end_offset:
                continue
            if start_offset < one.start_offset:
                found.append(Span(start_offset, one.start_offset, span.leader_epoch))
            start_offset = one.end_offset
        if start_offset < span.end_offset:
            found.append(Span(start_offset, span.end_offset, span.leader_epoch))
    return found


def row_groups(location: Location, paths: Sequence[str]) -> list[RowGroup]:
    """Return the row groups of some files, from their footers."""
    store = open_store(location)
    found = []
    for path in paths:
        with store.open(path) as stream:
            footer = pq.ParquetFile(stream).metadata
            names = footer.schema.to_arrow_schema().names
            if missing := [name for name in RECORD_SCHEMA.names if name not in names]:
                raise TableError(f"{path} has no column '{missing[0]}': it is not a file of an archive of raw records")
            found += [
                RowGroup(path, number, _between(footer.row_group(number), "partition"), _between(group, "offset"))
                for number in range(footer.num_row_groups)
                for group in (footer.row_group(number),)
            ]
    return found


def _between(group: Any, name: str) -> tuple[int, int]:
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == name:
            statistics = column.statistics
            has_ends = statistics is not None and statistics.has_min_max
            return (statistics.min, statistics.max) if has_ends else _ANY
    return _ANY


def _crossing(groups: Sequence[RowGroup]) -> list[list[RowGroup]]:
    """Return row groups by offset, those together whose offsets cross."""
    found: list[list[RowGroup]] = []
    last = 0
    for one in sorted(groups, key=lambda one: (one.offsets, one.path, one.number)):
        if found and one.offsets[0] <= last:
            found[-1].append(one)
            last = max(last, one.offsets[1])
        else:
            found.append([one])
            last = one.offsets[1]
    return found


def _raw(topic_id: str) -> bytes | None:
    """Return an id as bytes; None for a name, where the cluster has no ids."""
    try:
        return uuid.UUID(topic_id).bytes
    except ValueError:
        return None
