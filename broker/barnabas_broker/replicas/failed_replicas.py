"""Recreates replicas whose logs have failed; their leaders fill them.

A log fails for good when its newest file is found damaged in what had been synced, or cannot be written. It is never
cut silently, and nobody is served from it. The other replicas hold the same data, so this one is deleted but for its
vote, made again, empty, and filled like any that is behind. Until it has caught up it is *uncertain*
(`barnabas_raftlog.raft.uncertainty`): nothing that it acknowledged, or will, helps to elect anybody or to commit
anything.

First the leader is asked, over `METHOD`. It ceases to count what this replica has acknowledged, makes sure that it
still leads, and says whether enough others hold everything that is committed: a majority, or all, if there are not so
many. Until some leader says so nothing is deleted, for this may be the last copy.

A disk that goes on failing must not be written to all day: a replica is recreated once in `AGAIN_MS`.

Limits: one row for each failed replica, and one for each that was recreated within `AGAIN_MS`; one question at a time,
and a round of them every `RETRY_S` for as long as any replica is out.
"""

import asyncio
from collections.abc import Callable

from barnabas_broker.partition.in_sync import is_held_without
from barnabas_broker.partition.partition import Partition
from barnabas_metadata_quorum.leaders.table import NO_LEADER, Leadership
from barnabas_raftlog.errors import BarnabasError, NotLeaderError, StorageFailedError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.raft.messages import GroupId
from barnabas_raftlog.tasks import Tasks, failure_of, report

from .hosted_topic import GROUP_ID_BYTES, place_of

__all__ = ["AGAIN_MS", "METHOD", "FailedReplicas"]

METHOD = "replica failed"
AGAIN_MS = 60_000
RETRY_S = 1.0
CALL_S = 5.0
_YES = b"\1"
_NO = b"\0"


class FailedReplicas:
    """Owned by `Partitions`, on the loop.

    Args:
        node_id: This node.
        links: To other nodes, which serve `answer` as `METHOD`.
        leadership: Returns who leads a partition (topic id, number), as far as is known.
        find: Returns the replica here, by the same.
        now_ms: The monotonic clock.
        recreate: Deletes a replica and makes it again; called with the group and its leader.
    """

    def __init__(
        self,
        node_id: int,
        links: NodeLinks,
        leadership: Callable[[bytes, int], Leadership | None],
        find: Callable[[bytes, int], Partition | None],
        now_ms: Callable[[], int],
        recreate: Callable[[GroupId, int], None],
    ) -> None:
        self._node_id = node_id
        self._links = links
        self._now_ms = now_ms
        self._leadership = leadership
        self._find = find
        self._recreate = recreate
        self._errors: dict[GroupId, StorageFailedError] = {}
        self._made_ms: dict[GroupId, int] = {}
        self._asking = Tasks(report)
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def status(self) -> dict[GroupId, str]:
        """Return the reason for each replica that is out of service."""
        return {group_id: str(error) for group_id, error in self._errors.items()}

    def note(self, group_id: GroupId, error: StorageFailedError) -> None:
        """The log of this replica has failed."""
        self._errors[group_id] = error
        if not self._asking and self._timer is None and not self._is_closed:
            self._begin()

    def forget(self, group_id: GroupId) -> None:
        """This replica is none of this broker's any more."""
        self._errors.pop(group_id, None)

    async def close(self) -> None:
        """Ask no more. Idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._asking.close()

    def _begin(self) -> None:
        self._timer = None
        self._asking.spawn(self._work(), self._on_worked)

    def _on_worked(self, task: asyncio.Task[None]) -> None:
        if (error := failure_of(task)) is not None:
            report(error)
        if self._errors and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._begin)

    async def _work(self) -> None:
        now_ms = self._now_ms()
        self._made_ms = {group_id: made for group_id, made in self._made_ms.items() if made > now_ms - AGAIN_MS}
        for group_id in [group_id for group_id in self._errors if group_id not in self._made_ms]:
            known = self._leadership(*place_of(group_id))
            leader_id = self._node_id if known is None else known.leader_id
            if leader_id in {NO_LEADER, self._node_id} or not self._links.is_live(leader_id):
                continue
            try:
                is_held = await self._links.call(leader_id, METHOD, group_id, CALL_S) == _YES
            except (BarnabasError, TimeoutError):
                continue  # Another one leads by now, or nobody: it is asked again.
            if is_held and self._errors.pop(group_id, None) is not None:
                self._made_ms[group_id] = now_ms
                self._recreate(group_id, leader_id)

    async def answer(self, source: int, body: bytes) -> bytes:
        """Tell node `source`, whose replica has failed, whether it can be done without.

        Raises:
            NotLeaderError: this node does not lead that partition.
            TimeoutError: no majority has confirmed that it does.
        """
        partition = self._find(*place_of(GroupId(body))) if len(body) == GROUP_ID_BYTES else None
        if partition is None or not partition.can_serve:
            raise NotLeaderError(None)
        partition.group.discount(source)
        async with asyncio.timeout(CALL_S):
            await partition.group.confirm()
        return _YES if is_held_without(partition.group, partition.log, source) else _NO
