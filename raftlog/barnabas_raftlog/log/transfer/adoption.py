"""Makes received segments the log, all at once, and again after a crash.

They lie complete and synced in a directory beside the log (`incoming`). The journal's ADOPT record, which has the row
that a checkpoint will have, is the moment at which they count: before it is durable a crash leaves the old log and a
transfer that is ready; after it, the new log. Moving the files into place comes behind the record, like everything that
the journal allows, and recovery does it again from wherever it was interrupted.

The directory's name has the snapshot's index, and a replica is never given two snapshots of one index: so the directory
that recovery finds under that name is the one that the record means. A file that is not there was moved already.

Old files go first. One of them may have the name of a new one, and a new file that was moved must not be deleted.
"""

from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import FileHandle, OpenFiles
from barnabas_raftlog.log.segments.operations import Operation
from barnabas_raftlog.log.segments.segment import parse_stem

__all__ = ["READY_PREFIX", "Adopt", "adopt_again", "ready_directory"]

READY_PREFIX = "installing."
STATE_FILE = "state"


def ready_directory(replica_directory: str, snapshot_index: int) -> str:
    """Return where a complete transfer waits."""
    return f"{replica_directory}/{READY_PREFIX}{snapshot_index}"


class Adopt(Operation):
    """Delete `old` files, and move `new` ones from `source`, and the owner's state, to where they belong."""

    __slots__ = ("index", "new", "old", "source", "target")

    def __init__(self, source: str, target: str, old: list[FileHandle], new: list[FileHandle], index: int) -> None:
        self.source = source
        self.target = target
        self.old = old
        self.new = new
        self.index = index

    def run(self, files: Files, opened: OpenFiles) -> None:
        for handle in reversed(self.old):
            opened.forget(handle)
            if files.exists(handle.path):
                files.remove(handle.path)
        self.old = []  # If there was no room, this is tried again, and must not delete what it has moved.
        for handle in self.new:
            opened.rename(handle, f"{self.target}/{handle.path.rpartition('/')[2]}")
        _move_state(files, self.source, self.target)
        _finish(files, self.source, self.target)


def adopt_again(files: Files, directory: str, snapshot_index: int) -> None:
    """Do the rest of it after a crash. The segments of the old log go, unless they were replaced already."""
    source = ready_directory(directory, snapshot_index)
    if not files.exists(source):
        return
    for name in files.list_directory(source):
        stem, _, kind = name.rpartition(".")
        if kind in {"index", "timeindex"} or parse_stem(name) is not None:
            files.rename(f"{source}/{stem}.{kind}", f"{directory}/{stem}.{kind}")
    _move_state(files, source, directory)
    _finish(files, source, directory)


def _move_state(files: Files, source: str, target: str) -> None:
    if files.exists(f"{source}/{STATE_FILE}"):
        files.rename(f"{source}/{STATE_FILE}", f"{target}/{STATE_FILE}")


def _finish(files: Files, source: str, target: str) -> None:
    """Let the names survive a loss of power before the place that they came from goes."""
    if files.exists(source):
        files.sync_directory(target)
        files.sync_directory(source)
        files.remove_tree(source)
        files.sync_directory(target)
