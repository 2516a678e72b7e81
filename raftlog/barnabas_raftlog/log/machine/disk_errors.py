"""Judges each `OSError`: it speaks of one file, or of the whole machine. Pure.

No other module does. There are three kinds:

* *No room* (`is_disk_full`) is the disk's error; it passes when somebody deletes something.
* An error *of the moment* (`is_passing`): the process has no descriptor left, the machine no memory, a call was
  interrupted. Nothing is known about the file that was to be used, and nothing is wrong with it.
* Any other error is the file's own, and final until it has been read and checked again.

`will_pass` is the first two together: the work waits, is tried again at `StorageConfig.retry_s`, and nothing is marked
as failed. One call is different: a *sync* that failed, for any reason, may have left pages that count as written and
are not on the disk (`docs/log-format.md`). If its error will pass, the replica still does not fail, but the file is not
synced again: a synced copy takes its place (`OpenFiles.sync`).
"""

import errno

__all__ = ["is_disk_full", "is_passing", "will_pass"]

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSING = frozenset(
    {
        errno.EMFILE,  # no descriptor left in this process
        errno.ENFILE,  # none on this machine
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.ENOLCK,
        errno.EINTR,
        errno.EAGAIN,
    }
)


def is_disk_full(error: BaseException) -> bool:
    """Tell whether there was no room on the disk."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


def is_passing(error: BaseException) -> bool:
    """Tell whether an error is that of the process or the moment, and says nothing about any file."""
    return isinstance(error, OSError) and error.errno in PASSING


def will_pass(error: BaseException) -> bool:
    """Tell whether the same may work later, with nothing repaired."""
    return is_disk_full(error) or is_passing(error)
