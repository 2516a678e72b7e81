"""Operations on the files of one log, which `write_queue` carries out in their order.

An operation is made on the loop and carried out in a worker: once, or again later if it was stopped by an error that
will pass. So it must still be right then, and doing it again must do no harm.
"""

from collections.abc import Callable
from typing import Protocol

from barnabas_raftlog.log.checkpoint import ReplicaRow
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import FileHandle, OpenFiles
from barnabas_raftlog.log.state_file import StateOrMaker, made
from barnabas_raftlog.raft.messages import Buffer, GroupId

from .segment import IndexWrite, Segment

__all__ = [
    "WRITE_BACK_BYTES",
    "Gate",
    "MakeDirectory",
    "Operation",
    "QueuedLog",
    "Remove",
    "Save",
    "Store",
    "Sync",
    "SyncDirectory",
    "Truncate",
    "Write",
    "write_back_range",
]

WRITE_BACK_BYTES = 8 << 20
"""The disk is kept busy in pieces of this size, which is small against the dirty memory that the kernel tolerates.

With the ends of pieces in the same places, 18 replicas that grew alike made all syncs at that moment wait, for 150 ms
every ten seconds. Each piece costs half a millisecond of a processor, so smaller ones took a fifth more to produce."""


def write_back_range(segment: Segment, begin: int, end: int) -> tuple[int, int]:
    """Return from where to where the disk is to begin with a file that has grown from `begin` to `end` bytes.

    Nothing is to be done if that range is empty, or less. Pieces end elsewhere in each file, so that files which grow
    alike do not come to the end of a piece together.
    """
    shift = segment.write_back_shift
    return max(begin - (begin + shift) % WRITE_BACK_BYTES, 0), end - (end + shift) % WRITE_BACK_BYTES


class Operation:
    """Something to do to the files of one log."""

    __slots__ = ()

    @property
    def queued_bytes(self) -> int:
        """Bytes of frames that wait in memory for it."""
        return 0

    def run(self, files: Files, opened: OpenFiles) -> None:
        raise NotImplementedError


class MakeDirectory(Operation):
    """Make the directory of a replica, if it is not there."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def run(self, files: Files, opened: OpenFiles) -> None:
        del opened
        files.make_directory(self.path)


class SyncDirectory(Operation):
    """Let the names in a directory survive a loss of power."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def run(self, files: Files, opened: OpenFiles) -> None:
        del opened
        files.sync_directory(self.path)


