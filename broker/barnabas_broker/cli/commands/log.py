"""`barnabas log`: mend the data directory of a stopped broker."""

from collections.abc import Sequence
from pathlib import Path

from barnabas_broker.cli.output import say, say_json
from barnabas_broker.environment import boot_id
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.log.recovery.startup import start
from barnabas_raftlog.log.shared import StorageConfig

__all__ = ["mend"]


def mend(directories: Sequence[Path], *, as_json: bool) -> int:
    """Take out of each directory the entries that no honest cluster has written, and name them."""
    for directory in directories:
        files = OsFiles()
        started = start(files, str(directory), StorageConfig(), None, None, _no_new_id, boot_id(), mends=True)
        files.close(started.lock_fd)
        if as_json:
            say_json({"directory": str(directory), "mended": list(started.mended)})
        elif not started.mended:
            say(f"{directory}: nothing to mend")
        else:
            say(*(f"{directory}: {text}: mended" for text in started.mended))
    return 0


def _no_new_id() -> str:
    raise AssertionError("only a directory that has its id is mended")
