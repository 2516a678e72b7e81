"""Merges the files of each partition into one, which has one row a key, in a commit that says nothing of offsets.

Which rows stay is found out from keys and offsets alone, without values. Then the files are read again, batch by batch,
and the rows with those offsets are written. So a task needs memory for the keys of one partition, and for no value.

What readers of the table see is the same before and after. A run that adds files meanwhile costs a round.
"""

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_spark.lake.committing import pause
from barnabas_spark.lake.compaction import Compaction, Group, Rewritten, commit_compaction
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import Location, Store
from barnabas_spark.lake.table import DataFile, TableError
from barnabas_spark.lake.writing import FileSettings

from .choosing import LATEST_SCHEMA, latest_of
from .writing import latest_writer

__all__ = ["ForeignFileError", "Merged", "files_to_merge", "merge", "merge_files"]

_NAME = re.compile(r"(barnabas-.+-([0-9]+)-[0-9]{20})-[0-9a-f]{32}-\w+\.parquet")
_BATCH_ROWS = 16_384


class ForeignFileError(TableError):
    """A file that another tool has written. Readers take it as it is, and nothing is merged."""


class Merged(NamedTuple):
    """What a merge did, by files and rows."""

    files_before: int
    files_after: int
    rows_before: int
    rows_after: int


def files_to_merge(files: Sequence[DataFile], more_than: int) -> list[Group]:
    """Return the files of each partition that has more than so many, at least one, in the order of their offsets.

    Raises:
        ForeignFileError: a file is not named as `compact` names files.
    """
    groups: dict[int, list[DataFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        found = _NAME.fullmatch(file.path.rpartition("/")[2])
        if found is None:
            raise ForeignFileError(
                f"{file.path} was not written by this job, so its partition is not known: nothing is merged"
            )
        groups.setdefault(int(found[2]), []).append(file)
    return [Group(tuple(group)) for _, group in sorted(groups.items()) if len(group) > max(1, more_than)]


def merge_files(group: Group, location: Location, settings: FileSettings) -> Rewritten:
    """Write the latest row of each key in the files of one partition into one file."""
    store = open_store(location)
    latest = _latest_offsets(store, group)
    found = _NAME.fullmatch(group.files[0].path.rpartition("/")[2])
    assert found is not None, group
    path = f"{settings.folder}{found[1]}-{uuid.uuid4().hex}-m.parquet"
    file = store.create(path)
    rows = 0
    waiting: list[Any] = []
    try:
        with latest_writer(file.stream, settings) as writer:
            for one in group.files:
                for batch in _batches(store, one.path, LATEST_SCHEMA.names):
                    offsets = batch.column("offset").to_numpy()
                    at = np.searchsorted(latest, offsets)
                    waiting.append(batch.filter(pa.array(latest[np.minimum(at, len(latest) - 1)] == offsets)))
                    rows += waiting[-1].num_rows
                    if sum(each.nbytes for each in waiting) >= settings.row_group_bytes:
                        writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
                        waiting = []
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
        if rows != len(latest):
            raise TableError(f"{path} has {rows} rows for {len(latest)} keys: a record is in the table twice")
        return Rewritten(group, DataFile(path, file.finish(), rows))
    except BaseException:
        file.abandon()
        raise


def merge(
    table: Any,
    more_than: int,
    run_groups: Callable[[Sequence[Group]], Sequence[Rewritten]],
    *,
    wait: Callable[[int], None] = pause,
) -> Merged | None:
    """Merge the partitions that have more files than so many; return None if there is none.

    Raises:
        ForeignFileError: something else has written to the table.
        TableError: another merge was faster.
    """
    groups = files_to_merge(table.data_files(table.load()), more_than)
    if not groups:
        return None
    rewritten = run_groups(groups)
    done: Compaction = commit_compaction(table, rewritten, drops_rows=True, wait=wait)
    return Merged(
        done.files_before, done.files_after, sum(one.rows for each in groups for one in each.files), done.rows
    )


def _latest_offsets(store: Store, group: Group) -> Any:
    """Return the offsets of the rows that stay, sorted."""
    kept: Any = pa.schema([LATEST_SCHEMA.field("key"), LATEST_SCHEMA.field("offset")]).empty_table()
    for one in group.files:
        batches = _batches(store, one.path, kept.schema.names)
        kept = latest_of(pa.concat_tables([kept, pa.Table.from_batches(batches, kept.schema)]), ("key",))
    return kept.column("offset").to_numpy()


def _batches(store: Store, path: str, names: Sequence[str]) -> Any:
    schema = pa.schema([LATEST_SCHEMA.field(name) for name in names])
    with store.open(path) as stream:
        for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS, columns=list(names)):
            yield batch.select(list(names)).cast(schema)
