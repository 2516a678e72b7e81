"""What an `OSError` of a file says, and about what. Pure, and the only place where that is judged.

Three kinds:

* *No room* (`is_disk_full`): the disk's; it passes when somebody deletes something.
* *Of the moment* (`is_passing`): the process has no descriptor left, the machine no memory, a call was interrupted.
  Nothing is known about the file that was to be used, and nothing is wrong with it.
* Everything else is the file's own, and final until it has been read and checked again.

`will_pass` is the first two together: what was to be done waits, is tried again at `StorageConfig.retry_s`, and marks
nothing as failed. One call is different: a *sync* that failed, for whatever reason, may have left pages that count as
written and are not on the disk (`docs/log-format.md`). If it will pass, what was to be synced still does not fail, but
the file is not synced again: a synced copy takes its place (`OpenFiles.sync`).
"""

import errno

__all__ = ["is_disk_full", "is_passing", "will_pass"]

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSING = frozenset({
    errno.EMFILE,  # no descriptor left in this process
    errno.ENFILE,  # none on this machine
    errno.ENOMEM,
    errno.ENOBUFS,
    errno.ENOLCK,
    errno.EINTR,
    errno.EAGAIN,
})  # fmt: skip


def is_disk_full(error: BaseException) -> bool:
    """Tell whether there was no room on the disk."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


def is_passing(error: BaseException) -> bool:
    """Tell whether an error is that of the process or the moment, and says nothing about any file."""
    return isinstance(error, OSError) and error.errno in PASSING


def will_pass(error: BaseException) -> bool:
    """Tell whether the same may work later, with nothing repaired."""
    return is_disk_full(error) or is_passing(error)
