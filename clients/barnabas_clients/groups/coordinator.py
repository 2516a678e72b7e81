"""Finds the coordinator of a group or a transactional id and asks it, for stored offsets above all.

A `Coordinator` remembers the broker that coordinates one group or transactional id, and asks it. If an answer or a
failure may mean "not here", it forgets the broker. The next request then looks for the coordinator again, with growing
pauses until its deadline, since after a broker's death a new one is elected within a second or so.

*Frozen brokers.* A broker that is stopped, or cut off without a word, closes nothing and answers nothing, while a
healthy coordinator answers at once. So every attempt has a short deadline of its own, `ATTEMPT_TIMEOUT_S`, whatever the
caller's is. While it waits, the other brokers are asked every `DOUBT_INTERVAL_S` whether there is a new coordinator. A
broker that has a successor, or lets the deadline pass, loses its connections. The exception is a join, which waits for
the rest of the group: it has a lane and a deadline of its own, and the heartbeats beside it (heartbeats.py) tell
whether the coordinator is there.

The functions below serve `Consumer` and `Admin`. They retry within their deadlines. Storing the same position twice
does no harm.

Not here: joining a group and staying in it (session.py); what a transactional id's coordinator is asked.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError, ConnectionLostError, DeadlineExceededError, UnknownLeaderError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.wire.schema import NO_UUID, Message

__all__ = [
    "GROUP_LANE",
    "JOIN_LANE",
    "LEAVE_TIMEOUT_S",
    "NOT_A_MEMBER",
    "Coordinator",
    "Membership",
    "commit_offsets",
    "delete_offsets",
    "fetch_offsets",
    "look_up_offsets",
    "send_leave",
]

GROUP_LANE = "group"
"""The lane of requests that a coordinator answers at once."""
JOIN_LANE = "join"
"""The lane of joins and syncs, which wait for other members."""
ATTEMPT_TIMEOUT_S = 5.0
"""Kafka's own limit for storing offsets (offsets.commit.timeout.ms); everything else is answered from memory."""
DOUBT_INTERVAL_S = 0.5
"""A longer answer is rare enough for one small question, and an election here is over by then, or soon."""
FIND_TIMEOUT_S = 2.0
"""Brokers answer this from memory too; ours after the election that is under way, which takes 1 s at most."""
LEAVE_TIMEOUT_S = 2.0
_GROUP_KEY_TYPE = 0
_TRANSACTION_KEY_TYPE = 1
_KEY_TYPE_VERSIONS = range(1, 7)
"""A version that lacks the type of the key would find the group of that name."""
_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""Answers that may mean that the coordinator is another broker."""

T = TypeVar("T")


class Membership(NamedTuple):
    """The member that commits, in its generation. The defaults stand for no member: only an empty group admits them."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NOT_A_MEMBER = Membership()


