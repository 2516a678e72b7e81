"""Holds what all logs of a node share: queues, caches, limits and counters."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import msgspec

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.journal.commit_queue import CommitQueue
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import OpenFiles
from barnabas_raftlog.log.machine.worker import Worker
from barnabas_raftlog.log.segments.cold_reads import ColdReads
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.segments.tail_cache import TailCache
from barnabas_raftlog.log.segments.write_queue import WriteQueue
from barnabas_raftlog.raft.messages import Entry, GroupId

from .checkpoint import ReplicaRow
from .errors import DiskFullError

__all__ = ["CompactedLog", "LoadedRuns", "SharedStorage", "SharingLog", "StorageConfig", "StorageStats"]


class StorageConfig(msgspec.Struct, frozen=True):
    """Limits of a node's storage, in bytes unless their names say otherwise."""

    journal_file_bytes: int = 256 << 20
    journal_step_bytes: int = 8 << 20  # preallocated at a time while a journal file is in its first life
    journal_files_max: int = 4
    segment_bytes: int = 1 << 30
    tail_cache_bytes: int = 32 << 20
    loaded_bytes_max: int = 32 << 20  # entries read back from segments for followers that lag
    index_bytes_max: int = 32 << 20  # sparse indexes of sealed segments
    queued_bytes_max: int = 256 << 20  # waiting for the journal or for segment files: leaders refuse more
    open_files_max: int = 512
    synced_together_min: int = 256  # logs: a checkpoint of so many syncs the file system instead of each of them
    stored_bytes_min: int = 128 << 10  # of one log in a large batch: so many or more are written once only
    retry_s: float = 1.0  # between attempts to use a disk that failed or was full
    checkpoint_bytes: int = 256 << 20  # written to segments and not to the journal: bounds the scan after a crash


class StorageStats(msgspec.Struct):
    """Counters since the start; plain ints, read by status and metrics."""

    appended_entries: int = 0
    appended_bytes: int = 0
    journal_syncs: int = 0
    journal_reopened: int = 0
    journal_failures: int = 0
    checkpoints: int = 0
    cold_reads: int = 0
    refused_appends: int = 0
    recovered_entries: int = 0
    cut_bytes: int = 0


class SharingLog(Protocol):
    """A replica's log as the node's storage knows it: a checkpoint syncs it, and it is told when to read again."""

    @property
    def group(self) -> GroupId: ...
    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def failed(self) -> StorageFailedError | None: ...
    @property
    def durable_when_failed(self) -> tuple[int, list[tuple[int, int, int]]] | None: ...
    @property
    def is_deleted(self) -> bool: ...
    def queue_checkpoint(self) -> None: ...
    def may_be_read(self) -> None: ...


class CompactedLog(SharingLog, Protocol):
    """One with files that compaction has replaced, which go when a checkpoint says so."""

    def forget_replaced(self, row: ReplicaRow) -> None: ...


