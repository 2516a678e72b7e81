"""Looks positions in logs up, and moves the starts of logs: functions over a `Cluster`.

The leader of a partition knows its positions. All functions group the partitions by leader and ask all leaders at the
same time, with one request each. They keep the answers, and ask again about the rest until the deadline. So a leader
that has moved costs one more request about its partitions, not about all of them.

Keys are `TopicPartition` or plain (topic, partition) tuples; the answer has the same keys.

`offsets_request` and `offsets_in` make and read one such request, for callers who ask one leader once.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_clients.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_raftlog.wire.schema import Message

from .values import ListedOffset

__all__ = [
    "ask_leaders",
    "delete_records",
    "left_s",
    "list_epoch_ends",
    "list_offsets",
    "offsets_in",
    "offsets_request",
]

Key = TypeVar("Key", bound=tuple[str, int])


async def list_offsets(
    cluster: Cluster,
    partitions: Mapping[Key, int],
    timeout_s: float,
    *,
    read_committed: bool = False,
) -> dict[Key, ListedOffset]:
    """Look positions up. `partitions` maps (topic, partition) to an `OffsetSpec` or a timestamp in ms.

    Raises:
        KafkaError: a partition may not be read.
        DeadlineExceededError: some partition had no leader that could answer within `timeout_s`, or does not exist.
    """
    found: dict[tuple[str, int], ListedOffset] = {}

    def request(wanted: Sequence[tuple[str, int]]) -> ListOffsetsRequest:
        return offsets_request(cluster.view, {key: specs[key] for key in wanted}, read_committed=read_committed)

    def take(response: ListOffsetsResponse) -> list[KafkaError]:
        refused = []
        for key, answer in offsets_in(response).items():
            if isinstance(answer, KafkaError):
                refused.append(answer)
            else:
                found[key] = answer
        return refused

    specs: Mapping[Any, int] = partitions
    await ask_leaders(cluster, "listing offsets", specs.keys(), found, timeout_s, request, take)
    return {key: found[key] for key in partitions}


def offsets_request(view: ClusterView, specs: Mapping[Key, int], *, read_committed: bool) -> ListOffsetsRequest:
    """Return the request to the leader of partitions that `view` knows. Values are as in `list_offsets`."""
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), spec in specs.items():
        epoch = view.topics[topic].partitions[partition].leader_epoch
        row = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=int(spec))
        by_topic.setdefault(topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
    )


def offsets_in(response: ListOffsetsResponse) -> dict[tuple[str, int], ListedOffset | KafkaError]:
    """Return a leader's answer for each partition: a position, or the error of its refusal."""
    return {
        (topic.name, row.partition_index): error_for(row.error_code, f"{topic.name}-{row.partition_index}")
        if row.error_code
        else ListedOffset(row.offset, row.timestamp, row.leader_epoch)
        for topic in response.topics
        for row in topic.partitions
    }


async def list_epoch_ends(cluster: Cluster, epochs: Mapping[Key, int], timeout_s: float) -> dict[Key, int]:
    """Return where each partition's log ends for a reader of a leader epoch (KIP-320); -1 if it knows none so old.

    A log whose answer lies before a position that was reached in that epoch no longer contains the position.

    Raises:
        KafkaError: a partition may not be read.
        DeadlineExceededError: some partition had no leader that could answer within `timeout_s`, or does not exist.
    """
    found: dict[tuple[str, int], int] = {}
    wanted_epochs: Mapping[Any, int] = epochs

    def request(wanted: Sequence[tuple[str, int]]) -> OffsetForLeaderEpochRequest:
        by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
        for topic, partition in wanted:
            row = OffsetForLeaderPartition(partition=partition, leader_epoch=wanted_epochs[topic, partition])
            row.current_leader_epoch = cluster.view.topics[topic].partitions[partition].leader_epoch
            by_topic.setdefault(topic, []).append(row)
        return OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=rows) for name, rows in by_topic.items()]
        )

    def take(response: OffsetForLeaderEpochResponse) -> list[KafkaError]:
        refused = []
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code:
                    refused.append(error_for(row.error_code, f"{topic.topic}-{row.partition}"))
                else:
                    found[topic.topic, row.partition] = row.end_offset
        return refused

    await ask_leaders(cluster, "looking epochs up", wanted_epochs.keys(), found, timeout_s, request, take)
    return {key: found[key] for key in epochs}


