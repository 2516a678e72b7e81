"""Keeps up a membership in a classic consumer group, whose leader divides the partitions.

A `GroupSession` is a `Participation` (participation.py), whose task asks `GroupMember` (pure) for the member's
situation and does the next step: join and sync, or wait for an event. Heartbeats (heartbeats.py) are sent also during a
join, where any answer shows that the coordinator is there. A coordinator that freezes loses the connection of a waiting
join, too.

Limits: one connection to the coordinator, and one more during a rebalance.
"""

import asyncio

from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.join_group import JoinGroupResponse
from barnabas_clients.protocol.sync_group import SyncGroupResponse

from .coordinator import FIND_TIMEOUT_S, JOIN_LANE
from .handler import GroupHandler
from .heartbeats import Heartbeats, known_counts
from .member import GroupMember, GroupSettings, Identity, Situation, Verdict
from .participation import METADATA_TIMEOUT_S, Participation

__all__ = ["GroupHandler", "GroupSession", "GroupSettings"]

# As in Kafka's clients: the coordinator answers a join at the end of the rebalance timeout, and the answer travels.
JOIN_GRACE_S = 5.0


class GroupSession(Participation):
    """One member of one classic group, from `start` to `close`."""

    MEMBERSHIP_ERRORS = frozenset(
        {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.FENCED_INSTANCE_ID,
        }
    )

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
        super().__init__(
            cluster,
            handler,
            group_id=settings.group_id,
            group_instance_id=settings.group_instance_id,
            session_timeout_s=settings.session_timeout_s,
            backoff=backoff,
            jitter=jitter,
        )
        self._settings = settings
        self._member: GroupMember = GroupMember(settings)
        self._heartbeats: Heartbeats = Heartbeats(
            coordinator=self._coordinator,
            member=self._member,
            backoff=backoff,
            jitter=self._jitter,
            changed=self._note,
            log=self._log,
        )
        self._is_taken_over = False
        self._synced = asyncio.Event()
        self._synced.set()

    def resubscribe(self) -> None:
        """Note that the handler's subscription has changed, or the topics that match it."""
        self._member.request_rejoin("the subscription has changed")
        if not self._handler.subscription():
            self._interrupt()
        self._note()

    async def _on_refused_commit(self, error: KafkaError, identity: Identity, deadline: float, attempts: int) -> None:
        self._member.on_heartbeat(error.code, identity)
        self._note()
        must_say = self._is_in_handler and error.code == ErrorCode.REBALANCE_IN_PROGRESS
        if must_say or self._member.failure is not None:
            raise error
        if self._is_in_handler or self._member.is_out:
            raise self._commit_failed(error) from error
        await self._settle(self._synced, deadline, attempts, error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        super()._ended(task)
        self._synced.set()

    async def _lose(self) -> None:
        self._is_taken_over = False
        await super()._lose()

    async def _leave(self, reason: str, deadline: float | None = None) -> None:
        self._is_taken_over = False
        await super()._leave(reason, deadline)

    async def _go_on(self) -> None:
        member = self._member
        if member.situation is not Situation.IN or member.rejoin_reason is not None:
            await self._rejoin()
        else:
            await self._wake.wait()

    async def _rejoin(self) -> None:
        """Give up the partitions that must go, join, sync, and take over the assignment."""
        member = self._member
        self._is_taken_over = False
        if member.situation is Situation.IN and member.rejoin_reason:
            self._log.rejoining(member.rejoin_reason)
        self._note()
        await self._revoke(member.given_up_before(self._handler.owned(), self._handler.subscription()))
        if not self._may_go_on():
            return
        self._synced.clear()
        try:
            if await self._was_interrupted(self._join()):
                # The loop sees why. The next join must not wait for the answer to this one.
                await self._drop_join_lane()
        finally:
            self._synced.set()
        if member.situation is Situation.IN and self._may_go_on():
            await self._take_over()

    async def _take_over(self) -> None:
        member = self._member
        assigned = member.previous
        changes = member.changes(self._handler.owned(), assigned)
        await self._revoke(changes.revoked)
        # The membership may have been lost meanwhile.
        if member.situation is not Situation.IN or not self._may_go_on():
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
        while self._may_go_on():
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
        super()._note()
        # The heartbeats may have found that a join has nothing to wait for.
        if not self._is_stable() and (self._heartbeats.is_stalled or self._member.failure is not None):
            self._interrupt()
