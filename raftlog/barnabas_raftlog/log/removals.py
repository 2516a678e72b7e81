"""Removes the directories of deleted replicas, as soon as the journal has the deletion.

A replica of the same name can be made at any time, so a deleted one's directory gets another name at once:
``<name>.<ticket>.deleted``. If the process ends before the journal has the DELETE with that ticket, checkpoint or
journal still know that replica; the new name says that it was being deleted, and a directory that has its old name now
is not the one that they mean (`being_deleted`). When the DELETE is durable, the directory is renamed once more, to
``….removed``, which says nothing any more, and its files are removed. If a crash leaves either, it goes at the next
start. A rename that failed is tried again with the next batch of the journal.

Limits: one entry a replica that was deleted in the last moments.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import partial

from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.worker import Worker

__all__ = ["Removals", "being_deleted", "is_leftover"]

DELETED = ".deleted"
REMOVED = ".removed"
REMOVED_AT_ONCE = 50  # by one job of the worker: others have their turn in between


def is_leftover(name: str) -> bool:
    """Tell whether a directory with this name is of no replica any more."""
    return name.endswith((DELETED, REMOVED))


def being_deleted(names: Iterable[str], durable: Container[int]) -> set[str]:
    """Return the names of replicas whose deletion had begun, and was not written down, by what directories there are.

    `durable`: the tickets of the deletions that the journal has. Those that the checkpoint covers are not missed: their
    directories were renamed again before it was written.
    """
    begun = [name.removesuffix(DELETED).rpartition(".") for name in names if name.endswith(DELETED)]
    return {name for name, _, ticket in begun if int(ticket) not in durable}


class Removals:
    """The directories that are on their way out. Owned by the loop; the write worker removes the files."""

    def __init__(self, files: Files, worker: Worker, durable_ticket: Callable[[], int]) -> None:
        self._files = files
        self._worker = worker
        self._durable_ticket = durable_ticket
        self._waiting: deque[tuple[int, str]] = deque()

    def add(self, directory: str, ticket: int) -> None:
        """Put a directory out of the way; `ticket` is that of the DELETE."""
        target = f"{directory}.{ticket}{DELETED}"
        # If that cannot be done, the directory goes at the next start, or the next replica of that name begins with it,
        # and is uncertain.
        with suppress(OSError):
            if self._files.exists(directory):
                self._files.rename(directory, target)
                self._waiting.append((ticket, target))

    def go_on(self) -> None:
        """Remove what may go now that `durable_ticket` has moved."""
        durable = self._durable_ticket()
        due: list[tuple[int, str]] = []
        while self._waiting and self._waiting[0][0] <= durable:
            due.append(self._waiting.popleft())
        for begin in range(0, len(due), REMOVED_AT_ONCE):
            some = due[begin : begin + REMOVED_AT_ONCE]
            self._worker.submit(partial(_remove_each, self._files, some), self._removed)

    def _removed(self, left: list[tuple[int, str]]) -> None:
        # Their names still say that the journal may not know, and in the next run their tickets would mean nothing.
        self._waiting.extendleft(reversed(left))


def _remove_each(files: Files, entries: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return those whose directories do not have the name that says nothing any more."""
    return [entry for entry in entries if not _remove(files, entry[1])]


def _remove(files: Files, target: str) -> bool:
    """Return whether the directory has the name that says nothing any more."""
    gone = target.removesuffix(DELETED) + REMOVED
    try:
        files.rename(target, gone)
    except OSError:
        return False
    with suppress(OSError):  # The next start tries again.
        files.remove_tree(gone)
    return True
