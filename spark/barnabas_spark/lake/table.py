"""What every format of a table offers to the archive: to look, and to commit onto exactly what was seen.

The loop that uses it reloads, compares ranges, and commits onto the version that was compared. A format does nothing of
that by itself: above all it never retries onto another version, because ranges would then be compared with a state that
is no longer there.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas_raftlog.errors import BarnabasError

from .ranges import CommittedRange, PartitionKey, Purpose, Span

__all__ = ["ConflictError", "DataFile", "TableError", "TableFormat", "TableState", "UnknownOutcomeError", "check_rows"]


class TableError(BarnabasError):
    """A table that cannot be trusted or used; the message says why, and what to do."""


class ConflictError(TableError):
    """The table is not at the version any more that was compared. Nothing was committed: reload, and compare anew."""


class UnknownOutcomeError(TableError):
    """The commit may have gone through, or not: reload, and look for the ranges. No file may be deleted before that."""


class DataFile(NamedTuple):
    """A finished file with rows. `path` is relative to the table, `partition_values` are as the format writes them."""

    path: str
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str] = {}


def check_rows(rows_before: int, rows_after: int, *, drops_rows: bool) -> None:
    """Check that files have as many rows as those that they replace; with `drops_rows`, that they have no more.

    Raises:
        TableError: they have not.
    """
    if rows_after > rows_before or (rows_after < rows_before and not drops_rows):
        raise TableError(f"the files to replace have {rows_before} rows, and those in their place {rows_after}")


class TableState(NamedTuple):
    """A table at one version. `spans` are sorted and disjoint; `version` is opaque, and printable for people."""

    version: object
    spans: Mapping[PartitionKey, Sequence[Span]]


class TableFormat(Protocol):
    """One table. Its methods block; they run on the driver, in one thread.

    All formats also have `layout_of`, `evolve`, `data_files`, `rewrite` and `referenced`, for those who read and tidy.
    """

    def load(self) -> TableState:
        """Return the newest version, with what it says of offsets; a table that is not there yet has none.

        Raises:
            TableError: what it says contradicts itself, or was lost (a RESTORE, a rollback, an expiry).
        """

    def commit(
        self, state: TableState, files: Sequence[DataFile], ranges: Sequence[CommittedRange], purpose: Purpose
    ) -> None:
        """Add `files` and what `ranges` say in one commit onto exactly `state.version`. `files` may be empty.

        Raises:
            ConflictError: another commit came first.
            UnknownOutcomeError: the store or the catalog failed after it may have committed.
        """

    def files(self, state: TableState) -> Sequence[str]:
        """Return the paths of the live files of a version, relative to the table, in a fixed order."""