class Coordinator:
    """The coordinator of one group. Any number of tasks may use it; each sends at most one search at a time.

    It may also be that of a transactional id, which then stands in `group_id` (`of_transactions`).
    """

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self._key_type = _GROUP_KEY_TYPE
        self.node_id: int | None = None
        """The broker, or None if it has to be looked for."""
        self.on_found: Callable[[int], None] | None = None
        """Called with the broker whenever it was found."""
        self._suspect: int | None = None
        self._turn = 0
        self._found = asyncio.Event()
        # The number of requests that wait at the moment, and the question to other brokers on their behalf.
        self._waiting = 0
        self._question: asyncio.Task[None] | None = None

    @classmethod
    def of_transactions(cls, cluster: Cluster, transactional_id: str) -> Self:
        """Return the coordinator of a transactional id."""
        coordinator = cls(cluster, transactional_id)
        coordinator._key_type = _TRANSACTION_KEY_TYPE
        return coordinator

    @property
    def subject(self) -> str:
        """What it coordinates, for people."""
        return f"{'transactional id' if self._key_type else 'group'} {self.group_id}"

    async def find(self, deadline: float) -> int:
        """Return the coordinator's node id; asks one broker if it is unknown.

        Raises:
            KafkaError: the broker asked could not say, or may not. ClientError: it did not answer.
        """
        if self.node_id is not None:
            return self.node_id
        self.node_id = await self._look_up(deadline, self._suspect)
        self._suspect = None
        self._found.set()
        if self.on_found is not None:
            self.on_found(self.node_id)
        return self.node_id

    async def wait_found(self) -> int:
        """Return the coordinator's node id when another task has found it. The caller sets the deadline."""
        while self.node_id is None:
            await self._found.wait()
        return self.node_id

    async def ask(
        self,
        message: Message,
        deadline: float,
        attempt_s: float | None = None,
        lane: str = GROUP_LANE,
        versions: range | None = None,
    ) -> Any:
        """Ask the coordinator once, for at most `attempt_s` (None: `ATTEMPT_TIMEOUT_S`).

        The caller judges the answer. `judge` has the rule for the coordinator's own errors.

        Raises:
            ClientError: no answer came; the coordinator has been forgotten if that is its fault.
        """
        node_id = await self.find(deadline)
        limit_s = ATTEMPT_TIMEOUT_S if attempt_s is None else attempt_s
        left_s = deadline - _now()
        try:
            async with self._doubts(node_id) if lane == GROUP_LANE else contextlib.nullcontext():
                return await self.cluster.ask_broker(node_id, message, max(0.0, min(left_s, limit_s)), lane, versions)
        except DeadlineExceededError:
            # A shorter deadline of the caller says nothing about the broker.
            if left_s >= limit_s:
                await self.give_up(node_id)
            raise
        except (ConnectionLostError, UnknownLeaderError):
            self.forget(node_id)
            raise

    def forget(self, node_id: int | None) -> None:
        """Forget the coordinator, unless that has happened since `node_id` was asked. The search asks others first."""
        if node_id is not None and self.node_id == node_id:
            self.node_id = None
            self._suspect = node_id
            self._found.clear()

    async def give_up(self, node_id: int) -> None:
        """Forget a broker that does not answer, and drop its connections: requests there would wait in vain.

        The one for metadata goes too, or the broker would be asked for its own successor.
        """
        self.forget(node_id)
        because = f"it does not answer as the coordinator of {'transactions' if self._key_type else 'a group'}"
        # This may be called for requests in the last lane: when it goes they end, and so may their question.
        for lane in (JOIN_LANE, "", GROUP_LANE):
            await self.cluster.drop(
                node_id,
                lane,
                because,
            )

    async def forget_if_moved(self, error_code: int) -> bool:
        """Forget the coordinator, and return true, if the code of an answer says that it is elsewhere.

        A join that waits at the wrong broker waits in vain, so it loses its connection.
        """
        if error_code not in _ELSEWHERE:
            return False
        if (node_id := self.node_id) is not None:
            self.forget(node_id)
            await self.cluster.drop(node_id, JOIN_LANE)
        return True

    def judge(self, error_code: int, subject: str = "") -> None:
        """Raise for an error code, and forget the coordinator if the code says that it is elsewhere."""
        if error_code in _ELSEWHERE:
            self.forget(self.node_id)
        if error_code:
            raise error_for(error_code, subject or self.subject)

    async def retry(
        self, what: str, timeout_s: float, attempt: Callable[[float], Awaitable[T]], topics: Collection[str] = ()
    ) -> T:
        """Call `attempt` with the deadline until it returns or fails for good.

        Raises:
            DeadlineExceededError: no attempt succeeded within `timeout_s`; names `what`, the group and the last
            failure.
        """
        return await self.cluster.retry(f"{what} of {self.subject}", timeout_s, attempt, topics)

    async def _look_up(self, deadline: float, suspect: int | None) -> int:
        """Ask a broker for the coordinator's id: `suspect` only if there is no other."""
        key = self.group_id
        message = FindCoordinatorRequest(key=key, key_type=self._key_type, coordinator_keys=(key,))
        versions = _KEY_TYPE_VERSIONS if self._key_type else None
        limit_s = max(0.0, min(deadline - _now(), FIND_TIMEOUT_S))
        others = sorted(node_id for node_id in self.cluster.view.brokers if node_id != suspect)
        response: FindCoordinatorResponse
        if suspect is None or not others:
            response = await self.cluster.ask_any(message, limit_s, versions)
        else:
            self._turn += 1
            response = await self.cluster.ask_broker(others[self._turn % len(others)], message, limit_s, "", versions)
        error_code = response.error_code
        text = response.error_message
        node_id = response.node_id
        for row in response.coordinators:
            error_code = row.error_code
            text = row.error_message
            node_id = row.node_id
        if error_code:
            raise error_for(error_code, f"coordinator of {self.subject}" + (f": {text}" if text else ""))
        if node_id not in self.cluster.view.brokers:
            # It may be new. If the view still lacks it after this, the next attempt asks again.
            await self.cluster.refresh(timeout_s=max(0.0, min(deadline - _now(), FIND_TIMEOUT_S)))
        return node_id

    @contextlib.asynccontextmanager
    async def _doubts(self, node_id: int) -> AsyncIterator[None]:
        """Ask the others every `DOUBT_INTERVAL_S`, while a request waits, whether its broker is still the coordinator.

        If it is not, it loses its connections, and the request fails at once. One such question at a time for all
        requests; it ends with the last of them.
        """
        self._waiting += 1
        timer: asyncio.TimerHandle

        def doubt() -> None:
            nonlocal timer
            if self._question is None and self.node_id == node_id:
                self._question = asyncio.create_task(self._ask_others(node_id))
            timer = asyncio.get_running_loop().call_later(DOUBT_INTERVAL_S, doubt)

        timer = asyncio.get_running_loop().call_later(DOUBT_INTERVAL_S, doubt)
        try:
            yield
        finally:
            timer.cancel()
            self._waiting -= 1
            if self._question is not None and not self._waiting:
                self._question.cancel()

    async def _ask_others(self, node_id: int) -> None:
        try:
            found = await self._look_up(_now() + FIND_TIMEOUT_S, node_id)
            if found != node_id:
                await self.give_up(node_id)
        except (ClientError, KafkaError):
            # The waiting requests find out at their deadlines.
            return
        finally:
            self._question = None