class Write(Operation):
    """Frames that follow each other in one segment; `last_index` is the last one's.

    `sync`: carried out with it, for what must not be lost in page-cache mode either. `is_held`: not to be carried out
    before the batch of the journal begins that has the same frames, because that may take it along.
    """

    __slots__ = ("buffers", "is_held", "last_index", "position", "segment", "serial", "size_bytes", "sync")

    def __init__(self, segment: Segment, position: int, serial: int, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self.segment = segment
        self.position = position
        self.serial = serial
        self.buffers: list[Buffer] = []
        self.size_bytes = 0
        self.last_index = 0
        self.sync: Sync | None = None

    @property
    def queued_bytes(self) -> int:
        return self.size_bytes

    def run(self, files: Files, opened: OpenFiles) -> None:
        start = self.position
        end = self.position + self.size_bytes
        with opened.borrow(self.segment.log, create=True) as fd:
            files.write(fd, self.buffers, start)
            begin, stop = write_back_range(self.segment, start, end)
            if begin < stop:
                files.start_write_back(fd, begin, stop - begin)
        if self.sync is not None:
            self.sync.run(files, opened)


class Store(Operation):
    """Frames of one log that are to be synced where they are, so that the journal need not have them, too.

    `writes`: those that are in no file yet. `handles`, `directories`: all of the log that is not synced. `size_bytes`:
    of the frames that the journal is spared.
    """

    __slots__ = ("directories", "handles", "size_bytes", "writes")

    def __init__(self, writes: list[Write], handles: list[FileHandle], directories: list[str], size_bytes: int) -> None:
        self.writes = writes
        self.handles = handles
        self.directories = directories
        self.size_bytes = size_bytes

    @property
    def queued_bytes(self) -> int:
        return sum(write.size_bytes for write in self.writes)

    def write(self, files: Files, opened: OpenFiles, *, begin: bool) -> None:
        """Do the first half. `begin`: let the disk have it at once, for the second half comes later."""
        for write in self.writes:
            with opened.borrow(write.segment.log, create=True) as fd:
                files.write(fd, write.buffers, write.position)
                if begin:
                    files.start_write_back(fd, write.position, write.size_bytes)

    def sync(self, files: Files, opened: OpenFiles) -> None:
        """Do the second half."""
        _sync_all(files, opened, self.handles, self.directories)

    def run(self, files: Files, opened: OpenFiles) -> None:
        self.write(files, opened, begin=False)
        self.sync(files, opened)


class Remove(Operation):
    """Delete files. `directory` is synced afterwards if it is given."""

    __slots__ = ("directory", "handles")

    def __init__(self, handles: list[FileHandle], directory: str = "") -> None:
        self.handles = handles
        self.directory = directory

    def run(self, files: Files, opened: OpenFiles) -> None:
        # The newest goes first: the files that a crash leaves are then still the beginning of a log.
        for handle in reversed(self.handles):
            opened.forget(handle)
            if files.exists(handle.path):
                files.remove(handle.path)
        if self.directory:
            files.sync_directory(self.directory)


class Truncate(Operation):
    """Cut a file; `sync` waits until a loss of power cannot undo it."""

    __slots__ = ("handle", "size_bytes", "sync")

    def __init__(self, handle: FileHandle, size_bytes: int, *, sync: bool) -> None:
        self.handle = handle
        self.size_bytes = size_bytes
        self.sync = sync

    def run(self, files: Files, opened: OpenFiles) -> None:
        with opened.borrow(self.handle, create=True) as fd:
            files.truncate(fd, self.size_bytes)
        if self.sync:
            opened.sync(self.handle)


class Sync(Operation):
    """Make everything that `row` says true on the disk."""

    __slots__ = ("directories", "handles", "index_writes", "row")

    def __init__(
        self, row: ReplicaRow, handles: list[FileHandle], index_writes: list[IndexWrite], directories: list[str]
    ) -> None:
        self.row = row
        self.handles = handles
        self.index_writes = index_writes
        self.directories = directories

    @property
    def is_exclusive(self) -> bool:
        """True if a file is to be replaced by a copy: nobody may write to it meanwhile."""
        return any(handle.is_doubtful for handle in self.handles)

    def prepare(self, files: Files, opened: OpenFiles) -> None:
        """Write what is to be synced, and let every file that `row` names be there."""
        for handle, position, rows, size_bytes in self.index_writes:
            with opened.borrow(handle, create=True) as fd:
                files.write(fd, [rows], position)
                files.truncate(fd, size_bytes)
        for handle in self.handles:
            with opened.borrow(handle, create=True):
                pass

    def run(self, files: Files, opened: OpenFiles) -> None:
        self.prepare(files, opened)
        _sync_all(files, opened, self.handles, self.directories)


class Save(Operation):
    """Put a small file in place of an older one; a crash leaves one or the other. `index` is the caller's own."""

    __slots__ = ("data", "index", "path")

    def __init__(self, path: str, data: StateOrMaker, index: int = 0) -> None:
        self.path = path
        self.data = data
        self.index = index

    def run(self, files: Files, opened: OpenFiles) -> None:
        del opened
        data = made(self.data)
        temporary = f"{self.path}.new"
        if files.exists(temporary):
            # Left by an attempt that failed, perhaps in its sync: that file is not synced again.
            files.remove(temporary)
        fd = files.open(temporary, create=True)
        try:
            files.write(fd, [data], 0)
            files.sync(fd)
        finally:
            files.close(fd)
        files.rename(temporary, self.path)
        files.sync_directory(self.path.rpartition("/")[0])


class Gate(Operation):
    """Holds back all that is behind it until its record is durable. `ticket` is None until `put` has queued that.

    `before`: a checkpoint does this instead of waiting for the gate.
    """

    __slots__ = ("before", "put", "ticket")

    def __init__(self, before: Sync, put: Callable[[], int], *, at_once: bool) -> None:
        self.before = before
        self.put = put
        self.ticket = put() if at_once else None


class QueuedLog(Protocol):
    """A log as the queues know it."""

    group: GroupId
    operations: list[Operation]  # a few: frames that follow each other in a segment file are one operation
    under_way: int  # operations that a worker has

    def store(self, size_bytes: int) -> Store | None:
        """Take the writes out of `operations` that go with a batch of the journal; None: nothing does now."""

    def on_operation(self, operation: Operation) -> None: ...
    def on_operation_failed(self, operation: Operation, error: OSError) -> None: ...


def _sync_all(files: Files, opened: OpenFiles, handles: list[FileHandle], directories: list[str]) -> None:
    for handle in handles:
        opened.sync(handle)
    for directory in directories:
        files.sync_directory(directory)
