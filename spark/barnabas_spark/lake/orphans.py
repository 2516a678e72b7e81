"""Removes files that no table names: of attempts that lost or failed, and of drivers that died.

A file goes if it is older than the age that is given, and the table neither has it now nor had it within that age.
Files are listed before the table is loaded, so one that was committed meanwhile is known. A round that took longer than
half of the least age is not committed (archive.py), so a file that old is nobody's any more. Its age is what the store
says: a clock that is hours wrong is not allowed for. Files whose names are not those of an archive are left alone.
"""

import time
from typing import Any

from .archive import ROUND_S_MAX
from .store import UNFINISHED, Store
from .table import TableError

__all__ = ["AGE_S_MIN", "remove_orphans"]

AGE_S_MIN = 2 * ROUND_S_MAX


def remove_orphans(table: Any, store: Store, folder: str, age_s: float) -> list[str]:
    """Delete the orphans in a folder that are older than `age_s`; return their paths.

    Raises:
        TableError: the age is below `AGE_S_MIN`.
    """
    if age_s < AGE_S_MIN:
        raise TableError(f"files are removed as orphans after {AGE_S_MIN / 3600:g} hours at the least")
    since_ms = int((time.time() - age_s) * 1000)
    old = [one.path for one in store.list(folder) if one.modified_ms < since_ms and _is_ours(one.path)]
    kept = table.referenced(since_ms) if old else set()
    orphans = sorted(set(old) - kept)
    for path in orphans:
        store.delete(path)
    return orphans


def _is_ours(path: str) -> bool:
    return path.rpartition("/")[2].removeprefix(UNFINISHED).startswith("barnabas-")