class LoadedRuns:
    """Entries that were read back from segment files, by (group, first index). Limit: `bytes_max`, oldest use first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: OrderedDict[tuple[GroupId, int], tuple[list[Entry], int]] = OrderedDict()

    def put(self, group: GroupId, entries: list[Entry]) -> None:
        key = (group, entries[0].index)
        self.drop(key)
        size = sum(len(entry.frame) for entry in entries)
        self._runs[key] = (entries, size)
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._runs) > 1:
            self.drop(next(iter(self._runs)))

    def get(self, group: GroupId, start_index: int) -> list[Entry] | None:
        run = self._runs.get((group, start_index))
        if run is None:
            return None
        self._runs.move_to_end((group, start_index))
        return run[0]

    def drop(self, key: tuple[GroupId, int]) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._bytes -= run[1]

    def drop_group(self, group: GroupId) -> None:
        for key in [key for key in self._runs if key[0] == group]:
            self.drop(key)


class SharedStorage:
    """One per node, made by `Storage`, which owns it.

    `refusal`: why nothing may be appended at the moment, or None. Reading it is the only check on the hot path.
    """

    def __init__(
        self,
        files: Files,
        config: StorageConfig,
        opened: OpenFiles,
        commits: CommitQueue,
        writes: WriteQueue,
        cold: ColdReads,
        worker: Worker,
    ) -> None:
        self.files = files
        self.config = config
        self.opened = opened
        self.commits = commits
        self.writes = writes
        self.cold = cold
        self.cache = TailCache(config.tail_cache_bytes)
        self.loaded = LoadedRuns(config.loaded_bytes_max)
        self.stats = StorageStats()
        self.refusal: StorageFailedError | None = None
        self.dirty: dict[SharingLog, None] = {}  # logs that the next checkpoint must sync
        self.replaced: dict[CompactedLog, None] = {}  # logs with files that compaction has replaced
        self.moved: dict[GroupId, None] = {}  # groups whose durable_index moved since `Storage.take_durable`
        self.bytes_since_checkpoint = 0
        self.on_synced: Callable[[SharingLog, ReplicaRow], None] = _nobody_listens
        self.suspects: dict[tuple[SharingLog, Segment], str] = {}  # sealed segments that could not be read, and why
        self.on_suspect: Callable[[], None] = _nothing
        self.hampered: dict[SharingLog, None] = {}  # they could not be read just now, and are told to try again
        self.on_hampered: Callable[[BaseException], None] = _ignore_error
        self._worker = worker
        self.writer = ColdReads(files, opened, worker)  # for jobs that somebody awaits and that must be done there
        self._indexes: OrderedDict[Segment, None] = OrderedDict()
        self._is_busy = False

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait for the disk; a frame that waits for the journal and for its segment file counts twice."""
        return self.commits.waiting_bytes + self.writes.waiting_bytes

    @property
    def lacks_room(self) -> bool:
        """True while everything is refused because the disk is full."""
        return isinstance(self.refusal, DiskFullError)

    def is_busy(self) -> bool:
        """Tell whether leaders should send nothing more: when half of what may wait does, until it is a quarter.

        So it is while there is no room, because what they sent would be refused.
        """
        if self.lacks_room:
            return True
        self._is_busy = self.waiting_bytes > self.config.queued_bytes_max // (4 if self._is_busy else 2)
        return self._is_busy

    def start_write_back(self, segment: Segment, position: int, size_bytes: int) -> None:
        """Let the disk begin with a piece of `segment`: in the worker, because a busy disk makes the call wait."""
        self._worker.submit(partial(self._write_back, segment, position, size_bytes), _ignore)

    def _write_back(self, segment: Segment, position: int, size_bytes: int) -> None:
        # The file may be gone by now, and nothing depends on this.
        with suppress(OSError), self.opened.borrow(segment.log) as fd:
            self.files.start_write_back(fd, position, size_bytes)

    def used_index(self, segment: Segment) -> None:
        """Remember that the indexes of a sealed segment are in memory, and unload those used longest ago."""
        self._indexes[segment] = None
        self._indexes.move_to_end(segment)
        total = sum(len(known.index) for known in self._indexes) * 40
        while total > self.config.index_bytes_max and len(self._indexes) > 1:
            oldest, _ = self._indexes.popitem(last=False)
            total -= len(oldest.index) * 40
            oldest.index.unload()
            oldest.time_index.unload()

    def suspect(self, log: SharingLog, segment: Segment, cause: str) -> None:
        """Remember that a sealed segment could not be read, until somebody has checked or mended it."""
        if (log, segment) not in self.suspects:
            self.suspects[log, segment] = cause
            self.on_suspect()

    def hamper(self, log: SharingLog, error: BaseException) -> None:
        """Remember that `log` could not be read for a reason that will pass, so that it is told when to try again."""
        self.hampered[log] = None
        self.on_hampered(error)

    def forget_index(self, segment: Segment) -> None:
        self._indexes.pop(segment, None)


def _ignore(_: None) -> None:
    """Nothing depends on when this was done."""


def _nobody_listens(log: SharingLog, row: ReplicaRow) -> None:
    raise AssertionError("Storage sets this before it opens a log")


def _ignore_error(_: BaseException) -> None:
    """`Storage` sets something better."""


def _nothing() -> None:
    """`Scrub` sets something better."""
