"""Decides what to fetch next, and divides an answer among the partitions. Pure.

*Which partitions.* A partition is fetched if its position is known, it is not paused, it is not being fetched already,
it was not refused a moment ago, and less than a full share of it (`partition_fetch_bytes`) waits to be read. So the
next share travels while the last is worked on. More than that would cost memory and win nothing.

*How much.* A request asks for no more than the room that is left in the buffer, where each request in flight counts
with the most that it may bring. If nothing is buffered and nothing in flight, one request may always go, so that a
record larger than the buffer arrives (KIP-74: brokers send at least one batch).

*Fairness.* A broker serves partitions in the order of the request, until `max_bytes` is reached. So a request names
them in the order in which they were last served.

*Which broker* (KIP-392). The leader is asked. If a rack is given, the leader may name a replica there instead. That is
asked until it refuses, falls silent, or some minutes have passed. Then the leader is asked again, for a while without
naming a rack, so that it answers by itself.

*Two lanes to a broker.* A fetch for idle partitions waits at the broker for up to `fetch_max_wait_s`. A partition
whose backlog is worked off in that time must not wait with them. So a second request may be in flight, only for
partitions that the last answer brought something from (or that have just been positioned).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas_clients.cluster.topic_view import BrokerAddress
from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas_clients.protocol.leader_hints import NodeEndpoint
from barnabas_raftlog.wire.schema import NO_UUID

from .partition_queue import PartitionQueue

__all__ = ["FetchSettings", "Share", "fetch_request", "fetchable", "hinted_address", "shares", "source_of"]


class FetchSettings(NamedTuple):
    """Kafka's `fetch.max.wait.ms`, `fetch.min.bytes`, `fetch.max.bytes` and `max.partition.fetch.bytes`, and others.

    `buffer_bytes` bounds what is buffered and in flight together.
    """

    max_wait_s: float = 0.5
    min_bytes: int = 1
    max_bytes: int = 4 << 20
    partition_bytes: int = 1 << 20
    buffer_bytes: int = 32 << 20
    read_committed: bool = False
    rack: str = ""


class Share(NamedTuple):
    """The part of an answer that is about one partition. `row` is None if the answer lacks it."""

    queue: PartitionQueue
    row: PartitionData | None


def fetchable(queue: PartitionQueue, settings: FetchSettings) -> bool:
    """Say whether more of this partition is wanted: it is fetched then, if nothing is in the way."""
    return (
        queue.fetch_offset >= 0
        and not queue.is_paused
        and not queue.is_stuck
        and (not queue.chunks or queue.buffered_bytes < settings.partition_bytes)
    )


def source_of(queue: PartitionQueue, view: ClusterView, now_s: float) -> BrokerAddress | None:
    """Return the broker to ask for a partition; None while its leader is unknown."""
    if queue.preferred_id >= 0 and now_s < queue.preferred_until_s:
        preferred = view.brokers.get(queue.preferred_id)
        if preferred is not None:
            return preferred
        queue.leave_preferred(now_s)
    return view.leader(*queue.partition)


def fetch_request(
    queues: Sequence[PartitionQueue], view: ClusterView, settings: FetchSettings, bytes_max: int, now_s: float
) -> FetchRequest:
    """Return the request for `queues`, all of one broker. It brings at most `bytes_max`, or one larger batch."""
    topics: dict[str, FetchTopic] = {}
    leader_only = any(now_s < queue.leader_only_until_s for queue in queues)
    for queue in sorted(queues, key=lambda queue: queue.served):
        name, number = queue.partition
        known = view.topics.get(name)
        topic = topics.get(name)
        if topic is None:
            topic_id = NO_UUID if known is None or known.topic_id is None else known.topic_id
            topic = topics[name] = FetchTopic(topic=name, topic_id=topic_id)
        part = known.partitions.get(number) if known is not None else None
        topic.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=-1 if part is None else part.leader_epoch,
                fetch_offset=queue.fetch_offset,
                last_fetched_epoch=queue.fetched_epoch,
                partition_max_bytes=queue.bytes_max,
            )
        )
    return FetchRequest(
        max_wait_ms=int(settings.max_wait_s * 1000),
        min_bytes=settings.min_bytes,
        max_bytes=bytes_max,
        isolation_level=int(settings.read_committed),
        topics=list(topics.values()),
        rack_id="" if leader_only else settings.rack,
    )


def shares(response: FetchResponse, request: FetchRequest, queues: Sequence[PartitionQueue]) -> list[Share]:
    """Pair the partitions asked for with their rows, by topic id if the answer has no names."""
    names = {topic.topic_id: topic.topic for topic in request.topics}
    rows = {
        (topic.topic or names.get(topic.topic_id, ""), row.partition_index): row
        for topic in response.responses
        for row in topic.partitions
    }
    return [Share(queue, rows.get(queue.partition)) for queue in queues]


def hinted_address(leader_id: int, endpoints: Iterable[NodeEndpoint]) -> BrokerAddress | None:
    """Return the address of the leader that an answer names, if the answer has it (KIP-951)."""
    for node in endpoints:
        if node.node_id == leader_id:
            return BrokerAddress(node.node_id, node.host, node.port, node.rack)
    return None
