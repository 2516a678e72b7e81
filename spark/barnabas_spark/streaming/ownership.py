"""Makes a query the only member of its consumer group, and keeps the query's positions there.

A query with the option `consumerGroup` joins the group as consumers do, so the group's coordinator and tools know it.
Its assignor, `EXCLUSIVE`, gives everything to one member: to that which has it already, else to the first. Another
query that joins gets nothing. It waits `PATIENCE_S`, because the owner may just be leaving, and then it fails: two
queries with one group would overwrite each other's positions. The coordinator refuses commits of anybody who is not a
member, in its generation, so no lease and no clock of ours decides who owns the group.

*A driver that dies* leaves when its process is asked to end. If it is killed, its successor waits until the
coordinator gives the dead member up, `REBALANCE_S`. *A driver that stalls* for as long loses the group to a query that
waits for it, and fails when it wakes; without such a query it gets the group back.

*The first offset.* Before the first batch the positions are stored with a note: `FIRST`, how many they are, and the
id of the topic. While all the notes are there, `first` returns the positions, so that a batch that has to be repeated
begins where it began. The first commit replaces them.

Limits: one connection and a heartbeat every `HEARTBEAT_S`. Positions are stored by one request at a time, the newest
ones; older ones that still wait are left out. A commit that fails is a warning, since Spark's checkpoint has the truth.
"""

import asyncio
import logging
import uuid
from collections.abc import Collection, Mapping

from barnabas_clients.assignors.assignor import Assignment, RebalanceProtocol, Subscription, in_member_order
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.groups.session import GroupSession, GroupSettings
from barnabas_clients.protocol.errors import ErrorCode, KafkaError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.errors import BarnabasError

from .continuation import Heads
from .offsets import Offsets

__all__ = ["EXCLUSIVE", "GroupTakenError", "Ownership", "first_in", "notes_of"]

logger = logging.getLogger(__name__)

FIRST = "barnabas-spark: first offset"
SESSION_S = 10.0
HEARTBEAT_S = 2.0
REBALANCE_S = 6.0
# An owner hears of a newcomer with its next heartbeat. One that leaves has left by then, too.
PATIENCE_S = 3.0
POLL_S = 1.0
CLOSE_S = 2.0


