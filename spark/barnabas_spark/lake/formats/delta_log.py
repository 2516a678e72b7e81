"""Reads what deltalake does not show of a Delta log: all application transactions of ours, and RESTOREs.

Bounded: the newest checkpoint's transactions, and the commits after it; of a table that was read before, only the
commits that are new. Nothing is listed, unless the pointer to the newest checkpoint leads nowhere.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

from barnabas_spark.lake.table import TableError

from .delta_entries import is_ours

__all__ = ["Restored", "commit_info", "entries_at", "removed_since", "restore_since"]

LOG = "_delta_log"


class Restored(NamedTuple):
    """A RESTORE in `version`, to `target` (as Delta noted it), or None where the log of the time is gone."""

    version: int
    target: Mapping[str, Any] | None


def entries_at(files: FileSystem, version: int, known: tuple[int, Mapping[str, int]] | None = None) -> dict[str, int]:
    """Return our application transactions at `version`. `known`: those of an earlier version of the same table.

    Raises:
        TableError: the log has a hole, or is damaged.
        OSError: it cannot be read.
    """
    entries: dict[str, int] = {}
    first = 0
    if known is not None and known[0] <= version:
        first, entries = known[0] + 1, dict(known[1])
    elif (checkpoint := _checkpoint(files, version)) is not None:
        first = checkpoint[0] + 1
        for path in checkpoint[1]:
            try:
                entries.update(_entries_of_checkpoint(files, path))
            except (ValueError, KeyError, TypeError) as error:
                raise TableError(f"{path} is damaged: {error}") from error
    for number, actions in _commits(files, first, version):
        if actions is None:
            raise TableError(f"{LOG}: the commit of version {number} is missing; no checkpoint stands in for it")
        entries.update(
            (txn["appId"], int(txn["version"]))
            for txn in (action.get("txn") for action in actions)
            if txn and is_ours(txn["appId"])
        )
    return entries


def restore_since(files: FileSystem, after_version: int, version: int) -> Restored | None:
    """Return the last RESTORE in the commits (after_version, version], or the last commit there that is gone."""
    found = None
    for number, actions in _commits(files, after_version + 1, version):
        if actions is None:
            found = Restored(number, None)
        else:
            info = _info(actions)
            if str(info.get("operation", "")).upper() == "RESTORE":
                found = Restored(number, dict(info.get("operationParameters") or {}))
    return found


def removed_since(files: FileSystem, version: int, since_ms: int) -> set[str]:
    """Return the files that commits up to `version` took away since a time, as far back as the log goes."""
    found: set[str] = set()
    for number in range(version, -1, -1):
        actions = _actions(files, number)
        # A commit without a time is one more to look at; of versions whose commits are gone, nobody can read files.
        if actions is None or int(_info(actions).get("timestamp", since_ms)) < since_ms:
            break
        found.update(unquote(action["remove"]["path"]) for action in actions if action.get("remove"))
    return found


def commit_info(files: FileSystem, version: int) -> Mapping[str, Any] | None:
    """Return what stands with the commit of `version`, or None if there is no such commit.

    Raises:
        OSError: it cannot be read.
    """
    ((_, actions),) = _commits(files, version, version)
    if actions is None:
        return None
    return _info(actions)


def _info(actions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((dict(action["commitInfo"]) for action in actions if action.get("commitInfo")), {})


def _commits(files: FileSystem, first: int, last: int) -> Iterator[tuple[int, list[dict[str, Any]] | None]]:
    """Yield the actions of each version in [first, last]; None for one that is not there."""
    # One after the other: deltalake keeps the interpreter's lock while it reads, so threads would gain nothing.
    for number in range(first, last + 1):
        yield number, _actions(files, number)


def _actions(files: FileSystem, version: int) -> list[dict[str, Any]] | None:
    text = _text(files, path := f"{LOG}/{version:020}.json")
    try:
        return None if text is None else [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise TableError(f"{path} is damaged: {error}") from error


def _text(files: FileSystem, path: str) -> str | None:
    try:
        with files.open_input_file(path) as file:
            return bytes(file.read()).decode()
    except FileNotFoundError:
        return None


def _checkpoint(files: FileSystem, version: int) -> tuple[int, list[str]] | None:
    """Return the newest checkpoint at or before `version`, and its files."""
    try:
        pointer = json.loads(_text(files, f"{LOG}/_last_checkpoint") or "{}")
        number, parts = int(pointer.get("version", version + 1)), int(pointer.get("parts") or 0)
    except (ValueError, TypeError, AttributeError):
        return _listed_checkpoint(files, version)
    if number <= version and "v2Checkpoint" not in pointer:
        stem = f"{LOG}/{number:020}.checkpoint"
        paths = [f"{stem}.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)] or [f"{stem}.parquet"]
        if all(info.is_file for info in files.get_file_info(paths)):
            return number, paths
    return _listed_checkpoint(files, version)


def _listed_checkpoint(files: FileSystem, version: int) -> tuple[int, list[str]] | None:
    found: dict[int, list[str]] = {}
    for info in files.get_file_info(FileSelector(LOG, allow_not_found=True)):
        number, _, kind = info.base_name.partition(".checkpoint.")
        if kind and number.isdigit() and int(number) <= version:
            found.setdefault(int(number), []).append(f"{LOG}/{info.base_name}")
    for number in sorted(found, reverse=True):
        if whole := _whole_checkpoint(sorted(found[number])):
            return number, whole
    return None


def _whole_checkpoint(paths: list[str]) -> list[str]:
    """Return the files of one whole checkpoint among `paths`: of one file, of parts, or of version 2."""
    kinds = {path: path.partition(".checkpoint.")[2].split(".") for path in paths}
    for path, kind in kinds.items():
        if len(kind) == 1 or len(kind[0]) > 10:
            return [path]
    for count in {kind[1] for kind in kinds.values() if len(kind) == 3}:
        parts = [path for path, kind in kinds.items() if len(kind) == 3 and kind[1] == count]
        if len(parts) == int(count):
            return parts
    return []


def _entries_of_checkpoint(files: FileSystem, path: str) -> Iterator[tuple[str, int]]:
    if path.endswith(".json"):
        transactions = [json.loads(line).get("txn") for line in (_text(files, path) or "").splitlines()]
    else:
        with files.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            columns = [name for name in ("txn.appId", "txn.version") if name in _leaves(parquet)]
            transactions = parquet.read(columns).column("txn").to_pylist() if columns else []
    yield from ((one["appId"], int(one["version"])) for one in transactions if one and is_ours(one["appId"] or ""))


def _leaves(parquet: Any) -> set[str]:
    return {parquet.schema.column(number).path for number in range(len(parquet.schema))}