async def delete_records(cluster: Cluster, before: Mapping[Key, int], timeout_s: float) -> dict[Key, int]:
    """Delete every record before an offset, from each partition that `before` maps to one. Return the new starts.

    An offset of -1 stands for the high watermark. An offset before the start of the log changes nothing, and the answer
    has the start.

    Raises:
        KafkaError: an offset is beyond the end of its partition (OFFSET_OUT_OF_RANGE); others may be deleted.
        DeadlineExceededError: some partition had no leader that could answer in time, or does not exist. Deletions
            that were asked for may happen.
    """
    found: dict[tuple[str, int], int] = {}
    limits: Mapping[Any, int] = before

    def request(wanted: Sequence[tuple[str, int]]) -> DeleteRecordsRequest:
        by_topic: dict[str, list[DeleteRecordsPartition]] = {}
        for topic, partition in wanted:
            row = DeleteRecordsPartition(partition_index=partition, offset=limits[topic, partition])
            by_topic.setdefault(topic, []).append(row)
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
            timeout_ms=int(timeout_s * 1000),
        )

    def take(response: DeleteRecordsResponse) -> list[KafkaError]:
        refused = []
        for topic in response.topics:
            for row in topic.partitions:
                name = f"{topic.name}-{row.partition_index}"
                if row.error_code:
                    refused.append(
                        error_for(row.error_code, f"{name}: before {limits[topic.name, row.partition_index]}")
                    )
                else:
                    found[topic.name, row.partition_index] = row.low_watermark
        return refused

    await ask_leaders(cluster, "deleting records", limits.keys(), found, timeout_s, request, take)
    return {key: found[key] for key in before}


async def ask_leaders(
    cluster: Cluster,
    what: str,
    partitions: Collection[tuple[str, int]],
    found: Mapping[tuple[str, int], object],
    timeout_s: float,
    request: Callable[[Sequence[tuple[str, int]]], Message],
    take: Callable[[Any], list[KafkaError]],
) -> None:
    """Ask the leaders of `partitions` until `take` has put an answer for each into `found`.

    `take` returns the refusals. A refusal that no retry mends ends the call.
    """

    async def attempt(deadline: float) -> None:
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for topic, partition in sorted(set(partitions) - found.keys()):
            leader = await cluster.find_leader(topic, partition, deadline)
            by_leader.setdefault(leader.node_id, []).append((topic, partition))
        answers = await asyncio.gather(
            *(
                cluster.ask_broker(node_id, request(wanted), left_s(deadline))
                for node_id, wanted in sorted(by_leader.items())
            ),
            return_exceptions=True,
        )
        failures: list[BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                failures.append(answer)
            else:
                failures += take(answer)
        if not failures and not found.keys() >= set(partitions):
            failures.append(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: a broker left partitions out"))
        # A failure that no retry mends goes first.
        failures.sort(key=lambda failure: isinstance(failure, ClientError | KafkaError) and failure.retriable)
        if failures:
            raise failures[0]

    deadline = asyncio.get_running_loop().time() + timeout_s
    topics = sorted({topic for topic, _ in partitions})
    if unknown := [topic for topic in topics if topic not in cluster.view.topics]:
        await cluster.refresh(unknown, timeout_s=timeout_s)
    await cluster.retry(what, left_s(deadline), attempt, topics)


def left_s(deadline: float) -> float:
    """Return the seconds left until `deadline`, in the loop's time. Rounded, because messages quote them."""
    return max(0.0, round(deadline - asyncio.get_running_loop().time(), 3))