class GroupTakenError(BarnabasError):
    """Another query, or a consumer, is a member of the group."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"another query uses the consumer group {group} at the same time. "
            "Give each query a consumerGroup of its own, or stop the other one"
        )


class _Exclusive:
    """Gives all partitions to one member."""

    name = "barnabas-spark-exclusive"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def user_data(self, previous: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        order = in_member_order(members)
        owner = max(order, key=lambda member: (bool(members[member].owned), members[member].generation_id))
        everything = [
            TopicPartition(topic, partition)
            for topic in sorted(members[owner].topics)
            # A member without partitions would look like one that owns nothing.
            for partition in range(max(1, partition_counts.get(topic, 0)))
        ]
        return {member: everything if member == owner else [] for member in order}


EXCLUSIVE = _Exclusive()


class Ownership:
    """The membership of one query. Owned by one loop, but for `check`. Also the handler of its session."""

    def __init__(self, cluster: Cluster, group: str, topics: Collection[str]) -> None:
        self._group = group
        self._topics = frozenset(topics)
        self._owned: frozenset[TopicPartition] = frozenset()
        self._decided = asyncio.Event()
        self._taken: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        settings = GroupSettings(
            group,
            session_timeout_s=SESSION_S,
            heartbeat_interval_s=HEARTBEAT_S,
            rebalance_timeout_s=REBALANCE_S,
            assignors=(EXCLUSIVE,),
        )
        self._session = GroupSession(cluster, settings, self)
        self._polling: asyncio.Task[None] | None = None
        self._storing: asyncio.Task[None] | None = None
        self._waiting: dict[TopicPartition, OffsetAndMetadata] | None = None

    async def acquire(self, timeout_s: float) -> None:
        """Join, and return when the group is this query's.

        Raises:
            GroupTakenError: it is another's. TimeoutError: no coordinator decided within `timeout_s`.
            KafkaError: the group may not be joined.
        """
        self._session.start()
        self._polling = asyncio.create_task(self._poll())
        async with asyncio.timeout(timeout_s):
            await self._decided.wait()
        self.check()

    def check(self) -> None:
        """Raise if the group is, or was meanwhile, another's. May be called from any thread."""
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Store what waits to be stored, and leave the group."""
        await self.flush(CLOSE_S)
        if self._taken is not None:
            self._taken.cancel()
        for task in (self._polling, self._storing):
            if task is not None:
                task.cancel()
        await self._session.close(CLOSE_S)

    # Positions.

    async def first(self, heads: Heads, timeout_s: float) -> Offsets | None:
        """Return the first offset that was stored for these topics and not replaced; None if there is none."""
        stored = await self._session.committed(None, timeout_s)
        return first_in({(key.topic, key.partition): position for key, position in stored.items()}, heads)

    async def keep_first(self, first: Offsets, timeout_s: float) -> None:
        """Store the first offset, with notes.

        Raises:
            KafkaError, ClientError: it may not be stored, or only in part. Then it does not count.
        """
        notes = notes_of(first)
        offsets = {TopicPartition(*key): OffsetAndMetadata(at, notes[key]) for key, at in first.positions.items()}
        await self._session.commit(offsets, timeout_s)

    def store(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Store positions soon, in place of those that still wait."""
        self._waiting = {TopicPartition(*key): OffsetAndMetadata(offset) for key, offset in positions.items()}
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())

    async def flush(self, timeout_s: float) -> None:
        """Return when everything that waits is stored, or after `timeout_s`."""
        if self._storing is not None:
            await asyncio.wait({self._storing}, timeout=timeout_s)

    async def _store(self) -> None:
        while (positions := self._waiting) is not None:
            self._waiting = None
            try:
                await self._session.commit(positions, SESSION_S)
            except (ClientError, KafkaError) as error:
                logger.warning("the positions of group %s were not stored: %s", self._group, error)

    async def _poll(self) -> None:
        """Keep the session from taking a long micro-batch for an absent user."""
        while self._session.failure is None:
            self._session.polled()
            await asyncio.sleep(POLL_S)
        failure = self._session.failure
        is_inconsistent = isinstance(failure, KafkaError) and failure.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        self._fail(GroupTakenError(self._group) if is_inconsistent else failure)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._decided.set()

    # The handler of the session.

    def subscription(self) -> frozenset[str]:
        return self._topics

    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        self._owned -= partitions

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        self._owned -= partitions

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        self._owned = whole
        if self._taken is not None:
            self._taken.cancel()
            self._taken = None
        if whole:
            self._decided.set()
        else:
            loop = asyncio.get_running_loop()
            self._taken = loop.call_later(PATIENCE_S, self._fail, GroupTakenError(self._group))


def notes_of(first: Offsets) -> dict[tuple[str, int], str]:
    """Return the note of each position of a first offset."""
    count = len(first.positions)
    return {
        key: f"{FIRST}, one of {count}, of topic {uuid.UUID(bytes=first.topic_ids.get(key[0], bytes(16)))}"
        for key in first.positions
    }


def first_in(stored: Mapping[tuple[str, int], OffsetAndMetadata], heads: Heads) -> Offsets | None:
    """Return the first offset among stored positions; None unless all of it is there, and of the topics of today.

    A part of it has no meaning: to store the rest failed, and no batch began with it, or it was replaced.
    """
    kept = {key: position for key, position in stored.items() if position.metadata.startswith(FIRST)}
    topics = {topic for topic, _ in heads.ends}
    ids = {topic: topic_id for topic, topic_id in heads.topic_ids.items() if topic in {topic for topic, _ in kept}}
    first = Offsets({key: position.offset for key, position in kept.items() if key[0] in topics}, ids)
    notes = notes_of(first)
    return first if kept and {key: position.metadata for key, position in kept.items()} == notes else None
