"""The parts that a group is given: its log, its storage, and its listener.

The listener owns the group's state machine.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.state_file import StateOrMaker
from barnabas_raftlog.raft.membership import NOBODY, Configuration
from barnabas_raftlog.raft.messages import Buffer, Entry, GroupId, HardState, InstallSnapshot, LogReader, Place
from barnabas_raftlog.records.header import ControlKind

__all__ = ["NOBODY_LISTENS", "Frame", "GroupListener", "GroupLog", "GroupStorage"]

Frame = bytearray | memoryview


class GroupLog(LogReader, Protocol):
    """The part of `ReplicaLog` that the driver uses. Appending raises as `ReplicaLog.append_batch` does."""

    on_loaded: Callable[[GroupId], None] | None
    on_failed: Callable[[GroupId, StorageFailedError], None] | None
    is_uncertain: bool
    is_blank: bool

    @property
    def partial_since(self) -> Place | None: ...

    def became_certain(self) -> None: ...

    @property
    def failed(self) -> StorageFailedError | None: ...

    def append_batch(self, term: int, frame: Frame) -> Entry: ...

    def append_control(self, term: int, kind: ControlKind, body: bytes = b"") -> Entry: ...

    def append(self, entries: Sequence[Entry]) -> None: ...

    def truncate_from(self, index: int) -> None: ...

    def offset_after(self, index: int) -> int: ...

    def drop_prefix(self, index: int, *, partial_since: Place | None = None) -> None: ...

    def limit_segments(self, segment_bytes: int) -> None: ...

    def begin_with(self, configuration: Configuration) -> None: ...

    def install_snapshot(
        self,
        index: int,
        term: int,
        end_offset: int,
        state: Buffer = b"",
        configuration: Configuration = NOBODY,
        *,
        partial_since: Place | None = None,
    ) -> None: ...


class GroupStorage(Protocol):
    """The part of `Storage` that the driver uses."""

    on_failed: Callable[[StorageFailedError], None] | None
    on_recovered: Callable[[], None] | None
    failed: StorageFailedError | None
    directory_id: bytes

    @property
    def lacks_room(self) -> bool:
        """True while every append is refused for want of room."""

    @property
    def durable_ticket(self) -> int: ...

    def hard_state(self, group: GroupId) -> HardState: ...

    def save_hard_state(self, group: GroupId, hard_state: HardState) -> None: ...

    def ticket(self) -> int: ...

    def take_durable(self) -> list[GroupId]: ...

    def flush(self) -> None: ...


class GroupListener(Protocol):
    """The owner of a group's state machine. Called on the loop after a drive's steps, in the order of events."""

    def on_appended(self, entries: Sequence[Entry]) -> None:
        """These are in the log now, on a leader as on a follower; neither durable nor committed yet."""

    def on_truncated(self, index: int) -> None:
        """Entries at and after `index` are gone; none of them was committed."""

    def on_committed(self, commit_index: int) -> None:
        """Everything up to `commit_index`, inclusive, is committed."""

    def on_leadership(self, term: int, leader_id: int | None, is_leader: bool, confirmed: bool) -> None:
        """One of these has changed. A witness never leads, as far as this tells: it is about to hand on."""

    def on_failed(self, error: StorageFailedError) -> None:
        """The log has failed for good: this replica takes part in nothing any more."""

    def on_configuration(self, configuration: Configuration) -> None:
        """These are the members from here on, unless their entry is truncated again. It need not be committed yet."""

    def install(self, snapshot: InstallSnapshot) -> None:
        """Replace the state by `snapshot.data`; the log has already been replaced, and keeps the data with it."""

    def snapshot(self) -> tuple[int, int, StateOrMaker] | None:
        """Return (index, term, state) for a follower that is too far behind; None: not now. Must not change anything.

        The state may be that of a later committed entry than `index`, behind which the follower is sent everything.
        """


class _NobodyListens:
    """The listener of a group that was removed: else its own one and the group would hold each other for ever."""

    def on_appended(self, entries: Sequence[Entry]) -> None: ...
    def on_truncated(self, index: int) -> None: ...
    def on_committed(self, commit_index: int) -> None: ...
    def on_leadership(self, term: int, leader_id: int | None, is_leader: bool, confirmed: bool) -> None: ...
    def on_failed(self, error: StorageFailedError) -> None: ...
    def on_configuration(self, configuration: Configuration) -> None: ...
    def install(self, snapshot: InstallSnapshot) -> None: ...
    def snapshot(self) -> None: ...


NOBODY_LISTENS: GroupListener = _NobodyListens()
