"""Keeps up a membership in a consumer group, through joins, heartbeats and failures.

A `GroupSession` runs one task, which asks `GroupMember` (pure) for the member's situation and does the next step: tell
the application of a loss, leave, join and sync, or wait for an event. The application is a `GroupHandler`. Its calls
are awaited in that task, one at a time, so it never sees two changes at once. A second task, which the first one ends,
sends heartbeats (heartbeats.py). It does so while the application takes its time over `revoke` or `assign`, and also
during a join, where any answer shows that the coordinator is there.

*Coordinators.* When the coordinator dies its connection breaks, which is noticed at once and not at the next heartbeat.
Another one is looked for, with pauses from 20 ms to 1 s. A coordinator that freezes is noticed when a heartbeat waits
too long: its connections are dropped, that of a waiting join too. In neither case does the application hear of it: a
member keeps its partitions until a coordinator says otherwise.

*The user* counts as present for `rebalance_timeout_s` after each poll. Then the member leaves, so that others get its
partitions, and the application is told that they are lost. The next poll joins again.

*Failures.* An error that no retry mends (not authorized, fenced, no common assignor) ends the session: the application
is told of its loss, and `failure` has the error. So does an exception that the handler lets out.

Limits: one session per `Cluster`, whose lanes it uses; one connection to the coordinator, and one more during a
rebalance; two tasks.

Not here: positions, and when to store them (consumer/consumer.py); the newer protocol (KIP-848).
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from barnabas_clients import chance
from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError, CommitFailedError, DeadlineExceededError, copy_of
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.join_group import JoinGroupResponse
from barnabas_clients.protocol.sync_group import SyncGroupResponse
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.tasks import failure_of

from .coordinator import (
    FIND_TIMEOUT_S,
    JOIN_LANE,
    NOT_A_MEMBER,
    Coordinator,
    Membership,
    commit_offsets,
    fetch_offsets,
    look_up_offsets,
)
from .group_log import GroupLog
from .handler import GroupHandler
from .heartbeats import LEAVE_TIMEOUT_S, Heartbeats, known_counts, send_leave
from .member import GroupMember, GroupSettings, Identity, Situation, Verdict

__all__ = ["GroupHandler", "GroupSession", "GroupSettings"]

# As in Kafka's clients: the coordinator answers a join at the end of the rebalance timeout, and the answer travels.
JOIN_GRACE_S = 5.0
METADATA_TIMEOUT_S = 10.0
# For the goodbye of a session that is cancelled or fails, which nobody expects to take long.
DEPART_TIMEOUT_S = 0.5
# How long `close` waits, beyond its deadline, for a cancelled call of the handler to notice.
CANCEL_GRACE_S = 1.0
_MEMBERSHIP_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class GroupSession:
    """One member of one group, from `start` to `close`. Owned by one event loop.

    Before `start` there is no membership, and `commit` and `committed` work as for a consumer without group management.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        handler: GroupHandler,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 - an immutable value
        jitter: Jitter | None = None,
    ) -> None:
        """Raise `ValueError` for settings that make no sense."""
        self.failure: BaseException | None = None
        """The error that has ended the session, if there was one."""
        self._cluster = cluster
        self._settings = settings
        self._handler = handler
        self._backoff = backoff
        self._jitter: Jitter = jitter or chance.new_generator()
        self.rebalances = 0
        """How many generations this member has been in."""
        self._member = GroupMember(settings)
        self._log = GroupLog(settings.group_id)
        self._coordinator = Coordinator(cluster, settings.group_id)
        self._coordinator.on_found = self._log.coordinator
        self._heartbeats = Heartbeats(
            coordinator=self._coordinator,
            member=self._member,
            backoff=backoff,
            jitter=self._jitter,
            changed=self._note,
            log=self._log,
        )
        self._task: asyncio.Task[None] | None = None
        self._closes_at_s: float | None = None
        # At this time a close leaves the handler alone and says goodbye.
        self._goodbye_at_s: float | None = None
        self._is_in_handler = False
        # Timeouts that can be moved to end a join, or a call of the handler, when something is more important.
        self._patience: asyncio.Timeout | None = None
        self._indulgence: asyncio.Timeout | None = None
        # How often partitions were taken away: a commit that straddles such a moment must not be repeated.
        self._takings = 0
        self._is_taken_over = False
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        self._synced.set()

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave; empty before."""
        return self._member.member_id

    @property
    def generation_id(self) -> int:
        """The member's generation, or -1."""
        return self._member.generation_id

    @property
    def identity(self) -> Identity:
        """The member as it stores offsets.

        Raises:
            CommitFailedError: this consumer is not a member at the moment.
        """
        self._raise_failure()
        identity = self._member.identity
        if identity.generation_id < 0:
            raise CommitFailedError(f"group {self._settings.group_id}: this consumer is not a member")
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

    def resubscribe(self) -> None:
        """Note that the handler's subscription has changed, or the topics that match it."""
        self._member.request_rejoin("the subscription has changed")
        if not self._handler.subscription():
            self._interrupt()
        self._note()

    def polled(self) -> None:
        """Note that the user asks for records. Cheap enough to be called for each."""
        self._heartbeats.polled()

    async def close(self, timeout_s: float) -> None:
        """Give all partitions up, leave the group (a static member does not), and end the tasks.

        Ends at its deadline whatever the brokers and the handler do. The coordinator then finds out by itself after the
        session timeout. A second close does nothing more.

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
                if error.code not in _MEMBERSHIP_ERRORS:
                    raise
                self._member.on_heartbeat(error.code, identity)
                self._note()
                must_say = self._is_in_handler and error.code == ErrorCode.REBALANCE_IN_PROGRESS
                if must_say or self._member.failure is not None:
                    raise
                if self._is_in_handler or self._member.is_out:
                    raise self._commit_failed(error) from error
                await self._wait_synced(deadline, attempts, error)
                if takings != self._takings or self._member.is_out:
                    raise self._commit_failed(error) from error
                attempts += 1
            else:
                return

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
        self._synced.set()

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
            elif member.situation is not Situation.IN or member.rejoin_reason is not None:
                await self._rejoin()
            else:
                await self._wake.wait()

    def _wants_in(self) -> bool:
        return not self._heartbeats.is_stalled and bool(self._handler.subscription())

    async def _lose(self) -> None:
        self._member.lost_is_told()
        self._is_taken_over = False
        if owned := self._handler.owned():
            self._log.lost(owned, self._member.lost_because)
            self._takings += 1
            await self._tell(self._handler.lose(owned))
        self._note()

    async def _leave(self, reason: str, deadline: float | None = None) -> None:
        """Give all partitions up, and leave the group."""
        self._is_taken_over = False
        await self._revoke(self._handler.owned())
        request = self._member.leave_request(reason)
        await send_leave(self._coordinator, request, self._now() + LEAVE_TIMEOUT_S if deadline is None else deadline)
        if self._member.identity.generation_id >= 0:
            self._tell_left(reason)
        self._member.leave()
        self._note()

    def _tell_left(self, reason: str) -> None:
        self._log.left(reason, self._settings.group_instance_id, self._settings.session_timeout_s)

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

    async def _rejoin(self) -> None:
        """Give up the partitions that must go, join, sync, and take over the assignment."""
        member = self._member
        self._is_taken_over = False
        if member.situation is Situation.IN and member.rejoin_reason:
            self._log.rejoining(member.rejoin_reason)
        self._note()
        await self._revoke(member.given_up_before(self._handler.owned(), self._handler.subscription()))
        if not self._may_join():
            return
        self._synced.clear()
        patience = asyncio.timeout(None)
        try:
            async with patience:
                self._patience = patience
                await self._join()
        except TimeoutError:
            if not patience.expired():
                raise
            # It was interrupted, and the loop sees why. The next join must not wait for the answer to this one.
            await self._drop_join_lane()
        finally:
            self._patience = None
            self._synced.set()
        if member.situation is Situation.IN and self._may_join():
            await self._take_over()

    def _may_join(self) -> bool:
        """Say whether nothing else comes before a join."""
        member = self._member
        return not member.has_lost and member.failure is None and self._closes_at_s is None and self._wants_in()

    async def _take_over(self) -> None:
        member = self._member
        assigned = member.previous
        changes = member.changes(self._handler.owned(), assigned)
        await self._revoke(changes.revoked)
        # The membership may have been lost meanwhile.
        if member.situation is not Situation.IN or not self._may_join():
            return
        if changes.needs_rejoin:
            member.request_rejoin("partitions were given up for other members")
        await self._tell(self._handler.assign(changes.added, assigned))
        self._log.assigned(changes.added, assigned)
        self._is_taken_over = member.situation is Situation.IN
        self._note()
        if self._is_stable():
            await self._drop_join_lane()

    async def _drop_join_lane(self) -> None:
        """Close the connection for joins, which is idle until the next rebalance. That may be days away."""
        if (node_id := self._coordinator.node_id) is not None:
            await self._cluster.drop(node_id, JOIN_LANE)

    # Joining.

    async def _join(self) -> None:
        """Join until there is an assignment, or until something else comes first."""
        failures = 0
        while self._may_join():
            try:
                verdict = await self._join_once()
            except KafkaError as error:
                if not error.retriable:
                    self._member.fail(error)
                self._log.hindered(error)
                verdict = Verdict.LATER
            except ClientError as error:
                if not error.retriable:
                    raise
                self._log.hindered(error)
                verdict = Verdict.LATER
            self._note()
            if verdict is Verdict.DONE:
                return
            # A member without an id, or with an outdated one, needs two joins in a row.
            if verdict is Verdict.LATER or failures > 1:
                await asyncio.sleep(self._backoff.delay_s(failures, self._jitter))
            failures += 1

    async def _join_once(self) -> Verdict:
        member = self._member
        patience_s = self._settings.rebalance_timeout_s + JOIN_GRACE_S
        reason = member.begin_join()
        self._heartbeats.begin()
        request = member.join_request(self._handler.subscription(), self._handler.owned(), reason)
        answer: JoinGroupResponse = await self._coordinator.ask(
            request, self._now() + FIND_TIMEOUT_S + patience_s, patience_s, JOIN_LANE
        )
        await self._coordinator.forget_if_moved(answer.error_code)
        verdict = member.on_join(answer)
        if verdict is Verdict.LATER:
            self._log.hindered(error_for(answer.error_code))
        if verdict is not Verdict.DONE:
            return verdict
        assignments = await self._divide(answer)
        if member.situation is not Situation.SYNCING:
            return Verdict.AGAIN
        response: SyncGroupResponse = await self._coordinator.ask(
            member.sync_request(assignments), self._now() + FIND_TIMEOUT_S + patience_s, patience_s, JOIN_LANE
        )
        await self._coordinator.forget_if_moved(response.error_code)
        verdict = member.on_sync(response)
        if verdict is Verdict.DONE:
            self.rebalances += 1
            self._log.joined(member.generation_id, member.member_id, len(answer.members) if member.is_leader else 0)
        return verdict

    async def _divide(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Divide the partitions if this is the leader. Other members have nothing to do."""
        self._heartbeats.watch(None)
        if not self._member.is_leader:
            return {}
        topics = self._member.wanted_topics(answer.members)
        await self._cluster.refresh(topics, timeout_s=METADATA_TIMEOUT_S)
        counts = known_counts(self._cluster, topics)
        self._heartbeats.watch(counts)
        # A static leader that comes back keeps its division (KIP-814), and goes on watching over it.
        if answer.skip_assignment:
            return {}
        return self._member.assignments(
            answer.members, {topic: count for topic, count in counts.items() if count is not None}
        )

    # Helpers.

    def _is_stable(self) -> bool:
        member = self._member
        return self._is_taken_over and member.situation is Situation.IN and member.rejoin_reason is None

    def _note(self) -> None:
        """Wake the task, which waits for a change."""
        self._wake.set()
        # The heartbeats may have found that a join has nothing to wait for.
        if not self._is_stable() and (self._heartbeats.is_stalled or self._member.failure is not None):
            self._interrupt()

    def _interrupt(self) -> None:
        """End the join under way, once: a timeout that has expired cannot be moved again."""
        patience, self._patience = self._patience, None
        if patience is not None:
            patience.reschedule(self._now())

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise copy_of(self.failure)

    def _commit_failed(self, error: KafkaError) -> CommitFailedError:
        return CommitFailedError(f"group {self._settings.group_id}: partitions were taken from this member: {error}")

    async def _wait_synced(self, deadline: float, attempts: int, error: KafkaError) -> None:
        """Wait for the end of the join under way, if there is one, and for a short pause in any case."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.sleep(self._backoff.delay_s(attempts, self._jitter))
                await self._synced.wait()
        except TimeoutError:
            raise DeadlineExceededError(f"committing offsets: the deadline passed; last: {error}") from error

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
