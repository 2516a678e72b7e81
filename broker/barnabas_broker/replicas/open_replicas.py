"""Opens replicas; keeps those that wait for a damaged segment to be mended.

Opening a replica means opening its log and reading from it what the replica knows beside the log: producers, the log's
start (`replica_state`). A sealed segment that is damaged stops that, and is no reason to give the replica up: the
scrub gets a copy of the segment from another replica, and then it is tried again. Until then the replica is nobody in
its group. If nobody has a copy, because the others have deleted it, say, the replica is made anew (`failed_replicas`).
A log that has failed for good stays so.

If a replica moves elsewhere, its vote stays behind, for one that may be made here again
(`barnabas_raftlog.log.hard_states`). It goes with the topic.

A replica that is not there at all is not made before `allow_new` (see `partitions`): `late` are those that wait for it.

Limits: one row for each replica.
"""

from collections.abc import Callable, Container
from functools import partial
from typing import Literal, Protocol, cast

from barnabas_broker.partition.contracts import PartitionLog
from barnabas_broker.partition.replica_state import ReplicaState, load_replica_state
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.raft.messages import GroupId

from .hosted_topic import place_of

__all__ = ["LogStorage", "Mode", "OpenReplicas"]

Mode = Literal["fsync", "page-cache"]


class LogStorage(Protocol):
    """The part of `Storage` that is used here."""

    def open_log(self, group: GroupId, name: str, mode: Mode, *, segment_bytes: int | None = None) -> object: ...
    def delete_log(self, group: GroupId, *, for_good: bool) -> None: ...
    def forget(self, group: GroupId) -> None: ...
    def has_log(self, group: GroupId) -> bool: ...
    def left_behind(self) -> list[GroupId]: ...


class OpenReplicas:
    """Owned by `Partitions`. `on_mended` is told that a replica which could not be read should be opened again."""

    def __init__(self, storage: LogStorage, wall_ms: Callable[[], int], on_mended: Callable[[GroupId], None]) -> None:
        self._storage = storage
        self._wall_ms = wall_ms
        self._on_mended = on_mended
        self._opened: set[GroupId] = set()
        self._unreadable: dict[GroupId, PartitionLog] = {}
        self._mended: set[GroupId] = set()
        self.is_new_allowed = False
        self.late: dict[GroupId, None] = {}

    def is_waiting(self, group_id: GroupId) -> bool:
        """Tell whether it cannot be read before somebody has mended a segment."""
        return group_id in self._unreadable

    def is_done(self, group_id: GroupId) -> bool:
        """Tell whether nothing is to be done about this replica: it is open, failed, or waits."""
        return group_id in self._opened and group_id not in self._mended

    def must_wait(self, group_id: GroupId) -> bool:
        """Tell whether this replica would be a new one, which must not be made yet; it is remembered then."""
        if self.is_new_allowed or self._storage.has_log(group_id):
            return False
        self.late[group_id] = None
        return True

    def allow_new(self, topic_ids: Container[bytes]) -> bool:
        """Let replicas be made from now on; return whether any has waited for it. `topic_ids`: all that there are."""
        for group_id in self._storage.left_behind():
            if place_of(group_id)[0] not in topic_ids:
                self._storage.forget(group_id)
        self.is_new_allowed = True
        late, self.late = self.late, {}
        return bool(late)

    async def open(
        self, group_id: GroupId, name: str, mode: str, segment_bytes: int
    ) -> tuple[PartitionLog, ReplicaState]:
        """Open a replica, or one that was mended again.

        Raises:
            StorageFailedError: its log cannot be read.
        """
        log = self._unreadable.pop(group_id, None)
        self._mended.discard(group_id)
        if log is None:
            opened = self._storage.open_log(group_id, name, cast("Mode", mode), segment_bytes=segment_bytes)
            log = cast("PartitionLog", opened)
        self._opened.add(group_id)
        try:
            return log, await load_replica_state(log, self._wall_ms())
        except StorageFailedError:
            if log.failed is None and group_id in self._opened:
                self._unreadable[group_id] = log
                log.on_loaded = partial(self._try_again, log)
            raise

    def delete(self, group_id: GroupId, *, for_good: bool) -> bool:
        """Delete a replica with its files, if it is open, and return whether it was.

        `for_good`: the group is no more, and nobody counts on it.
        """
        self.late.pop(group_id, None)
        if group_id in self._opened:
            self._opened.discard(group_id)
            self._unreadable.pop(group_id, None)
            self._mended.discard(group_id)
            self._storage.delete_log(group_id, for_good=for_good)
            return True
        if for_good:
            self._storage.forget(group_id)
        return False

    def _try_again(self, log: PartitionLog, group_id: GroupId) -> None:
        if self._unreadable.get(group_id) is log:
            self._mended.add(group_id)
            self._on_mended(group_id)
