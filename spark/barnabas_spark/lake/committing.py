"""Commits ranges to a table exactly once, whoever else writes it, and whatever fails on the way.

One round is: load the table, compare the ranges with what it has (`ranges.check_next`), and commit onto exactly the
version that was compared. What a round may end in, and what follows:

* *somebody else committed first* (`ConflictError`): another round. An archiver of the same partitions makes the
  comparison fail then, and any other writer has only cost a round;
* *nobody knows* (`UnknownOutcomeError`): another round, which first looks whether the table has our ranges and files.
  It has both: done. It has neither: again. It has the ranges with other files: they are those of another archiver;
* *the table cannot be loaded*: another round, up to the limit.

No file is ever deleted here. A commit whose outcome is unknown may still arrive while the next round is under way, and
it names our files. Files of failed attempts are removed by age (orphans.py).
"""

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence

from .ranges import CommittedRange, NotNextError, PartitionKey, Purpose, Span, check_next
from .store import StoreError
from .table import ConflictError, DataFile, TableError, TableFormat, TableState, UnknownOutcomeError

__all__ = ["ROUNDS_MAX", "NotCommittedError", "commit_ranges", "is_covered", "pause"]

logger = logging.getLogger(__name__)

ROUNDS_MAX = 12
_FIRST_PAUSE_S = 0.05
_PAUSE_S_MAX = 5.0


class NotCommittedError(TableError):
    """So many rounds were lost that this one gives up. If `is_unknown`, the last commit may still have gone through."""

    def __init__(self, text: str, *, is_unknown: bool) -> None:
        super().__init__(text)
        self.is_unknown = is_unknown


def pause(rounds: int) -> None:
    """Wait before round `rounds`, from 1 up: twice as long each time, and between half and all of that by chance."""
    time.sleep(min(_PAUSE_S_MAX, _FIRST_PAUSE_S * 2 ** (rounds - 1)) * random.uniform(0.5, 1.0))


def commit_ranges(
    table: TableFormat,
    files: Sequence[DataFile],
    ranges: Sequence[CommittedRange],
    purpose: Purpose,
    *,
    wait: Callable[[int], None] = pause,
    rounds_max: int = ROUNDS_MAX,
) -> int:
    """Commit ranges and the files with their rows; return the number of rounds that it took. `files` may be empty.

    Raises:
        NotNextError: the table has other ranges than these would follow; nothing was committed.
        NotCommittedError: no round of `rounds_max` succeeded; the table's own error is its cause.
        TableError: the table cannot be trusted.
    """
    last: Exception | None = None
    is_unknown = False
    for rounds in range(1, rounds_max + 1):
        if rounds > 1:
            wait(rounds - 1)
        try:
            state = table.load()
            if rounds > 1 and is_covered(state.spans, ranges) and _has_files(table, state, files):
                return rounds
            check_next(state.spans, ranges, purpose)
            table.commit(state, files, ranges, purpose)
        except NotNextError:
            raise
        except ConflictError as error:
            last = error
        except UnknownOutcomeError as error:
            last = error
            is_unknown = True
        except (StoreError, OSError) as error:
            # Looking at the table failed, or it said less than it should about a commit.
            last = error
        else:
            return rounds
        logger.warning("round %d of a commit was lost: %s", rounds, last)
    doubt = "; it may still have gone through: look before you delete any file" if is_unknown else ""
    text = f"the commit was given up after {rounds_max} rounds{doubt}: {last}"
    raise NotCommittedError(text, is_unknown=is_unknown) from last


def is_covered(stored: Mapping[PartitionKey, Sequence[Span]], ranges: Sequence[CommittedRange]) -> bool:
    """Tell whether a table has all offsets of all ranges."""
    return all(
        any(
            span.start_offset <= one.start_offset and one.end_offset <= span.end_offset
            for span in stored.get(one.key, ())
        )
        for one in ranges
    )


def _has_files(table: TableFormat, state: TableState, files: Sequence[DataFile]) -> bool:
    return not files or {one.path for one in files} <= set(table.files(state))
