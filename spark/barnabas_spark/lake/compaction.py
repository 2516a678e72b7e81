"""Replaces small files by larger ones with the same rows, in one commit that says nothing of offsets.

Files are gathered by the values of the columns that partition the table, and within them in the order of partitions and
offsets. Their rows are written again by tasks, one a group. An archiver that commits meanwhile costs a round; another
compaction that was faster ends this one, and its files are orphans.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from .committing import ROUNDS_MAX, NotCommittedError, pause
from .formats.vectors import is_archive_file
from .layout import partition_path
from .opening import open_store
from .store import Location
from .table import ConflictError, DataFile, TableError, UnknownOutcomeError
from .values.columns import with_columns
from .writing import FileSettings, parquet_writer

__all__ = ["Compaction", "Group", "Rewritten", "commit_compaction", "groups_of", "rewrite_group"]

BATCH_ROWS = 16_384


class Group(NamedTuple):
    """Small files that become one."""

    files: tuple[DataFile, ...]


class Rewritten(NamedTuple):
    """What one task has written: `file` has the rows of all files of `group`."""

    group: Group
    file: DataFile


class Compaction(NamedTuple):
    """What a compaction did."""

    files_before: int
    files_after: int
    rows: int


def groups_of(files: Sequence[DataFile], file_bytes: int) -> list[Group]:
    """Return the files to replace: neighbours that together are no larger than `file_bytes`, two of them at least.

    Files of other writers are theirs.
    """
    found: list[Group] = []
    waiting: list[DataFile] = []
    small = [one for one in files if one.size_bytes < file_bytes and is_archive_file(one.path)]
    for one in sorted(small, key=lambda one: (sorted(one.partition_values.items()), one.path)):
        is_other = waiting and waiting[0].partition_values != one.partition_values
        if is_other or sum(each.size_bytes for each in waiting) + one.size_bytes > file_bytes:
            found.append(Group(tuple(waiting)))
            waiting = []
        waiting.append(one)
    found.append(Group(tuple(waiting)))
    return [one for one in found if len(one.files) > 1]


def rewrite_group(group: Group, location: Location, settings: FileSettings) -> Rewritten:
    """Write the rows of a group into one file. Another attempt may do the same at the same time."""
    store = open_store(location)
    values = tuple(group.files[0].partition_values.items())
    name = (
        f"{group.files[0].path.rpartition('/')[2].rpartition('-')[0].rpartition('-')[0]}-{uuid.uuid4().hex}-c.parquet"
    )
    path = f"{settings.folder}{partition_path(values)}{name}"
    file = store.create(path)
    try:
        rows = 0
        with parquet_writer(file.stream, settings) as writer:
            for batches in _row_groups(location, group, settings):
                writer.write_table(batches, row_group_size=batches.num_rows)
                rows += batches.num_rows
        written = DataFile(path, file.finish(), rows, dict(values))
    except BaseException:
        file.abandon()
        raise
    if rows != sum(one.rows for one in group.files):
        raise TableError(f"{path} has {rows} rows, and the files before it had {sum(one.rows for one in group.files)}")
    return Rewritten(group, written)


def _row_groups(location: Location, group: Group, settings: FileSettings) -> Iterator[Any]:
    """Yield the rows with the columns of now: what a file lacks is null, and what became wider is wide."""
    store = open_store(location)
    waiting: list[Any] = []
    size_bytes = 0
    for one in group.files:
        with store.open(one.path) as stream:
            for batch in pq.ParquetFile(stream).iter_batches(BATCH_ROWS):
                waiting.append(with_columns(batch, settings.schema))
                size_bytes += batch.nbytes
                if size_bytes >= settings.row_group_bytes:
                    yield pa.Table.from_batches(waiting).combine_chunks()
                    waiting, size_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def commit_compaction(
    table: Any, rewritten: Sequence[Rewritten], *, drops_rows: bool = False, wait: Callable[[int], None] = pause
) -> Compaction:
    """Commit what tasks have written onto the newest version that still has all files that they replace.

    With `drops_rows`, what they have written lacks some of the rows.

    Raises:
        TableError: it has not: another compaction, or a deletion, was faster.
        NotCommittedError: no round succeeded.
    """
    removed = [one.path for each in rewritten for one in each.group.files]
    added = [each.file for each in rewritten]
    done = Compaction(len(removed), len(added), sum(one.rows for one in added))
    last: Exception | None = None
    is_unknown = False
    for rounds in range(ROUNDS_MAX):
        if rounds:
            wait(rounds)
        state = table.load()
        live = set(table.files(state))
        if rounds and {one.path for one in added} <= live:
            return done
        if missing := set(removed) - live:
            raise TableError(f"{min(missing)} is not in the table any more: something else has replaced it")
        try:
            table.rewrite(state, removed, added, drops_rows=drops_rows)
        except ConflictError as error:
            last = error
        except UnknownOutcomeError as error:
            last, is_unknown = error, True
        else:
            return done
    raise NotCommittedError(f"the compaction was given up after {ROUNDS_MAX} rounds: {last}", is_unknown=is_unknown)
