"""Keeps up a membership in a group whose coordinator divides the partitions (KIP-848).

A `ConsumerSession` is a `Participation` (participation.py). Heartbeats (consumer_heartbeats.py) bring what the
coordinator has assigned, and the session's task hands it to the application: first it gives up what has gone, and the
next heartbeat says so; then it takes over what has come. Between rebalances nothing stops, and a member never waits
for others.

*Commits.* The epoch of a member may change while a commit is on its way. STALE_MEMBER_EPOCH asks for another attempt
after the next heartbeat, in the handler's calls, too, because heartbeats go on meanwhile. The same holds for looking
up where to begin.

*Topics* are assigned by their ids. Their names come from the metadata, which is asked for every `NAMES_INTERVAL_S`
while one is missing; the partitions of other topics are not held up.

Limits: one connection to the coordinator.

Not here: which of the coordinator's assignors there are, and what patterns it knows (RE2).
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .consumer_heartbeats import ConsumerHeartbeats
from .consumer_member import Changes, ConsumerGroupSettings, ConsumerMember, Wishes
from .coordinator import NOT_A_MEMBER, Membership, fetch_offsets, look_up_offsets
from .handler import PatternHandler
from .member import Identity
from .participation import METADATA_TIMEOUT_S, Participation

__all__ = ["ConsumerGroupSettings", "ConsumerSession"]

NAMES_INTERVAL_S = 1.0
R = TypeVar("R")


class ConsumerSession(Participation):
    """One member of one group of KIP-848, from `start` to `close`."""

    MEMBERSHIP_ERRORS = frozenset(
        {
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.ILLEGAL_GENERATION,
        }
    )

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerGroupSettings,
        handler: PatternHandler,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 - an immutable value
        jitter: Jitter | None = None,
        member_id: str | None = None,
    ) -> None:
        """Raise `ValueError` for settings that make no sense. `member_id` is made up if it is None."""
        super().__init__(
            cluster,
            handler,
            group_id=settings.group_id,
            group_instance_id=settings.group_instance_id,
            session_timeout_s=None,
            backoff=backoff,
            jitter=jitter,
        )
        self._handler: PatternHandler = handler
        self._member: ConsumerMember = ConsumerMember(settings, member_id or str(uuid.uuid4()))
        self._heartbeats: ConsumerHeartbeats = ConsumerHeartbeats(
            coordinator=self._coordinator,
            member=self._member,
            wishes=self._wishes,
            backoff=backoff,
            jitter=self._jitter,
            changed=self._note,
            new_epoch=self._on_new_epoch,
            log=self._log,
        )

    def resubscribe(self) -> None:
        """Note that the handler's subscription has changed, or the topics that match it."""
        self._heartbeats.look()
        self._interrupt()
        self._note()

    async def committed(
        self, partitions: Collection[TopicPartition] | None, timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return await self._read(
            lambda left_s, reader: fetch_offsets(self._coordinator, partitions, left_s, membership=reader), timeout_s
        )

    async def look_up(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        return await self._read(
            lambda left_s, reader: look_up_offsets(self._coordinator, partitions, left_s, reader), timeout_s
        )

    async def _read(self, ask: Callable[[float, Membership], Awaitable[R]], timeout_s: float) -> R:
        """Ask for offsets, as the member that this is at the moment, until that is the one that the coordinator knows.

        A process that is told that it is no member hears the rest with the next heartbeat.
        """
        deadline = self._now() + timeout_s
        attempts = 0
        while True:
            try:
                return await ask(max(0.0, deadline - self._now()), self._reader())
            except KafkaError as error:
                if error.code not in self.MEMBERSHIP_ERRORS:
                    raise
                await self._after_heartbeat(deadline, attempts, error)
                attempts += 1

    def _reader(self) -> Membership:
        """Return the member as which offsets are looked up. Who is none at the moment may look all the same."""
        identity = self._member.identity
        return NOT_A_MEMBER if identity.generation_id < 0 else Membership(*identity)

    async def _on_refused_commit(self, error: KafkaError, identity: Identity, deadline: float, attempts: int) -> None:
        del identity
        if error.code != ErrorCode.STALE_MEMBER_EPOCH:
            self._heartbeats.urge()
            raise self._commit_failed(error) from error
        turn = self._member.turn
        await self._after_heartbeat(deadline, attempts, error)
        if turn != self._member.turn:
            raise self._commit_failed(error) from error

    async def _after_heartbeat(self, deadline: float, attempts: int, error: KafkaError) -> None:
        """Wait until the next heartbeat is answered, which is sent at once."""
        answered = self._heartbeats.answered
        is_beating = self._task is not None and not self._task.done() and not self._member.is_out
        if is_beating:
            self._heartbeats.urge()
        await self._settle(answered if is_beating else None, deadline, attempts, error)

    # The session's task.

    async def _go_on(self) -> None:
        member = self._member
        if member.is_out:
            member.begin_join()
            self._heartbeats.look()
        elif not member.is_reconciled:
            await self._reconcile(member.changes(self._name_of))
        else:
            await self._wake.wait()

    async def _reconcile(self, changes: Changes) -> None:
        """Do one step towards what is assigned; the loop sees what comes next."""
        if changes.going:
            await self._revoke(changes.revoked)
            self._member.given_up(changes)
            self._heartbeats.look()
        elif changes.coming:
            # Said before it is so: who did not own them could be asked to give them up, and would not hear of it.
            added = changes.added
            whole = self._member.owned | added
            self._member.taken(changes)
            self._heartbeats.look()
            await self._tell(self._handler.assign(added, whole))
            self._log.assigned(added, whole)
        elif changes.nameless:
            await self._was_interrupted(self._learn_names(changes.nameless))

    async def _learn_names(self, topic_ids: Collection[bytes]) -> None:
        """Ask for the names of topics; if one is still missing, wait for an event or for the next attempt's time."""
        # All topics, if the coordinator finds them by a pattern.
        topics = None if self._handler.server_pattern() is not None else self._handler.subscription()
        try:
            await self._cluster.refresh(topics, timeout_s=METADATA_TIMEOUT_S)
        except (ClientError, KafkaError) as error:
            if not error.retriable:
                raise
        if any(self._name_of(topic_id) is None for topic_id in topic_ids):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NAMES_INTERVAL_S):
                    await self._wake.wait()

    # Helpers.

    def _is_subscribed(self) -> bool:
        return self._handler.server_pattern() is not None or super()._is_subscribed()

    def _wishes(self) -> Wishes:
        return Wishes(self._handler.subscription(), self._handler.server_pattern())

    def _name_of(self, topic_id: bytes) -> str | None:
        view = self._cluster.view.topics_by_id.get(topic_id)
        return None if view is None else view.name

    def _on_new_epoch(self) -> None:
        self.rebalances += 1

    def _note(self) -> None:
        super()._note()
        if self._member.is_out:
            self._heartbeats.release()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        super()._ended(task)
        self._heartbeats.release()
