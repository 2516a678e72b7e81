"""A table of Parquet files that needs no library and no catalog: numbered manifests, each created only if absent.

    _data/<attempt>-...parquet        rows
    _manifests/00000000000000000007   commit 7, in JSON
    _checkpoints/00000000000000000064 what the table has after commit 64
    _checkpoints/newest               the number of a checkpoint: a hint, which may be old or missing

Commit N + 1 is the creation of its manifest: of all who try, one succeeds. The number is the version. Readers go by the
manifests, never by the folders: files of attempts that lost, or of a driver that died, are in no manifest.

*Loading stays bounded.* From the newest checkpoint on, manifests are read one after the other until one is missing:
fewer than `CHECKPOINT_EVERY` after a good day, however many commits the table has. A table that was loaded before goes
on where it was. The first load also lists what lies behind the newest manifest, so a hole in the chain is an error and
not the end of the table.

A checkpoint that cannot be written harms no commit; the next commit writes it.
"""

import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence

from barnabas_spark.lake.layout import PARTITIONINGS, Layout
from barnabas_spark.lake.ranges import CommittedRange, Purpose
from barnabas_spark.lake.schemas import layout_from_json, layout_to_json
from barnabas_spark.lake.store import MissingError, PresentError, Store, StoreError
from barnabas_spark.lake.table import (
    ConflictError,
    DataFile,
    TableError,
    TableState,
    UnknownOutcomeError,
    check_rows,
)

from .manifests import Contents, Manifest

__all__ = ["CHECKPOINT_EVERY", "ParquetFormat"]

logger = logging.getLogger(__name__)

CHECKPOINT_EVERY = 64
MANIFESTS = "_manifests/"
CHECKPOINTS = "_checkpoints/"
HINT = f"{CHECKPOINTS}newest"
_COMPACTION = "compaction"


