"""`barnabas log`: what is done to the data directory of a broker that is stopped."""

from collections.abc import Sequence
from pathlib import Path

from barnabas_raftlog.log.files import OsFiles
from barnabas_raftlog.log.log_host import StorageConfig
from barnabas_raftlog.log.startup import start

from .cli_output import say
from .environment import boot_id

__all__ = ["mend"]


def mend(directories: Sequence[Path]) -> int:
    """Take out of each directory what no honest cluster has written, and say what that was."""
    for directory in directories:
        files = OsFiles()
        started = start(files, str(directory), StorageConfig(), None, None, _no_new_id, boot_id(), mends=True)
        files.close(started.lock_fd)
        if not started.mended:
            say(f"{directory}: nothing to mend")
        else:
            say(*(f"{directory}: {text}: mended" for text in started.mended))
    return 0


def _no_new_id() -> str:
    raise AssertionError("only a directory that has its id is mended")