async def commit_offsets(
    coordinator: Coordinator,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout_s: float,
    membership: Membership = NOT_A_MEMBER,
    stored: set[TopicPartition] | None = None,
) -> None:
    """Store positions of the group, in one request.

    `stored` gets every partition whose position is known to be stored, also if others were refused.

    Raises:
        KafkaError: the first refusal, which names the partition; positions of others may have been stored.
            UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS and FENCED_INSTANCE_ID are about `membership`,
            and mean that nothing was stored.
        DeadlineExceededError: no success within `timeout_s`; they may be stored, now or later.

    Cancellation: the same.
    """
    topics = sorted({partition.topic for partition in offsets})

    async def attempt(deadline: float) -> None:
        await _know_ids(coordinator.cluster, topics, deadline)
        names = {_id_of(coordinator.cluster, topic): topic for topic in topics}
        response: OffsetCommitResponse = await coordinator.ask(
            _commit_request(coordinator, offsets, membership), deadline
        )
        rows = [
            (TopicPartition(topic.name or names.get(topic.topic_id, ""), row.partition_index), row.error_code)
            for topic in response.topics
            for row in topic.partitions
        ]
        if stored is not None:
            stored.update(partition for partition, error_code in rows if not error_code)
        for partition, error_code in rows:
            coordinator.judge(error_code, f"committing {partition}")

    if offsets:
        await coordinator.retry("committing offsets", timeout_s, attempt, topics)