class ParquetFormat:
    """One table in a store that has passed the probe. `layout` is that of the table, or of one that is to be made."""

    def __init__(
        self,
        store: Store,
        layout: Layout = Layout(),  # noqa: B008 - an immutable value
        checkpoint_every: int = CHECKPOINT_EVERY,
    ) -> None:
        self.layout = layout
        self._checkpoint_every = checkpoint_every
        self._store = store
        self._contents: Contents | None = None
        self._checkpoint = 0

    def load(self) -> TableState:
        contents = self._loaded()
        if contents.number:
            self.layout = _layout(contents)
        return TableState(contents.number, contents.spans)

    def layout_of(self, state: TableState | None = None) -> Layout | None:
        """Return the columns at a version, or at the newest one; None where there is no table."""
        contents = self._loaded() if state is None else self._at(state)
        return _layout(contents) if contents.number else None

    def commit(
        self, state: TableState, files: Sequence[DataFile], ranges: Sequence[CommittedRange], purpose: Purpose
    ) -> None:
        self._commit(state, purpose.value, added=files, ranges=ranges)

    def rewrite(
        self, state: TableState, removed: Sequence[str], added: Sequence[DataFile], *, drops_rows: bool = False
    ) -> None:
        """Replace files by others with the same rows, in one commit that says nothing of offsets.

        With `drops_rows`, the others lack some of the rows.

        Raises:
            TableError: a file is not live, or the numbers of rows do not fit.
            ConflictError, UnknownOutcomeError: as `commit`.
        """
        live = self._at(state).files
        if missing := [path for path in removed if path not in live]:
            raise TableError(f"{missing[0]} is not in version {state.version}, and cannot be replaced")
        rows = sum(live[path].rows for path in removed)
        check_rows(rows, sum(file.rows for file in added), drops_rows=drops_rows)
        self._commit(state, _COMPACTION, added=added, removed=removed)

    def evolve(self, state: TableState, layout: Layout) -> None:
        """Give the table other columns, in one commit: more of them, or wider ones. It is made if it is not there.

        Raises:
            ConflictError, UnknownOutcomeError: as `commit`.
        """
        self._commit(state, "schema", layout=layout)
        self.layout = layout

    def files(self, state: TableState) -> Sequence[str]:
        return sorted(self._at(state).files)

    def data_files(self, state: TableState) -> Sequence[DataFile]:
        """Return the live files with their sizes, rows and partitions, in the order of `files`."""
        return [one for _, one in sorted(self._at(state).files.items())]

    def commits(self) -> Iterator[Manifest]:
        """Yield every commit, the oldest first."""
        number = 1
        while (found := self._manifest(number)) is not None:
            yield found[0]
            number += 1

    def referenced(self, since_ms: int) -> set[str]:
        """Return the files that the newest version has, and those that any version had since a time."""
        contents = self._loaded()
        paths = set(contents.files)
        for number in range(contents.number, 0, -1):
            found = self._manifest(number)
            if found is None or found[0].committed_at_ms < since_ms:
                break
            paths.update(found[0].removed)
        return paths

    # Committing.

    def _commit(
        self,
        state: TableState,
        purpose: str,
        added: Sequence[DataFile] = (),
        removed: Sequence[str] = (),
        ranges: Sequence[CommittedRange] = (),
        layout: Layout | None = None,
    ) -> None:
        contents = self._at(state)
        manifest = Manifest(
            number=contents.number + 1,
            previous=contents.newest,
            purpose=purpose,
            attempt=uuid.uuid4().hex,
            committed_at_ms=time.time_ns() // 1_000_000,
            schema=layout_to_json(layout or self.layout),
            partition_by=self.layout.partition_by,
            added=added,
            removed=removed,
            ranges=ranges,
        )
        data, path = manifest.encode(), _manifest_path(manifest.number)
        try:
            self._store.put_if_absent(path, data)
        except PresentError:
            if not self._holds(path, data):
                raise ConflictError(f"somebody else has made commit {manifest.number}") from None
        except (StoreError, OSError) as error:
            raise UnknownOutcomeError(f"commit {manifest.number} may have gone through, or not: {error}") from error
        after = contents.followed_by(manifest, data, path)
        self._contents = after
        if after.number - self._checkpoint >= self._checkpoint_every:
            self._write_checkpoint(after)

    def _holds(self, path: str, data: bytes) -> bool:
        """Tell whether a manifest that is there is ours: the store may have lost the answer, and asked itself again."""
        try:
            return self._store.get(path) == data
        except (StoreError, OSError) as error:
            raise UnknownOutcomeError(f"{path} is there, and cannot be read: {error}") from error

    def _write_checkpoint(self, contents: Contents) -> None:
        try:
            self._store.put(f"{CHECKPOINTS}{contents.number:020}", contents.encode())
            self._store.put(HINT, json.dumps({"number": contents.number}).encode())
        except (StoreError, OSError) as error:
            logger.warning("the checkpoint after commit %d was not written: %s", contents.number, error)
        else:
            self._checkpoint = contents.number

    # Loading.

    def _loaded(self) -> Contents:
        contents = self._contents
        if contents is None:
            contents = self._follow(self._from_checkpoint())
            self._check_end(contents.number)
        self._contents = self._follow(contents)
        return self._contents

    def _at(self, state: TableState) -> Contents:
        if self._contents is not None and self._contents.number == state.version:
            return self._contents
        number = state.version
        assert isinstance(number, int), number
        return self._follow(self._from_checkpoint(number), number)

    def _follow(self, contents: Contents, last: int | None = None) -> Contents:
        while last is None or contents.number < last:
            found = self._manifest(contents.number + 1)
            if found is None:
                break
            contents = contents.followed_by(*found, _manifest_path(contents.number + 1))
        if last is not None and contents.number != last:
            raise TableError(f"version {last} is not in the table, which ends at {contents.number}")
        return contents

    def _manifest(self, number: int) -> tuple[Manifest, bytes] | None:
        path = _manifest_path(number)
        try:
            data = self._store.get(path)
        except MissingError:
            return None
        return Manifest.decode(data, path), data

    def _from_checkpoint(self, last: int | None = None) -> Contents:
        """Return the contents at the newest checkpoint, up to `last`; empty ones if there is none that can be read."""
        hinted = self._hinted() if last is None else None
        found = None if hinted is None else self._checkpoint_at(hinted)
        if found is None:
            tried = (self._checkpoint_at(number) for number in self._checkpoints(last))
            found = next((one for one in tried if one is not None), Contents())
        self._checkpoint = max(self._checkpoint, found.number)
        return found

    def _hinted(self) -> int | None:
        try:
            number = json.loads(self._store.get(HINT))["number"]
        except (MissingError, ValueError, KeyError, TypeError):
            return None
        return number if isinstance(number, int) else None

    def _checkpoints(self, last: int | None) -> list[int]:
        names = (one.path.rpartition("/")[2] for one in self._store.list(CHECKPOINTS))
        numbers = (int(name) for name in names if name.isascii() and name.isdecimal())
        return sorted((number for number in numbers if last is None or number <= last), reverse=True)

    def _checkpoint_at(self, number: int) -> Contents | None:
        path = f"{CHECKPOINTS}{number:020}"
        try:
            return Contents.decode(self._store.get(path), path)
        except TableError as error:
            logger.warning("the checkpoint %s is left out: %s", path, error)
            return None

    def _check_end(self, newest: int) -> None:
        """Check that no manifest lies behind one that is missing."""
        names = (one.path.rpartition("/")[2] for one in self._store.list(MANIFESTS, _manifest_path(newest)))
        behind = min((int(name) for name in names if name.isascii() and name.isdecimal()), default=None)
        if behind is not None and behind > newest and self._manifest(newest + 1) is None:
            raise TableError(
                f"{_manifest_path(newest + 1)} is missing, though {_manifest_path(behind)} is there: "
                "bring it back, else the rows behind it are not in the table"
            )


def _layout(contents: Contents) -> Layout:
    return layout_from_json(contents.schema, PARTITIONINGS[contents.partition_by])


def _manifest_path(number: int) -> str:
    return f"{MANIFESTS}{number:020}"
