"""Creates, grows, deletes and describes topics, and describes the cluster: functions over a `Cluster`.

Each function has a deadline, retries the errors that are retriable within it, and raises the `KafkaError` of the first
topic that was refused. Creating is not idempotent by nature: an attempt whose answer was lost may have succeeded, and
then the next one fails with TOPIC_ALREADY_EXISTS. The functions here take that answer for success if an earlier attempt
of the same call may have got through (no answer came, or REQUEST_TIMED_OUT). So they do with UNKNOWN_TOPIC_OR_PARTITION
when they delete, and with INVALID_PARTITIONS when they add partitions.

Cancellation, for all of them: the change may happen nevertheless, and nothing is left behind here.

`Admin` (client.py) has these functions as methods, together with those of its other modules: configurations
(configs.py), offsets (offsets.py), moves of partitions (reassignments.py) and groups (groups.py).
"""

import asyncio
from collections.abc import Mapping, Sequence

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.topic_view import BrokerAddress, TopicView
from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.place_arguments import configs_of
from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_clients.protocol.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_clients.protocol.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_clients.protocol.errors import ErrorCode, UnknownTopicOrPartitionError, error_for

from .attempts import Attempts, raise_for
from .offsets import left_s
from .values import ClusterDescription, NewTopic

__all__ = [
    "create_partitions",
    "create_topic",
    "create_topics",
    "delete_topics",
    "describe_cluster",
    "describe_topics",
    "known_topics",
    "list_topics",
]

SPREAD_S = 1.0


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], timeout_s: float, *, validate_only: bool = False
) -> None:
    """Create topics. Returns when the controller has decided, which is before every leader is elected.

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
                configs=[
                    CreatableTopicConfig(name=name, value=value)
                    for name, value in sorted(configs_of("configs", topic.configs, may_be_none=True).items())
                ],
            )
            for topic in topics
        ],
        timeout_ms=int(timeout_s * 1000),
        validate_only=validate_only,
    )
    attempts = Attempts()

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
    configs: Mapping[str, str | int | bool | None] | None = None,
    *,
    timeout_s: float = 30.0,
) -> TopicView:
    """Create one topic, and return it when every partition has a leader that clients can be sent to."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    await create_topics(cluster, [NewTopic(name, partitions, replication_factor, configs or {})], timeout_s)
    return await _wait_led(cluster, name, 1, deadline)


async def create_partitions(
    cluster: Cluster, name: str, count: int, timeout_s: float, *, validate_only: bool = False
) -> TopicView:
    """Give a topic `count` partitions in all. Returns when every one has a leader that clients can be sent to.

    From then on records with a key go to other partitions than before: the order by key is not kept across the change.

    Raises:
        KafkaError: the topic does not exist, or has as many or more (INVALID_PARTITIONS).
        DeadlineExceededError: no answer in time, or no leaders; the partitions may be created.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=int(timeout_s * 1000),
        validate_only=validate_only,
    )
    attempts = Attempts()

    def check(response: CreatePartitionsResponse) -> None:
        attempts.check(
            [(row.error_code, row.name, row.error_message) for row in response.results], ErrorCode.INVALID_PARTITIONS
        )

    await known_topics(cluster, [name], timeout_s)
    await cluster.retry(
        f"adding partitions to {name}", timeout_s, lambda until: attempts.ask(cluster, request, until, check)
    )
    return await _wait_led(cluster, name, 1 if validate_only else count, deadline)


async def _wait_led(cluster: Cluster, name: str, count: int, deadline: float) -> TopicView:
    """Return a topic when at least `count` of its partitions are known and every one has a leader."""

    async def led(until: float) -> TopicView:
        view = (await cluster.refresh((name,), timeout_s=left_s(until))).topics.get(name)
        missing = ErrorCode.LEADER_NOT_AVAILABLE
        if view is None:
            raise error_for(cluster.view.errors.get(name, missing), name)
        if len(view.partitions) < count or any(
            cluster.view.leader(name, partition) is None for partition in view.partitions
        ):
            raise error_for(missing, name)
        return view

    return await cluster.retry(f"leaders of {name}", left_s(deadline), led)


async def delete_topics(cluster: Cluster, names: Sequence[str], timeout_s: float) -> None:
    """Delete topics by name.

    Raises:
        KafkaError: the first refusal, naming the topic; others may be gone.
    """
    # Versions up to 6 have other fields for the same thing; each encoder takes its own.
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=int(timeout_s * 1000),
    )
    attempts = Attempts()

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


async def known_topics(cluster: Cluster, names: Sequence[str], timeout_s: float) -> list[TopicView]:
    """Return the named topics. Brokers get a moment to hear of new ones.

    Without this call, the next one would ask about a missing topic until its deadline. That is right for a topic made a
    moment ago, and tiresome for a mistyped name. A second is far more than metadata takes to spread.

    Raises:
        UnknownTopicOrPartitionError: no broker has heard of one of them for `SPREAD_S`, or `timeout_s` if less.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s

    async def attempt(until: float) -> list[TopicView]:
        return await describe_topics(cluster, names, left_s(until))

    try:
        return await cluster.retry("looking topics up", min(timeout_s, SPREAD_S), attempt)
    except DeadlineExceededError as error:
        if isinstance(error.__cause__, UnknownTopicOrPartitionError):
            raise error.__cause__ from None
    # Something else was in the way, such as a broker that does not answer. That may take the whole deadline.
    return await cluster.retry("looking topics up", left_s(deadline), attempt)


async def describe_cluster(cluster: Cluster, timeout_s: float) -> ClusterDescription:
    """Ask one broker for the members of the cluster.

    Raises:
        UnsupportedVersionError: the broker is older than this question (Apache Kafka 2.8).
    """

    def check(response: DescribeClusterResponse) -> None:
        raise_for(response.error_code, "describing the cluster", response.error_message)

    found: DescribeClusterResponse = await cluster.request_any(DescribeClusterRequest(), timeout_s, check)
    brokers = sorted(BrokerAddress(row.broker_id, row.host, row.port, row.rack) for row in found.brokers)
    return ClusterDescription(found.cluster_id, found.controller_id, tuple(brokers))