async def fetch_offsets(
    coordinator: Coordinator,
    partitions: Collection[TopicPartition] | None,
    timeout_s: float,
    *,
    is_stable: bool = True,
    membership: Membership = NOT_A_MEMBER,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the group's stored positions, of all partitions (None) or of some. Those without one are left out.

    Args:
        coordinator: of the group.
        partitions: which, or None.
        timeout_s: the deadline.
        is_stable: wait until no open transaction may change one of them any more (KIP-447). Readers must: they would
            work off once more what is being committed. Who only looks would wait long for a moment without any.
        membership: the member that asks, if it is one of a group of KIP-848.

    Raises:
        KafkaError: the group, or a topic, may not be read. STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID are about
            `membership`. DeadlineExceededError: no answer within `timeout_s`.
    """
    topics = sorted({partition.topic for partition in partitions or ()})

    async def attempt(deadline: float) -> dict[TopicPartition, OffsetAndMetadata]:
        await _know_ids(coordinator.cluster, topics, deadline)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        answers = await _ask_offsets(coordinator, partitions, deadline, is_stable=is_stable, membership=membership)
        for partition, answer in answers.items():
            if isinstance(answer, KafkaError):
                raise answer
            if answer is not None:
                found[partition] = answer
        return found

    if partitions is not None and not partitions:
        return {}
    return await coordinator.retry("offsets", timeout_s, attempt, topics)


async def look_up_offsets(
    coordinator: Coordinator,
    partitions: Collection[TopicPartition],
    timeout_s: float,
    membership: Membership = NOT_A_MEMBER,
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
    """Return the stored position of each partition, or the error of its refusal. Those without one are left out.

    The refusal of one partition, whose topic was deleted or may not be read, keeps no other one waiting.

    Raises:
        KafkaError: the group may not be read; STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID are about `membership`, as in
            `fetch_offsets`. DeadlineExceededError: no answer within `timeout_s`.
    """
    topics = sorted({partition.topic for partition in partitions})

    async def attempt(deadline: float) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        cluster = coordinator.cluster
        if any(topic not in cluster.view.topics for topic in topics):
            await cluster.refresh(topics, timeout_s=max(0.0, deadline - _now()))
        found: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {
            partition: _unknown_topic(cluster, partition.topic)
            for partition in partitions
            if partition.topic not in cluster.view.topics
        }
        if wanted := [partition for partition in partitions if partition not in found]:
            answers = await _ask_offsets(coordinator, wanted, deadline, membership=membership)
            for partition in wanted:
                left_out = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the offset of {partition} was left out")
                # No answer is not "nothing committed", which would send the reader to an end of the log.
                if (answer := answers.get(partition, left_out)) is not None:
                    found[partition] = answer
        return found

    return await coordinator.retry("offsets", timeout_s, attempt, topics)


async def _ask_offsets(
    coordinator: Coordinator,
    partitions: Collection[TopicPartition] | None,
    deadline: float,
    *,
    is_stable: bool = True,
    membership: Membership = NOT_A_MEMBER,
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
    """Ask once for stored positions, of all partitions (None) or of some with known topics. None means no position.

    Topics go by their ids, which are translated with the metadata of the time when the question left.
    """
    names = {_id_of(coordinator.cluster, topic): topic for topic in {topic for topic, _ in partitions or ()}}
    response: OffsetFetchResponse = await coordinator.ask(
        _fetch_request(coordinator, partitions, membership, is_stable=is_stable), deadline
    )
    coordinator.judge(response.error_code)
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = {}
    for old_topic in response.topics:
        _take_offsets(coordinator, old_topic.name, old_topic.partitions, found)
    for group in response.groups:
        coordinator.judge(group.error_code)
        known = names.keys() | coordinator.cluster.view.topics_by_id.keys()
        if any(topic.topic_id not in known for topic in group.topics if not topic.name):
            await coordinator.cluster.refresh(None, timeout_s=max(0.0, deadline - _now()))
        for topic in group.topics:
            # A topic that is gone has no name any more, and its positions are of no use.
            if name := topic.name or names.get(topic.topic_id) or _name_of(coordinator.cluster, topic.topic_id):
                _take_offsets(coordinator, name, topic.partitions, found)
    return found


async def delete_offsets(coordinator: Coordinator, partitions: Collection[TopicPartition], timeout_s: float) -> None:
    """Make the group forget positions. A partition without one is no error.

    Raises:
        KafkaError: the first refusal; GROUP_SUBSCRIBED_TO_TOPIC: members read that topic at the moment.
        DeadlineExceededError: no success within `timeout_s`; they may be gone.
    """
    request = OffsetDeleteRequest(
        group_id=coordinator.group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for topic, numbers in _by_topic(partitions).items()
        ],
    )

    async def attempt(deadline: float) -> None:
        response: OffsetDeleteResponse = await coordinator.ask(request, deadline)
        coordinator.judge(response.error_code)
        for topic in response.topics:
            for row in topic.partitions:
                coordinator.judge(row.error_code, f"deleting the offset of {topic.name}-{row.partition_index}")

    await coordinator.retry("deleting offsets", timeout_s, attempt)


async def send_leave(coordinator: Coordinator, request: Message | None, deadline: float) -> None:
    """Send a leave once, if there is one. A coordinator that does not hear it finds out by itself."""
    if request is not None and coordinator.node_id is not None:
        # We are gone, whatever the answer says.
        with contextlib.suppress(ClientError, KafkaError):
            await coordinator.ask(request, min(deadline, _now() + LEAVE_TIMEOUT_S))


def _commit_request(
    coordinator: Coordinator, offsets: Mapping[TopicPartition, OffsetAndMetadata], membership: Membership
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=coordinator.group_id,
        generation_id_or_member_epoch=membership.generation_id,
        member_id=membership.member_id,
        group_instance_id=membership.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=_id_of(coordinator.cluster, topic),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=(position := offsets[TopicPartition(topic, number)]).offset,
                        committed_leader_epoch=position.leader_epoch,
                        committed_metadata=position.metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(offsets).items()
        ],
    )


def _fetch_request(
    coordinator: Coordinator,
    partitions: Collection[TopicPartition] | None,
    membership: Membership,
    *,
    is_stable: bool,
) -> OffsetFetchRequest:
    by_topic = None if partitions is None else _by_topic(partitions)
    # Versions up to 7 have other fields for the same thing; each encoder takes its own.
    return OffsetFetchRequest(
        group_id=coordinator.group_id,
        topics=None
        if by_topic is None
        else [OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in by_topic.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=coordinator.group_id,
                member_id=membership.member_id or None,
                member_epoch=membership.generation_id,
                topics=None
                if by_topic is None
                else [
                    OffsetFetchRequestTopics(
                        name=topic, topic_id=_id_of(coordinator.cluster, topic), partition_indexes=numbers
                    )
                    for topic, numbers in by_topic.items()
                ],
            )
        ],
        require_stable=is_stable,
    )


def _take_offsets(
    coordinator: Coordinator,
    topic: str,
    rows: Sequence[OffsetFetchResponsePartition] | Sequence[OffsetFetchResponsePartitions],
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None],
) -> None:
    for row in rows:
        partition = TopicPartition(topic, row.partition_index)
        if row.error_code in _ELSEWHERE:
            coordinator.judge(row.error_code, f"offset of {partition}")
        elif row.error_code:
            found[partition] = error_for(row.error_code, f"offset of {partition}")
        elif row.committed_offset < 0:
            found[partition] = None
        else:
            found[partition] = OffsetAndMetadata(row.committed_offset, row.metadata or "", row.committed_leader_epoch)


async def _know_ids(cluster: Cluster, topics: Collection[str], deadline: float) -> None:
    """Get the metadata of unknown topics first: since version 10 topics go by their ids."""
    if any(topic not in cluster.view.topics for topic in topics):
        await cluster.refresh(topics, timeout_s=max(0.0, deadline - _now()))
    for topic in topics:
        if topic not in cluster.view.topics:
            raise _unknown_topic(cluster, topic)


def _unknown_topic(cluster: Cluster, topic: str) -> KafkaError:
    return error_for(cluster.view.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic)


def _id_of(cluster: Cluster, topic: str) -> bytes:
    view = cluster.view.topics.get(topic)
    return NO_UUID if view is None or view.topic_id is None else view.topic_id


def _name_of(cluster: Cluster, topic_id: bytes) -> str:
    view = cluster.view.topics_by_id.get(topic_id)
    return "" if view is None else view.name


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _now() -> float:
    return asyncio.get_running_loop().time()
