"""Administration of topics, as functions over a `Cluster`.

Each function takes a deadline, retries what is retriable within it, and raises the `KafkaError` of the first topic
that was refused. Creating is not idempotent by nature: an attempt whose answer was lost may have succeeded, and the
next one then fails with TOPIC_ALREADY_EXISTS. The functions here take that answer for success when an earlier attempt
of the same call may have got through, and likewise UNKNOWN_TOPIC_OR_PARTITION when deleting.

Not here yet: reading and changing configurations, groups, ACLs, quotas. They come with the full `Admin`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from .cluster_view import TopicView
from .connections import Cluster
from .errors import ClientError
from .protocol.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from .protocol.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from .protocol.errors import ErrorCode, KafkaError, error_for
from .protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

__all__ = [
    "ListedOffset",
    "NewTopic",
    "OffsetSpec",
    "create_topic",
    "create_topics",
    "delete_topics",
    "describe_topics",
    "list_offsets",
    "list_topics",
]


class NewTopic(NamedTuple):
    """A topic to create. -1 leaves partitions or replicas to the cluster's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class OffsetSpec(IntEnum):
    """Positions that ListOffsets knows by a negative timestamp. Anything from 0 up is a timestamp in ms."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class ListedOffset(NamedTuple):
    """Where a partition stands. `offset` and `timestamp_ms` are -1 when no record is that late."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], timeout_s: float, *, validate_only: bool = False
) -> None:
    """Create topics; returns when the controller has decided, which is before every leader is elected.

    Raises:
        KafkaError: the first refusal, naming the topic. Topics before and after it may exist.
        DeadlineExceededError: no answer in time; the topics may exist.
    """
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in sorted(topic.configs.items())],
            )
            for topic in topics
        ],
        timeout_ms=int(timeout_s * 1000),
        validate_only=validate_only,
    )
    attempts = _Attempts()

    def check(response: CreateTopicsResponse) -> None:
        attempts.check(
            [(row.error_code, row.name, row.error_message) for row in response.topics], ErrorCode.TOPIC_ALREADY_EXISTS
        )

    await cluster.retry("creating topics", timeout_s, lambda deadline: attempts.ask(cluster, request, deadline, check))


