"""Puts the parts of a `Consumer` together, and takes them apart again.

The public class checks and delegates. The parts here live longer than one call: the connections, the fetcher, the
membership, and the two tasks that run beside the application (regular commits, and the watch over new topics and
partitions). `close` ends them all, whatever the network does.

*Ending.* First come the steps that wait for brokers, which have the deadline: storing finished offsets, and leaving the
group. Then everything is closed, which waits for nobody. A cancellation cuts the first part short, and not the second.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from barnabas_clients.arguments import text
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientClosedError, ClientError, DeadlineExceededError
from barnabas_clients.groups.consumer_session import ConsumerGroupSettings
from barnabas_clients.groups.coordinator import Coordinator, commit_offsets, fetch_offsets, look_up_offsets
from barnabas_clients.groups.offsets_to_send import GroupMember, GroupOffsets
from barnabas_clients.groups.session import GroupSettings
from barnabas_clients.place_arguments import deadline_s, partition_of
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_clients.wording import shown_name, shown_reason
from barnabas_raftlog.tasks import Tasks, report

from .errors import NotAssignedError
from .fetcher import Fetcher
from .membership import Callbacks, GroupReader
from .partition_queue import COMMITTED, PartitionQueue
from .reader import Reader
from .settings import EARLIEST, RESETS, ConsumerSettings
from .subscription import NOTHING, Subscription
from .topic_places import TopicPlaces

__all__ = ["ConsumerCore"]

logger = logging.getLogger("barnabas_clients.consumer")

AUTOMATIC_COMMIT_S = 10.0
"""Long enough for several elections of a new coordinator."""
ATTEMPT_S = 1.0
TOLD_MAX = 20
"""The number of partitions that a message names."""
NEW_TOPICS = "looking for new topics"
NEW_TOPIC_S = 1.0
"""The time between two looks for a topic that was subscribed to and is missing."""


class ConsumerCore:
    """The parts of one consumer. `subscription` says what to read; `group` is the membership, if there is one."""

    def __init__(
        self, bootstrap: str | Sequence[str], client_id: str, settings: ConsumerSettings, callbacks: Callbacks
    ) -> None:
        self.settings = settings = settings.check()
        self.subscription = NOTHING
        self.cluster = Cluster(
            bootstrap,
            client_id=text("client_id", client_id, may_be_empty=True),
            request_timeout_s=settings.request_timeout_s,
            timeout_s=settings.timeout_s,
            metadata_max_age_s=settings.metadata_max_age_s,
        )
        self.reader = Reader(settings.outage_s, settings.max_poll_interval_s / 3)
        self.fetcher = Fetcher(
            self.cluster,
            settings.fetch,
            self.reader.wake,
            reset=RESETS[settings.auto_offset_reset],
            committed=self._look_up_committed,
            request_timeout_s=settings.request_timeout_s,
        )
        self.reader.attach(self.fetcher, self._check_reading, self._check_group, self._polled, self._trouble)
        self.group: GroupReader | None = None
        self._coordinator = None if settings.group_id is None else Coordinator(self.cluster, settings.group_id)
        self._callbacks = callbacks
        self._tasks = Tasks(report)
        self._regular_commit: asyncio.Task[None] | None = None
        self._is_watching = False
        self._trouble_told: set[str] = set()
        self.commits = 0
        self.commit_failures = 0
        self._rebalances_before = 0
        self._places = TopicPlaces()
        self._is_opened = False
        self._is_open = False
        self._is_closed = False
        self._is_saying_goodbye = False
        self._shutdown: asyncio.Task[None] | None = None

    # Beginning.

    async def open(self, subscription: Subscription) -> None:
        """Connect, and subscribe if a subscription is given.

        Raises:
            RuntimeError: it was opened before. ClientClosedError: it is closed.
        """
        if self._is_closed:
            raise ClientClosedError("the consumer is closed; make another one")
        if self._is_opened:
            raise RuntimeError("the consumer was started before; make another one")
        self._is_opened = True
        deadline = self.deadline(None)
        await self.cluster.__aenter__()
        self._is_open = True
        try:
            if self.settings.commits:
                self._tasks.spawn(self._commit_regularly())
            if subscription.is_by_topic:
                await self.subscribe(subscription, max(0.0, deadline - self.now()))
        except BaseException:
            await self.close(0.0)
            raise

    def check_open(self, *, or_closing: bool = False) -> None:
        """Raise unless calls make sense now. With `or_closing` they do while the group is left, in callbacks."""
        if self._is_closed and not (or_closing and self._is_saying_goodbye):
            raise ClientClosedError("the consumer is closed")
        if not self._is_open:
            raise ClientClosedError("the consumer is not open yet; use it as `async with`, or start it")

    def deadline(self, timeout_s: float | None) -> float:
        """Return the time at which a call with this `timeout_s` must end."""
        return self.now() + self.limit(timeout_s)

    def limit(self, timeout_s: float | None) -> float:
        """Return how long a call with this `timeout_s` may take.

        Raises:
            TypeError, ValueError: it is not a length of time.
        """
        given = deadline_s(timeout_s)
        return self.settings.timeout_s if given is None else given

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def rebalances(self) -> int:
        """The number of generations of its group that this consumer has been in."""
        return self._rebalances_before + (self.group.session.rebalances if self.group is not None else 0)

    def known_lag(self) -> int | None:
        """Return how many offsets the application is behind, as of the last answers; None if that is not known."""
        self.reader.settle()
        queues = self.fetcher.queues.values()
        if any(queue.position < 0 or queue.high_watermark < 0 for queue in queues):
            return None
        return sum(max(0, queue.high_watermark - queue.position) for queue in queues)

    # Topics and partitions.

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the state of a partition that is read.

        Raises:
            NotAssignedError: it is not read. TypeError, ValueError: it is not a partition.
        """
        named = partition_of(partition)
        queue = self.fetcher.queues.get(named)
        if queue is None:
            raise NotAssignedError(named)
        return queue

    async def subscribe(self, subscription: Subscription, timeout_s: float) -> None:
        """Read other topics. The group is told, or joined.

        Raises:
            ValueError: only a group of the newer protocol has a coordinator that matches patterns.
        """
        self.check_pattern(subscription)
        topics = None if subscription.pattern is not None else subscription.topics
        await self.cluster.refresh(topics, timeout_s=timeout_s)
        if not self.subscription.is_by_topic:
            await self._give_up(self.fetcher.queues.keys())
        self.subscription = subscription
        if self.settings.group_id is None:
            self._set_partitions(subscription.partitions_in(self.cluster.view), self._reset)
            self._places.begin(self.fetcher.queues, self.cluster.view)
        elif self.group is not None:
            self.group.session.resubscribe()
        else:
            self.group = GroupReader(
                self.cluster,
                self._group_settings(self.settings.group_id),
                self.reader,
                self.fetcher,
                topics=lambda: self.subscription.topics_in(self.cluster.view),
                server_pattern=lambda: self.subscription.server_pattern,
                callbacks=self._callbacks,
                commit_finished=self.commit_finished if self.settings.commits else None,
                tell_uncommitted=self.tell_uncommitted,
            )
            self.group.session.start()
        if not self._is_watching and (self.settings.group_id is None or subscription.pattern is not None):
            self._is_watching = True
            self._tasks.spawn(self._watch_topics())

    async def unsubscribe(self, timeout_s: float) -> None:
        """Read nothing. Leaves the group within the deadline, or without a goodbye."""
        self.subscription = NOTHING
        try:
            if self.group is not None:
                await self.group.session.close(timeout_s)
            elif self.settings.commits:
                await self.commit_finished()
        finally:
            self._rebalances_before = self.rebalances
            self.group = None
            self._set_partitions(frozenset(), COMMITTED)

    async def assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Read exactly these partitions. Finished offsets of others are committed before."""
        await self._give_up(self.fetcher.queues.keys() - partitions)
        self.subscription = Subscription(partitions=partitions)
        self._set_partitions(partitions, self._reset if self.settings.group_id is None else COMMITTED)

    @property
    def _reset(self) -> int:
        """The place to begin without a group. If there is no policy, COMMITTED finds nothing and says so."""
        reset = RESETS[self.settings.auto_offset_reset]
        return COMMITTED if reset is None else reset

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading partitions that are read without a membership, after their finished offsets are committed."""
        leaving = frozenset(partitions)
        try:
            if leaving and self.settings.commits:
                await self.commit_finished(leaving)
        finally:
            self._set_partitions(frozenset(self.fetcher.queues.keys() - leaving), COMMITTED)

    def _set_partitions(self, wanted: frozenset[TopicPartition], reset: int) -> None:
        gone = self.fetcher.queues.keys() - wanted
        self.tell_uncommitted(gone)
        for partition in gone:
            self.reader.forget(self.fetcher.queues[partition])
        self.fetcher.remove(gone)
        self.fetcher.add(wanted, reset)

    def _follow_topics(self) -> None:
        """Read new partitions, and go on with those that are back; without a group only. See topic_places.py."""
        wanted = self.subscription.partitions_in(self.cluster.view)
        leaving = self._places.leaving(wanted, self.fetcher.queues, self.cluster.view, self.now())
        for partition in leaving:
            self.reader.forget(self.fetcher.queues[partition])
        self.fetcher.remove(leaving)
        for queue in self._places.returning(wanted, self.cluster.view):
            self.fetcher.put_back(queue)
        # A new partition is read from its beginning, so that none of its records is missed.
        self.fetcher.add(wanted, EARLIEST)

    def check_pattern(self, subscription: Subscription) -> None:
        """Raise `ValueError` for a pattern that nobody would match."""
        settings = self.settings
        if subscription.server_pattern is not None and (settings.group_id is None or settings.is_classic):
            raise ValueError("server_pattern needs a group_id and group_protocol='consumer'; or take pattern")

    def _group_settings(self, group_id: str) -> GroupSettings | ConsumerGroupSettings:
        settings = self.settings
        if not settings.is_classic:
            return ConsumerGroupSettings(
                group_id=group_id,
                group_instance_id=settings.group_instance_id,
                rebalance_timeout_s=settings.max_poll_interval_s,
                remote_assignor=settings.group_remote_assignor,
                rack=settings.fetch.rack,
            )
        return GroupSettings(
            group_id=group_id,
            group_instance_id=settings.group_instance_id,
            session_timeout_s=settings.session_timeout_s,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            rebalance_timeout_s=settings.max_poll_interval_s,
            assignors=settings.assignors,
        )

    def _check_reading(self) -> None:
        if self.subscription.is_nothing:
            raise ValueError("there is nothing to read: give topics= or pattern=, or call subscribe or assign")

    def _check_group(self) -> None:
        if self.group is not None:
            self.group.check()

    @property
    def trouble(self) -> str:
        """What keeps a consumer from reading, for people: of the cluster, or why it has no partitions."""
        return self.cluster.trouble or self._trouble()

    def _trouble(self) -> str:
        """Say what is wrong if there are no partitions. A member without any may also be an idle one."""
        if self.fetcher.queues:
            return ""
        if self.group is None:
            missing = self._missing_topics()
            return f"there is no topic {', '.join(sorted(missing))}" if missing else ""
        if self.group.session.coordinator_id is not None:
            return ""
        return f"group {self.settings.group_id}: no coordinator can be found"

    def _missing_topics(self) -> frozenset[str]:
        return self.subscription.topics - self.cluster.view.topics.keys()

    def _polled(self) -> None:
        if self.group is not None:
            self.group.session.polled()

    # Offsets of the group.

    async def commit_given(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        """Store the offsets that the application gives. It has finished so far: no automatic commit stores less now."""
        for partition, given in offsets.items():
            queue = self.fetcher.queues.get(partition)
            if queue is not None and given.offset <= queue.position:
                queue.finished = max(queue.finished, given.offset)
        if self._regular_commit is not None:
            # It stores less, and if its attempt fails it might be repeated after this one has succeeded.
            self._regular_commit.cancel()
        await self.commit(offsets, timeout_s)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        """Store offsets, as a member if there is a membership. An empty commit asks no broker."""
        if not offsets and self.settings.group_id is not None:
            return
        stored: set[TopicPartition] = set()
        try:
            if self.group is not None:
                await self.group.session.commit(offsets, timeout_s, stored)
            elif self._coordinator is not None:
                await commit_offsets(self._coordinator, offsets, timeout_s, stored=stored)
            else:
                raise ValueError("without a group_id there is nowhere to commit to")
            self.commits += 1
        except (ClientError, KafkaError):
            self.commit_failures += 1
            raise
        finally:
            # A refusal of some partitions says nothing of the others.
            for partition in stored & self.fetcher.queues.keys():
                self.fetcher.queues[partition].committed = offsets[partition].offset

    def go_back(self, partitions: Collection[TopicPartition]) -> None:
        """Read partitions again from the positions that the group has stored."""
        for partition in partitions:
            queue = self.queue(partition)
            self.reader.forget(queue)
            queue.begin_by(COMMITTED)
        self.reader.wake()
        self.fetcher.pump()

    def to_send(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> GroupOffsets:
        """Return offsets for a transaction that stores them.

        Raises:
            ValueError: there is no group, or offsets are committed outside of transactions, too.
            CommitFailedError: this consumer is not a member at the moment.
        """
        group_id = self.settings.group_id
        if group_id is None:
            raise ValueError("without a group_id there is nowhere to store offsets")
        if self.settings.auto_commit:
            raise ValueError("auto_commit=True stores offsets outside of transactions; make the consumer without it")
        member = GroupMember(group_id) if self.group is None else GroupMember(group_id, *self.group.session.identity)
        return GroupOffsets(member, offsets, partial(self._note_stored, offsets))

    def _note_stored(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for partition, stored in offsets.items():
            if (queue := self.fetcher.queues.get(partition)) is not None:
                queue.committed = stored.offset
                if stored.offset <= queue.position:
                    queue.finished = max(queue.finished, stored.offset)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that the group has stored; none without a group."""
        if self.group is not None:
            return await self.group.session.committed(partitions, timeout_s)
        if self._coordinator is None:
            return {}
        return await fetch_offsets(self._coordinator, partitions, timeout_s)

    async def _look_up_committed(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | KafkaError]:
        if self.group is not None:
            return await self.group.session.look_up(partitions, timeout_s)
        if self._coordinator is None:
            return {}
        return await look_up_offsets(self._coordinator, partitions, timeout_s)

    async def commit_finished(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Store finished offsets. A failure is only logged, because the next commit stores the same.

        Takes `AUTOMATIC_COMMIT_S` at most, since a rebalance may be waiting for it. Offsets of a topic that the
        metadata lacks come last and have one attempt: the topic may exist nevertheless, because brokers hear of topics
        at different times, and if it was deleted it holds nothing up for longer.
        """
        deadline = self.now() + min(AUTOMATIC_COMMIT_S, self.settings.request_timeout_s)
        while offsets := self._to_commit(partitions, is_known=True):
            left_s = deadline - self.now()
            try:
                await self.commit(offsets, min(left_s, ATTEMPT_S))
            except DeadlineExceededError as error:
                if left_s > ATTEMPT_S:
                    continue
                self._tell_trouble(self._auto_commit, error)
            except (ClientError, KafkaError) as error:
                self._tell_trouble(self._auto_commit, error)
            else:
                self._tell_end_of_trouble(self._auto_commit)
            break
        if offsets := self._to_commit(partitions, is_known=False):
            try:
                await self.commit(offsets, ATTEMPT_S)
            except (ClientError, KafkaError) as error:
                # It is tried again every time. When the partitions leave, `tell_uncommitted` has the last word.
                logger.debug("automatic commit of group %s: %s", self.settings.group_id, error)

    @property
    def _auto_commit(self) -> str:
        return f"automatic commit of group {shown_name(self.settings.group_id or '')}"

    def _tell_trouble(self, what: str, error: Exception) -> None:
        """Log that something done again and again has failed, unless it was logged since it last succeeded."""
        if what not in self._trouble_told:
            self._trouble_told.add(what)
            logger.warning("%s: %s; trying again", what, shown_reason(error))

    def _tell_end_of_trouble(self, what: str) -> None:
        if what in self._trouble_told:
            self._trouble_told.discard(what)
            logger.info("%s: works again", what)

    def _to_commit(
        self, partitions: Collection[TopicPartition] | None, *, is_known: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        missing = self.cluster.view.errors
        found = self.reader.finished_offsets(partitions)
        return {
            partition: stored for partition, stored in found.items() if (partition.topic not in missing) is is_known
        }

    def tell_uncommitted(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Log the finished offsets of partitions that leave now, if some could not be committed."""
        if not self.settings.commits:
            return
        # Of a partition of which nothing was read, nothing will be read again. Its position may have been found only
        # while those of the others were being committed.
        queues = self.fetcher.queues
        left = {
            partition: stored
            for partition, stored in self.reader.finished_offsets(partitions).items()
            if queues[partition].found != stored.offset
        }
        if left:
            text = ", ".join(
                f"{partition} up to {stored.offset}" for partition, stored in sorted(left.items())[:TOLD_MAX]
            )
            more = f" and {len(left) - TOLD_MAX} more" if len(left) > TOLD_MAX else ""
            logger.warning(
                "group %s: not committed when the partitions were given up, so it will be read again: %s%s",
                self.settings.group_id,
                text,
                more,
            )

    # Beside the application.

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.auto_commit_interval_s)
            self._regular_commit = commit = self._tasks.start(self.commit_finished())
            await asyncio.wait({commit})
            self._regular_commit = None
            if not commit.cancelled():
                commit.result()

    async def _watch_topics(self) -> None:
        """Find new topics that a pattern matches, and new partitions to read without a group."""
        while True:
            is_waiting = self._missing_topics() or self._places.is_waiting(self.now())
            limit_s = NEW_TOPIC_S if is_waiting else math.inf
            await asyncio.sleep(min(self.settings.metadata_max_age_s, limit_s))
            before = self.subscription.topics_in(self.cluster.view)
            try:
                topics = None if self.subscription.pattern is not None else self.subscription.topics
                await self.cluster.refresh(topics, timeout_s=self.settings.request_timeout_s)
            except ClientError as error:
                # The log has told already that no broker answers.
                logger.debug("%s: %s", NEW_TOPICS, error)
                continue
            except KafkaError as error:
                self._tell_trouble(NEW_TOPICS, error)
                continue
            self._tell_end_of_trouble(NEW_TOPICS)
            if not self.subscription.is_by_topic:
                continue
            if self.group is None:
                self._follow_topics()
            elif self.subscription.topics_in(self.cluster.view) != before:
                self.group.session.resubscribe()

    # Ending.

    async def close(self, timeout_s: float) -> None:
        """End everything, as the module says. A second call waits for the first."""
        if self._shutdown is None:
            self._is_closed = True
            self.reader.close()
            self._shutdown = asyncio.ensure_future(self._shut_down(timeout_s))
        shutdown = self._shutdown
        try:
            await asyncio.shield(shutdown)
        except asyncio.CancelledError:
            if not shutdown.done():
                shutdown.cancel()
                await asyncio.wait({shutdown})
            raise

    async def _shut_down(self, timeout_s: float) -> None:
        try:
            await self._say_goodbye(timeout_s)
        finally:
            closing = asyncio.ensure_future(self._close_everything())
            # Nothing in there waits for anybody else, so a cancellation meanwhile waits for two turns of the loop.
            await asyncio.wait({closing})

    async def _say_goodbye(self, timeout_s: float) -> None:
        self._is_saying_goodbye = True
        try:
            async with asyncio.timeout(timeout_s):
                if self.group is not None:
                    await self.group.session.close(timeout_s)
                elif self.settings.commits:
                    await self.commit_finished()
        except (ClientError, KafkaError) as error:
            logger.warning("closing: %s", error)
        except TimeoutError:
            logger.warning("closing: the last commit and the goodbye were not answered within %g s", timeout_s)
        finally:
            self._is_saying_goodbye = False
            self.tell_uncommitted()
            if self.group is not None and self.group.failure is not None:
                # There will be no call that could raise it.
                logger.warning("closing: a callback has raised %s", shown_reason(repr(self.group.failure)))

    async def _close_everything(self) -> None:
        await self._tasks.close()
        await self.fetcher.close()
        await self.cluster.close()
