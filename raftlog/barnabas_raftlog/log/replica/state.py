"""All that one replica's log knows of itself: every field, and who changes it.

A log is this state and the modules of functions over it, which stand beside this one. `replica_log` binds them to the
class that everybody else uses. The methods here answer from a field or two.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.checkpoint import ReplicaRow
from barnabas_raftlog.log.machine.open_files import FileHandle
from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs
from barnabas_raftlog.log.segments.operations import Operation, Store, Write
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.segments.tail_cache import LogTail
from barnabas_raftlog.log.shared import SharedStorage
from barnabas_raftlog.raft.membership import Configuration, ConfigurationHistory
from barnabas_raftlog.raft.messages import GroupId

from .pending import PendingIndexes
from .retention import SegmentSpan

__all__ = ["LogState", "Mode"]

Mode = Literal["fsync", "page-cache"]


class LogState(ABC):
    """The state of one replica's log, owned by the loop.

    Invariants: durable_index <= last_index, and it is below first_index - 1 only while a snapshot is on its way to the
    disk; segments follow each other without a gap, the last one is written to; the tail cache ends with `last_index`,
    and holds everything that is not in a segment file yet; `base_offset` <= `log_start_offset` <= `log_end_offset`,
    where the base is that of the first entry held.
    """

    # More than 30 attributes in a dictionary take 1.3 KiB more than these.
    __slots__ = (  # noqa: RUF023 - in groups, in the order of `__init__`
        "__dict__",  # for attributes that few logs ever set: see below
        "__weakref__",
        # Identity: never changed, but for the size.
        "shared",  # queues, caches and limits of the node's storage
        "group",  # the Raft group
        "name",  # of its directory under `replicas/`
        "directory",  # the path of that
        "mode",  # "fsync" or "page-cache": the way in which entries become durable
        "is_journaled",  # the mode is "fsync": the journal makes entries durable; else the segment file
        "segment_bytes",  # at this size another segment begins; `limit_segments`
        # Contents: `appending` adds, `shortening` takes away, `installing` replaces all of it.
        "segments",  # oldest first, at least one; `compacting` puts another one into the place of a sealed one
        "active",  # the last of them, which is written to
        "leader_epochs",  # the terms that wrote something, each with its first index and offset
        "members",  # the configurations of the group, each from an index on; the module `members` adds
        "configuration",  # the newest of those: an attribute, because the core looks at it in every step
        "start_index",  # the last entry before this log
        "last_index",  # its last entry, durable or not
        "last_term",  # the term of that entry
        "log_end_offset",  # the offset that the next record gets
        "log_start_offset",  # nothing below it is served; it may lie inside a segment, or inside a batch
        "size_bytes",  # all segments together
        "tail",  # the newest frames in memory, at least those that are in no file yet
        "truncations",  # count of truncations at the end, and of replacements; it numbers them in the journal
        # Durability.
        "durable",  # its entries on their way into the journal: `appending` queues, `completions` completes
        "written",  # its entries on their way into segment files: `write_behind` queues and completes
        "is_uncertain",  # a loss of power may have taken acknowledged entries (page-cache mode); `became_certain`
        "is_blank",  # that, and it was begun empty: it may have forgotten its members, too; `became_certain`
        "partial_since",  # a witness's log without its beginning, by the configuration at that place; None: it is whole
        # Work on its files: `write_behind`.
        "operations",  # those that wait, in order; the write queue takes them from the front
        "under_way",  # the number that a worker has; the write queue counts
        "write_serial",  # the number of the newest `Write`
        "open_write",  # the last operation, if frames may be added to it
        "is_dirty",  # the next checkpoint is to sync it
        "directory_changed",  # files were made or removed in the directory since it was last synced
        "replaced",  # (base offset, generation that replaced it, files): of `compacting`, until a checkpoint says so
        # Its end.
        "failed",  # the reason why it may not be used until the next start; `write_behind.fail`
        "is_deleted",  # it is not a log of this node any more; `write_behind.deleted`
        # Readers.
        "loading",  # first entries of the runs that `reading` has threads read
        # Callbacks. None: nobody listens.
        "on_failed",  # `failed` is set
        "on_loaded",  # entries that were asked for may be there now
        "on_rolled",  # another segment was begun
    )

    # Attributes that few logs set, in `__dict__`.
    durable_when_failed: tuple[int, list[tuple[int, int, int]]] | None = None
    """The durable index and the epochs up to it, as in the checkpoint's row; set with `failed`."""
    is_named = False
    """A loss of power leaves the replica's directory where it is: its name was synced since the start."""
    committed_index = 0
    """The largest committed index that `drop_before` was told."""
    saved_index = 0
    """The entry that the state on the disk is kept with; `completions`."""
    asked_index = 0
    """Up to this entry `on_state_needed` was asked to save the state; `kept_state`."""
    on_state_needed: Callable[[], None] | None = None
    """Asks the owner to save its state again: the last one is kept with an older entry than what is to be deleted."""
    pins: Mapping[Segment, int] = MappingProxyType({})
    """Segments whose files must stay, and how often that was asked for. Replaced, never changed; `lending`."""
    checksums: Mapping[Segment, tuple[int, int]] = MappingProxyType({})
    """Of sealed segments: bytes of the file that were read, and their checksum. Replaced, never changed; `lending`."""
    adopted_index = 0
    """The last entry that came as a file; a state beside the log is as of that one or later; `installing`."""
    adopting_count = 0
    """Adoptions that the write worker has not carried out yet."""

    def __init__(
        self, shared: SharedStorage, group: GroupId, directory: str, row: ReplicaRow, mode: Mode, segment_bytes: int
    ) -> None:
        self.shared = shared
        self.group = group
        self.name = row.name
        self.directory = directory
        self.mode: Mode = mode
        self.is_journaled = mode == "fsync"
        self.segment_bytes = segment_bytes

        self.segments = [Segment.from_row(directory, segment) for segment in row.segments]
        if not self.segments:
            self.segments = [Segment(directory, row.end_offset, row.last_index + 1)]
        self.active = self.segments[-1]
        self.leader_epochs = LeaderEpochs.from_rows([(epoch, index, offset) for epoch, index, offset in row.epochs])
        self.members = ConfigurationHistory.from_rows(row.members)
        self.configuration = self.members.newest
        self.start_index = row.start_index
        self.last_index = row.last_index
        self.last_term = self.leader_epochs.last_term
        self.log_end_offset = row.end_offset
        self.log_start_offset = self.segments[0].base_offset
        self.size_bytes = sum(segment.size_bytes for segment in self.segments)
        self.tail = LogTail(shared.cache, row.last_index + 1)
        self.truncations = row.truncations

        self.durable = PendingIndexes(row.last_index)
        self.written = PendingIndexes(row.last_index)
        self.is_uncertain = row.uncertain
        self.is_blank = row.blank
        self.partial_since = row.partial_since

        self.operations: list[Operation] = []  # mostly empty, and thousands of empty deques take megabytes
        self.under_way = 0
        self.write_serial = 0
        self.open_write: Write | None = None
        self.is_dirty = False
        self.directory_changed = False
        self.replaced: list[tuple[int, int, tuple[FileHandle, ...]]] = []

        self.failed: StorageFailedError | None = StorageFailedError(row.failed) if row.failed else None
        self.is_deleted = False

        self.loading = frozenset[int]()  # mostly empty, and an empty set that can be added to takes 216 bytes

        self.on_failed: Callable[[GroupId, StorageFailedError], None] | None = None
        self.on_loaded: Callable[[GroupId], None] | None = None
        self.on_rolled: Callable[[GroupId], None] | None = None

    # Ends of the log.

    @property
    def first_index(self) -> int:
        return self.start_index + 1

    @property
    def durable_index(self) -> int:
        return self.durable.reached if self.is_journaled else self.written.reached

    @property
    def may_forget(self) -> bool:
        return not self.is_journaled

    @property
    def base_offset(self) -> int:
        """The end offset of what was before `first_index`; at most `log_start_offset`."""
        return self.segments[0].base_offset

    @property
    def is_adopting(self) -> bool:
        """True while files are on their way to their place: no other transfer may begin."""
        return self.adopting_count > 0

    # Terms and members.

    def term_at(self, index: int) -> int | None:
        if index == 0 and self.start_index == 0:
            return 0
        if index < self.start_index or index > self.last_index:
            return None
        return self.leader_epochs.term_at(index)

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end_offset) of the newest epoch not above `leader_epoch` (KIP-101, KIP-320); None: older."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def epoch_at_offset(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, which is in the log or at its end."""
        return self.leader_epochs.term_at_offset(offset)

    def epochs(self) -> list[tuple[int, int, int]]:
        """Return (epoch, first_index, start_offset) of every term that wrote something, oldest first."""
        return self.leader_epochs.rows()

    @property
    def configuration_index(self) -> int:
        return self.members.newest_index

    def configuration_at(self, index: int) -> Configuration:
        return self.members.at(index)

    # Segments.

    def has_segments_before(self, offset: int) -> bool:
        """Tell whether a whole segment lies before `offset`."""
        return len(self.segments) > 1 and self.segments[1].base_offset <= offset

    def spans(self) -> list[SegmentSpan]:
        """Return the segments, oldest first, as retention looks at them."""
        segments = self.segments
        ends = [segment.base_offset for segment in segments[1:]]
        return [
            SegmentSpan(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size_bytes=segment.size_bytes,
                max_timestamp=segment.newest_ms,
                modified_ms=segment.modified_ms,
            )
            for segment, end_offset in zip(segments, (*ends, self.log_end_offset), strict=True)
        ]

    def limit_segments(self, segment_bytes: int) -> None:
        """Let new segments begin at this size from now on."""
        self.segment_bytes = segment_bytes

    # To others.

    def mark_dirty(self) -> None:
        """Have the next checkpoint sync this log."""
        if not self.is_dirty:
            self.is_dirty = True
            self.shared.dirty[self] = None

    def may_be_read(self) -> None:
        """Let readers that wait for entries ask again: a segment that could not be read may be readable now."""
        if self.on_loaded is not None and not self.is_deleted:
            self.on_loaded(self.group)

    # The queues and the checkpoint call these. `ReplicaLog` binds the functions.

    @abstractmethod
    def on_journaled(self, durable_ticket: int) -> None: ...

    @abstractmethod
    def on_operation(self, operation: Operation) -> None: ...

    @abstractmethod
    def on_operation_failed(self, operation: Operation, error: OSError) -> None: ...

    @abstractmethod
    def store(self, size_bytes: int) -> Store | None: ...

    @abstractmethod
    def queue_checkpoint(self) -> None: ...

    @abstractmethod
    def forget_replaced(self, row: ReplicaRow) -> None: ...
