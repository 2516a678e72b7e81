"""Hands partitions over when a consumer's group gives and takes them.

The session of the group's protocol decides when. It calls the methods here (`GroupHandler`) from its own task, while
the application works.

* *Revoked*: nothing more is handed out. When the application has come back for more (or holds nothing, or has been away
  for `max_poll_interval_s`), its finished offsets are committed, `on_revoked` runs, and the partitions are gone.
* *Lost*: another member owns them already. Nothing can be committed. The finished offsets are logged, and `on_lost`
  runs, or `on_revoked` if there is none.
* *Assigned*: positions are looked up while `on_assigned` runs, which may seek. Nothing is handed out before it returns.

An exception from a callback does not stop the rebalance, from which the whole group would suffer. The next call for
records raises it to the application.

Limits: the callbacks of one rebalance, and the wait for the application, share `max_poll_interval_s`, after which the
session gives the membership up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import copy_of
from barnabas_clients.groups.consumer_session import ConsumerGroupSettings, ConsumerSession
from barnabas_clients.groups.session import GroupSession, GroupSettings
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.tasks import failure_of

from .fetcher import Fetcher
from .partition_queue import COMMITTED
from .reader import Reader

__all__ = ["Callbacks", "GroupReader", "Notify"]

Notify = Callable[[frozenset[TopicPartition]], Awaitable[None]]
CommitFinished = Callable[[Collection[TopicPartition]], Awaitable[None]]


class Callbacks:
    """The callbacks of the application."""

    __slots__ = ("on_assigned", "on_lost", "on_revoked")

    def __init__(
        self, on_assigned: Notify | None = None, on_revoked: Notify | None = None, on_lost: Notify | None = None
    ) -> None:
        self.on_assigned = on_assigned
        self.on_revoked = on_revoked
        self.on_lost = on_lost if on_lost is not None else on_revoked


class GroupReader:
    """The handler of one `session`. `failure` is the exception of a callback that the application was not told yet."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings | ConsumerGroupSettings,
        reader: Reader,
        fetcher: Fetcher,
        *,
        topics: Callable[[], frozenset[str]],
        server_pattern: Callable[[], str | None],
        callbacks: Callbacks,
        commit_finished: CommitFinished | None,
        tell_uncommitted: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        """Take the other parts.

        `commit_finished` stores the finished offsets of some partitions, and does not raise. `tell_uncommitted` logs
        those that were not stored when the partitions leave.
        """
        self.session = (
            GroupSession(cluster, settings, self)
            if isinstance(settings, GroupSettings)
            else ConsumerSession(cluster, settings, self)
        )
        # Whoever waits for records would wait for those of a group that it is no member of.
        self.session.on_failure = reader.wake
        self.failure: BaseException | None = None
        self._settings = settings
        self._reader = reader
        self._fetcher = fetcher
        self._topics = topics
        self._server_pattern = server_pattern
        self._callbacks = callbacks
        self._commit_finished = commit_finished
        self._tell_uncommitted = tell_uncommitted

    def check(self) -> None:
        """Raise the error that has ended the session, or the failure of a callback."""
        if self.session.failure is not None:
            raise copy_of(self.session.failure)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    # Called by the session.

    def subscription(self) -> frozenset[str]:
        return self._topics()

    def server_pattern(self) -> str | None:
        return self._server_pattern()

    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._fetcher.queues)

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        self._reader.hold()
        try:
            await self._reader.wait_returned(self._settings.rebalance_timeout_s)
            if self._commit_finished is not None:
                await self._commit_finished(partitions)
            await self._call(self._callbacks.on_revoked, partitions)
        finally:
            # In any case nothing of them is handed out any more.
            self._drop(partitions)
            self._reader.release()

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        self._reader.hold()
        try:
            self._drop(partitions)
            await self._call(self._callbacks.on_lost, partitions)
        finally:
            self._reader.release()

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        self._reader.hold()
        try:
            self._drop(self._fetcher.queues.keys() - whole)
            self._fetcher.add(whole, COMMITTED)
            await self._call(self._callbacks.on_assigned, added)
        finally:
            self._reader.release()

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        self._tell_uncommitted(partitions)
        for partition in partitions:
            if (queue := self._fetcher.queues.get(partition)) is not None:
                self._reader.forget(queue)
        self._fetcher.remove(partitions)

    async def _call(self, notify: Notify | None, partitions: frozenset[TopicPartition]) -> None:
        """Run a callback in a task of its own, so that its exception ends there."""
        if notify is None or not partitions:
            return
        task = asyncio.ensure_future(notify(partitions))
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if (error := failure_of(task)) is not None:
            self.failure = error
            self._reader.wake()