async def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 30.0,
) -> TopicView:
    """Create one topic and return it once every partition has a leader that clients can be sent to."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    await create_topics(cluster, [NewTopic(name, partitions, replication_factor, configs or {})], timeout_s)

    async def led(until: float) -> TopicView:
        left_s = until - asyncio.get_running_loop().time()
        view = (await cluster.refresh((name,), timeout_s=left_s)).topics.get(name)
        missing = ErrorCode.LEADER_NOT_AVAILABLE
        if view is None:
            raise error_for(cluster.view.errors.get(name, missing), name)
        if any(cluster.view.leader(name, partition) is None for partition in view.partitions):
            raise error_for(missing, name)
        return view

    return await cluster.retry(f"leaders of {name}", deadline - asyncio.get_running_loop().time(), led)


async def delete_topics(cluster: Cluster, names: Sequence[str], timeout_s: float) -> None:
    """Delete topics by name.

    Raises:
        KafkaError: the first refusal, naming the topic; others may be gone.
    """
    # Version 6 and older ones have different fields for the same thing; each encoder takes its own.
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=int(timeout_s * 1000),
    )
    attempts = _Attempts()

    def check(response: DeleteTopicsResponse) -> None:
        attempts.check(
            [(row.error_code, row.name or "a topic", row.error_message) for row in response.responses],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    await cluster.retry("deleting topics", timeout_s, lambda deadline: attempts.ask(cluster, request, deadline, check))


async def list_topics(cluster: Cluster, timeout_s: float, *, include_internal: bool = False) -> list[TopicView]:
    """Return every topic, sorted by name."""
    view = await cluster.refresh(None, timeout_s=timeout_s)
    return [topic for _, topic in sorted(view.topics.items()) if include_internal or not topic.is_internal]


async def describe_topics(cluster: Cluster, names: Sequence[str], timeout_s: float) -> list[TopicView]:
    """Return the named topics in the order of the names.

    Raises:
        KafkaError: one of them does not exist.
    """
    view = await cluster.refresh(names, timeout_s=timeout_s)
    for name in names:
        if name not in view.topics:
            raise error_for(view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)
    return [view.topics[name] for name in names]


async def list_offsets(
    cluster: Cluster,
    partitions: Mapping[tuple[str, int], int],
    timeout_s: float,
    *,
    read_committed: bool = False,
) -> dict[tuple[str, int], ListedOffset]:
    """Look positions up: `partitions` maps (topic, partition) to an `OffsetSpec` or a timestamp in ms.

    Leaders are asked at the same time, one request each; what a leader cannot answer yet is asked again.

    Raises:
        KafkaError: a partition does not exist, or may not be read.
        DeadlineExceededError: some partition had no leader that could answer within `timeout_s`.
    """
    found: dict[tuple[str, int], ListedOffset] = {}

    async def attempt(deadline: float) -> None:
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for topic, partition in sorted(partitions.keys() - found.keys()):
            leader = await cluster.find_leader(topic, partition, deadline)
            by_leader.setdefault(leader.node_id, []).append((topic, partition))
        left_s = deadline - asyncio.get_running_loop().time()
        answers = await asyncio.gather(
            *(
                cluster.ask_broker(node_id, _offsets_request(cluster, wanted, partitions, read_committed), left_s)
                for node_id, wanted in sorted(by_leader.items())
            ),
            return_exceptions=True,
        )
        failures: list[BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                failures.append(answer)
            else:
                failures += _take_offsets(answer, found)
        # A failure that no retry mends goes first.
        failures.sort(key=lambda failure: isinstance(failure, ClientError | KafkaError) and failure.retriable)
        if failures:
            raise failures[0]

    topics = sorted({topic for topic, _ in partitions})
    if unknown := [topic for topic in topics if topic not in cluster.view.topics]:
        await cluster.refresh(unknown, timeout_s=timeout_s)
    await cluster.retry("listing offsets", timeout_s, attempt, topics)
    return found


def _offsets_request(
    cluster: Cluster, wanted: Sequence[tuple[str, int]], partitions: Mapping[tuple[str, int], int], read_committed: bool
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in wanted:
        epoch = cluster.view.topics[topic].partitions[partition].leader_epoch
        by_topic.setdefault(topic, []).append(
            ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=epoch, timestamp=int(partitions[topic, partition])
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
    )


def _take_offsets(response: ListOffsetsResponse, found: dict[tuple[str, int], ListedOffset]) -> list[KafkaError]:
    """Put what was answered into `found` and return what was refused."""
    refused = []
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code:
                refused.append(error_for(row.error_code, f"{topic.name}-{row.partition_index}"))
            else:
                found[topic.name, row.partition_index] = ListedOffset(row.offset, row.timestamp, row.leader_epoch)
    return refused


class _Attempts:
    """Remembers whether an earlier attempt of a call may have been carried out although nobody saw its answer."""

    def __init__(self) -> None:
        self._may_be_done = False

    async def ask(self, cluster: Cluster, request: Any, deadline: float, check: Any) -> None:
        left_s = deadline - asyncio.get_running_loop().time()
        try:
            response = await cluster.ask_controller(request, left_s)
        except ClientError as error:
            self._may_be_done |= error.may_be_done
            raise
        check(response)

    def check(self, rows: Sequence[tuple[int, str, str | None]], done: ErrorCode) -> None:
        """Raise for the first refusal in (code, name, message); `done` is none if it was asked for before."""
        for code, name, message in rows:
            if not (code == done and self._may_be_done):
                _raise_for(code, name, message)


def _raise_for(code: int, subject: str, message: str | None = None) -> None:
    if code:
        raise error_for(code, f"{subject}: {message}" if message else subject)
