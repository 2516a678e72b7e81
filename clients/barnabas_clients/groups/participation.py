"""Keeps one consumer in its group, whichever protocol the group speaks.

A `Participation` runs one task, which looks at its member (pure) and does the next step: tell the application of a
loss, leave, go on in the way of the protocol, or wait for an event. The application is a `GroupHandler`. Its calls are
awaited in that task, one at a time, so it never sees two changes at once. A second task, which the first one ends,
sends heartbeats, also while the application takes its time over `revoke` or `assign`.

*Coordinators.* When the coordinator dies its connection breaks, which is noticed at once and not at the next heartbeat.
Another one is looked for, with pauses from 20 ms to 1 s. A coordinator that freezes is noticed when a heartbeat waits
too long: its connections are dropped. In neither case does the application hear of it: a member keeps its partitions
until a coordinator says otherwise.

*The user* counts as present for `rebalance_timeout_s` after each poll. Then the member leaves, so that others get its
partitions, and the application is told that they are lost. The next poll joins again.

*Failures.* An error that no retry mends (not authorized, fenced, no common assignor) ends the session: the application
is told of its loss, and `failure` has the error. So does an exception that the handler lets out.

Limits: one session per `Cluster`, whose lanes it uses; two tasks.

Not here: how an assignment comes about, in which the protocols differ (session.py, consumer_session.py); positions, and
when to store them (consumer/consumer.py).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, ClassVar, Protocol

from barnabas_clients import chance
from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import CommitFailedError, DeadlineExceededError, copy_of
from barnabas_clients.protocol.errors import ErrorCode, KafkaError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.tasks import failure_of
from barnabas_raftlog.wire.schema import Message

from .coordinator import (
    LEAVE_TIMEOUT_S,
    NOT_A_MEMBER,
    Coordinator,
    Membership,
    commit_offsets,
    fetch_offsets,
    look_up_offsets,
    send_leave,
)
from .group_log import GroupLog
from .handler import GroupHandler
from .member import Identity

__all__ = ["METADATA_TIMEOUT_S", "Beats", "Member", "Participation"]

METADATA_TIMEOUT_S = 10.0
# For the goodbye of a session that is cancelled or fails, which nobody expects to take long.
DEPART_TIMEOUT_S = 0.5
# How long `close` waits, beyond its deadline, for a cancelled call of the handler to notice.
CANCEL_GRACE_S = 1.0


class Member(Protocol):
    """The member of one protocol, as far as all of them are alike; see `GroupMember`."""

    has_lost: bool
    lost_because: str
    failure: KafkaError | None

    @property
    def member_id(self) -> str: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def is_out(self) -> bool: ...
    def lost_is_told(self) -> None: ...
    def leave(self) -> None: ...
    def leave_request(self, reason: str) -> Message | None: ...


class Beats(Protocol):
    """The heartbeats of one member; see `Heartbeats`."""

    @property
    def is_stalled(self) -> bool: ...
    def polled(self) -> None: ...
    async def run(self) -> None: ...


class Participation(ABC):
    """One member of one group, from `start` to `close`. Owned by one event loop.

    Before `start` there is no membership, and `commit` and `committed` work as for a consumer without group management.
    A protocol sets `_member` and `_heartbeats`.
    """

    MEMBERSHIP_ERRORS: ClassVar[frozenset[ErrorCode]]
    """The errors of a commit that are about the member, and not about an offset."""
    _member: Member
    _heartbeats: Beats

    def __init__(
        self,
        cluster: Cluster,
        handler: GroupHandler,
        *,
        group_id: str,
        group_instance_id: str | None,
        session_timeout_s: float | None,
        backoff: Backoff,
        jitter: Jitter | None,
    ) -> None:
        """Take the parts. `session_timeout_s` is None if only the coordinator knows it."""
        self.failure: BaseException | None = None
        """The error that has ended the session, if there was one."""
        self.on_failure: Callable[[], None] | None = None
        """Called when there is a `failure`: nobody may be about to ask for it."""
        self.rebalances = 0
        """How many generations, or epochs, this member has been in."""
        self._cluster = cluster
        self._handler = handler
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._session_timeout_s = session_timeout_s
        self._backoff = backoff
        self._jitter: Jitter = jitter or chance.new_generator()
        self._log = GroupLog(group_id)
        self._coordinator = Coordinator(cluster, group_id)
        self._coordinator.on_found = self._log.coordinator
        self._task: asyncio.Task[None] | None = None
        self._closes_at_s: float | None = None
        # At this time a close leaves the handler alone and says goodbye.
        self._goodbye_at_s: float | None = None
        self._is_in_handler = False
        # Timeouts that can be moved to end a wait, or a call of the handler, when something is more important.
        self._patience: asyncio.Timeout | None = None
        self._indulgence: asyncio.Timeout | None = None
        # How often partitions were taken away: a commit that straddles such a moment must not be repeated.
        self._takings = 0
        self._wake = asyncio.Event()

    @property
    def member_id(self) -> str:
        """The member's id; empty before the coordinator has given one."""
        return self._member.member_id

    @property
    def generation_id(self) -> int:
        """The member's generation, or its epoch; -1 if it has none."""
        return self._member.identity.generation_id

    @property
    def identity(self) -> Identity:
        """The member as it stores offsets.

        Raises:
            CommitFailedError: this consumer is not a member at the moment.
        """
        self._raise_failure()
        identity = self._member.identity
        if identity.generation_id < 0:
            raise CommitFailedError(f"group {self._group_id}: this consumer is not a member")
        return identity

    @property
    def coordinator_id(self) -> int | None:
        """The broker that coordinates the group; None while it is unknown."""
        return self._coordinator.node_id

    def start(self) -> None:
        """Begin to take part. Call it once, from the event loop. The user counts as present from now on."""
        assert self._task is None, "a session starts once"
        self._heartbeats.polled()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    @abstractmethod
    def resubscribe(self) -> None:
        """Note that the handler's subscription has changed, or the topics that match it."""

    def polled(self) -> None:
        """Note that the user asks for records. Cheap enough to be called for each."""
        self._heartbeats.polled()

    async def close(self, timeout_s: float) -> None:
        """Give all partitions up, leave the group, and end the tasks.

        A static member stays away for a while (KIP-345). Ends at its deadline whatever the brokers and the handler do.
        The coordinator then finds out by itself after the session timeout. A second close does nothing more.

        Cancellation: the session ends nearly at once. It still says goodbye if the coordinator answers quickly.
        """
        task = self._task
        if task is None or task.done():
            return
        if self._closes_at_s is None:
            self._closes_at_s = self._now() + timeout_s
            self._goodbye_at_s = self._closes_at_s - min(LEAVE_TIMEOUT_S, timeout_s / 4)
            if self._indulgence is not None:
                self._indulgence.reschedule(self._goodbye_at_s)
            self._interrupt()
            self._note()
        try:
            await asyncio.wait({task}, timeout=max(0.0, self._closes_at_s - self._now()))
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CANCEL_GRACE_S)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_s: float,
        stored: set[TopicPartition] | None = None,
    ) -> None:
        """Store positions as this member, in its generation. `stored` gets the partitions whose positions are stored.

        A commit that meets a rebalance is repeated after it, if none of this member's partitions was taken away
        meanwhile. Otherwise it could set back the position of a new owner.

        Raises:
            CommitFailedError: not a member (any more), or a rebalance has taken partitions away. KafkaError: a refusal.
            In the handler's calls also REBALANCE_IN_PROGRESS, since they cannot wait for its end.
            DeadlineExceededError: no success within `timeout_s`.

        Cancellation: they may be stored, now or later.
        """
        if self._task is None:
            await commit_offsets(self._coordinator, offsets, timeout_s, NOT_A_MEMBER, stored)
            return
        deadline = self._now() + timeout_s
        takings = self._takings
        attempts = 0
        while True:
            identity = self.identity
            try:
                left_s = max(0.0, deadline - self._now())
                await commit_offsets(self._coordinator, offsets, left_s, Membership(*identity), stored)
            except KafkaError as error:
                if error.code not in self.MEMBERSHIP_ERRORS:
                    raise
                await self._on_refused_commit(error, identity, deadline, attempts)
                if takings != self._takings or self._member.is_out:
                    raise self._commit_failed(error) from error
                attempts += 1
            else:
                return

    @abstractmethod
    async def _on_refused_commit(self, error: KafkaError, identity: Identity, deadline: float, attempts: int) -> None:
        """Wait until another attempt may succeed, or raise what `commit` raises."""

    async def committed(
        self, partitions: Collection[TopicPartition] | None, timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's stored positions, of all partitions (None) or of some. Those without one are left out.

        Raises:
            KafkaError: a refusal. DeadlineExceededError: no answer within `timeout_s`.
        """
        return await fetch_offsets(self._coordinator, partitions, timeout_s)

    async def look_up(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        """Return the stored position of each partition, or the error of its refusal. Those without one are left out.

        Raises:
            KafkaError: the group may not be read. DeadlineExceededError: no answer within `timeout_s`.
        """
        return await look_up_offsets(self._coordinator, partitions, timeout_s)

    # The session's task.

    async def _run(self) -> None:
        heartbeats = asyncio.create_task(self._heartbeats.run())
        # They end by themselves only if nothing can go on, which must not look like silence.
        heartbeats.add_done_callback(self._ended)
        try:
            await self._take_part()
        finally:
            heartbeats.cancel()
            await asyncio.wait({heartbeats})
            await self._depart()

    async def _depart(self) -> None:
        """Say goodbye, in the time that is left, also if the session ends in another way than by `_leave`."""
        now = self._now()
        deadline = now + DEPART_TIMEOUT_S
        if self._closes_at_s is not None:
            deadline = min(deadline, self._closes_at_s)
        request = self._member.leave_request("the consumer has ended")
        if self._member.identity.generation_id >= 0:
            self._tell_left("the consumer has ended")
        self._member.leave()
        if deadline > now:
            await send_leave(self._coordinator, request, deadline)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if (error := failure_of(task)) is not None:
            self.failure = self.failure or error
            if self._task is not None:
                self._task.cancel()
            if self.on_failure is not None:
                self.on_failure()

    async def _take_part(self) -> None:
        member = self._member
        while True:
            self._wake.clear()
            if member.has_lost:
                await self._lose()
            elif member.failure is not None:
                raise member.failure
            elif self._closes_at_s is not None:
                await self._leave("the consumer is closed", self._closes_at_s)
                return
            elif not self._wants_in():
                if member.is_out:
                    await self._wake.wait()
                else:
                    await self._leave("the consumer has unsubscribed")
            else:
                await self._go_on()

    @abstractmethod
    async def _go_on(self) -> None:
        """Do the next step of a consumer that wants to be a member, or wait for an event."""

    def _wants_in(self) -> bool:
        return not self._heartbeats.is_stalled and self._is_subscribed()

    def _is_subscribed(self) -> bool:
        return bool(self._handler.subscription())

    def _may_go_on(self) -> bool:
        """Say whether nothing else comes before the next step of the protocol."""
        member = self._member
        return not member.has_lost and member.failure is None and self._closes_at_s is None and self._wants_in()

    async def _lose(self) -> None:
        self._member.lost_is_told()
        if owned := self._handler.owned():
            self._log.lost(owned, self._member.lost_because)
            self._takings += 1
            await self._tell(self._handler.lose(owned))
        self._note()

    async def _leave(self, reason: str, deadline: float | None = None) -> None:
        """Give all partitions up, and leave the group."""
        await self._revoke(self._handler.owned())
        request = self._member.leave_request(reason)
        if self._member.identity.generation_id >= 0:
            self._tell_left(reason)
        # A heartbeat that came behind the goodbye would be one of an unknown member.
        self._member.leave()
        await send_leave(self._coordinator, request, self._now() + LEAVE_TIMEOUT_S if deadline is None else deadline)
        self._note()

    def _tell_left(self, reason: str) -> None:
        self._log.left(reason, self._group_instance_id, self._session_timeout_s)

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            await self._tell(self._handler.revoke(partitions))
            self._log.revoked(partitions)
            self._takings += 1

    async def _tell(self, call: Coroutine[Any, Any, None]) -> None:
        """Await a call of the handler. A close ends it early enough to leave time for a goodbye."""
        self._is_in_handler = True
        indulgence = asyncio.timeout_at(self._goodbye_at_s)
        try:
            async with indulgence:
                self._indulgence = indulgence
                await call
        except TimeoutError:
            if not indulgence.expired():
                raise
        finally:
            self._is_in_handler = False
            self._indulgence = None

    # Helpers.

    def _note(self) -> None:
        """Wake the task, which waits for a change."""
        self._wake.set()

    async def _was_interrupted(self, wait: Coroutine[Any, Any, None]) -> bool:
        """Await something that `_interrupt` ends, and tell whether it did."""
        patience = asyncio.timeout(None)
        try:
            async with patience:
                self._patience = patience
                await wait
        except TimeoutError:
            if not patience.expired():
                raise
            return True
        finally:
            self._patience = None
        return False

    def _interrupt(self) -> None:
        """End the wait under way, once: a timeout that has expired cannot be moved again."""
        patience, self._patience = self._patience, None
        if patience is not None:
            patience.reschedule(self._now())

    async def _settle(self, settled: asyncio.Event | None, deadline: float, attempts: int, error: KafkaError) -> None:
        """Wait before a call that met `error` is repeated: for `settled`, and for a short pause in any case."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.sleep(self._backoff.delay_s(attempts, self._jitter))
                if settled is not None:
                    await settled.wait()
        except TimeoutError:
            raise DeadlineExceededError(f"offsets of group {self._group_id}: timed out; last: {error}") from error

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise copy_of(self.failure)

    def _commit_failed(self, error: KafkaError) -> CommitFailedError:
        return CommitFailedError(f"group {self._group_id}: partitions were taken from this member: {error}")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
