"""Makes, lists, checks and deletes named snapshots: functions over a `Cluster`. Barnabas alone has them.

A snapshot is a name for ranges of offsets, one for each partition of some topics. The brokers keep it until somebody
deletes it; the records are not kept with it (`snapshot_ranges`). Whoever makes a snapshot first wins: later calls with
the name are answered with the one that is there.

A call whose answer was lost is repeated with the same id, so a snapshot that this very call made is reported as made.

Cancellation: a snapshot may be made, or deleted, nevertheless.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import UnsupportedVersionError
from barnabas_clients.protocol.create_snapshot import (
    CreateSnapshotRequest,
    CreateSnapshotResponse,
    SnapshotTopicRanges,
)
from barnabas_clients.protocol.delete_snapshot import DeleteSnapshotRequest, DeleteSnapshotResponse
from barnabas_clients.protocol.describe_snapshots import DescribeSnapshotsRequest, DescribeSnapshotsResponse
from barnabas_clients.protocol.errors import ErrorCode, ResourceNotFoundError, error_for
from barnabas_clients.protocol.snapshot_rows import (
    DescribedSnapshot,
    DescribedSnapshotTopic,
    SnapshotRange,
)
from barnabas_clients.protocol.snapshot_states import SnapshotTopicState
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.wire.schema import Message

from .attempts import Attempts, raise_for
from .offsets import list_epoch_ends, list_offsets
from .snapshot_ranges import TOPIC_GONE, LogState, NamedSnapshot, PinnedRange, RangeCheck, SnapshotTopic, checked
from .topics import known_topics
from .values import ListedOffset, OffsetSpec

__all__ = [
    "Made",
    "check_snapshot",
    "create_snapshot",
    "delete_snapshot",
    "describe_snapshot",
    "list_snapshots",
    "ranges_now",
]


class Made(NamedTuple):
    """The snapshot that has the name now, and whether this call made it."""

    snapshot: NamedSnapshot
    created: bool


async def ranges_now(cluster: Cluster, topics: Sequence[str], timeout_s: float) -> dict[bytes, dict[int, PinnedRange]]:
    """Return, by topic id, all that can be read of some topics now. All ends are looked up at once, before the starts.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
    """
    views = await known_topics(cluster, topics, timeout_s)
    keys = [TopicPartition(view.name, partition) for view in views for partition in view.partitions]
    ends = await list_offsets(cluster, dict.fromkeys(keys, OffsetSpec.LATEST), timeout_s)
    begins = await list_offsets(cluster, dict.fromkeys(keys, OffsetSpec.EARLIEST), timeout_s)
    found: dict[bytes, dict[int, PinnedRange]] = {}
    for view in views:
        if view.topic_id is None:
            raise _unsupported("its topics have no ids")
        of_topic = [(partition, TopicPartition(view.name, partition)) for partition in view.partitions]
        found[view.topic_id] = {partition: _range_now(begins[key], ends[key]) for partition, key in of_topic}
    return found


async def create_snapshot(
    cluster: Cluster,
    name: str,
    ranges: Mapping[bytes, Mapping[int, PinnedRange]],
    timeout_s: float,
    *,
    best_effort: bool = False,
) -> Made:
    """Keep ranges, by topic id and partition, under a name; or return the snapshot that has it.

    Raises:
        InvalidConfigError: a topic is compacted, and it is not to be a best effort.
        InvalidRequestError: the name, or a range, is impossible.
        PolicyViolationError: it is too large, or there are too many.
        UnsupportedVersionError: the brokers have no snapshots.
        protocol.errors.UnsupportedVersionError: a broker of the cluster is too old.
    """
    request = CreateSnapshotRequest(
        name=name,
        snapshot_id=uuid.uuid4().bytes,
        best_effort=best_effort,
        topics=[
            SnapshotTopicRanges(
                topic_id=topic_id,
                partitions=[
                    SnapshotRange(
                        partition=partition,
                        leader_epoch=one.leader_epoch,
                        start_offset=one.start_offset,
                        end_offset=one.end_offset,
                    )
                    for partition, one in sorted(partitions.items())
                ],
            )
            for topic_id, partitions in ranges.items()
        ],
        timeout_ms=int(timeout_s * 1000),
    )

    def check(response: CreateSnapshotResponse) -> None:
        raise_for(response.error_code, f"snapshot {name}", response.error_message)

    response: CreateSnapshotResponse = await _asked(cluster, request, timeout_s, check)
    return Made(_only(response.snapshots), response.created)


async def describe_snapshot(cluster: Cluster, name: str, timeout_s: float) -> NamedSnapshot:
    """Return one snapshot with its ranges.

    Raises:
        ResourceNotFoundError: there is none of that name.
        UnsupportedVersionError: the brokers have no snapshots.
    """
    return _only(await _described(cluster, name, timeout_s))


async def list_snapshots(cluster: Cluster, timeout_s: float) -> list[NamedSnapshot]:
    """Return all snapshots, sorted by name, without their ranges.

    Raises:
        UnsupportedVersionError: the brokers have no snapshots.
    """
    return list(map(_snapshot, await _described(cluster, None, timeout_s)))


async def delete_snapshot(cluster: Cluster, name: str, timeout_s: float, *, snapshot_id: bytes | None = None) -> bytes:
    """Delete a snapshot, and return its id. With `snapshot_id` only if it is that one, and not a successor.

    Raises:
        ResourceNotFoundError: there is none of that name, or it is another one.
        UnsupportedVersionError: the brokers have no snapshots.
    """
    if snapshot_id is None:
        snapshot_id = (await describe_snapshot(cluster, name, timeout_s)).snapshot_id
    request = DeleteSnapshotRequest(name=name, snapshot_id=snapshot_id, timeout_ms=int(timeout_s * 1000))
    attempts = Attempts()

    def check(response: DeleteSnapshotResponse) -> None:
        row = (response.error_code, f"snapshot {name}", response.error_message)
        attempts.check([row], ErrorCode.RESOURCE_NOT_FOUND)

    try:
        await cluster.retry(
            f"deleting snapshot {name}", timeout_s, lambda deadline: attempts.ask(cluster, request, deadline, check)
        )
    except UnsupportedVersionError as error:
        raise _unsupported(str(error)) from None
    return snapshot_id


async def check_snapshot(
    cluster: Cluster, snapshot: NamedSnapshot, timeout_s: float, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, RangeCheck]:
    """Return what is left of the ranges of some partitions, or of all: logs' starts, ends and epochs are looked up.

    Raises:
        DeadlineExceededError: a partition has no leader that answers.
    """
    wanted = {
        TopicPartition(topic.name, partition): (topic, pinned)
        for topic in snapshot.topics
        for partition, pinned in topic.partitions.items()
        if partitions is None or (topic.name, partition) in partitions
    }
    found = {key: TOPIC_GONE[topic.state] for key, (topic, _) in wanted.items() if topic.state in TOPIC_GONE}
    ranges = {key: pinned for key, (_, pinned) in wanted.items() if key not in found}
    logs = await _logs(cluster, ranges, timeout_s)
    found |= {key: checked(pinned, logs[key]) for key, pinned in ranges.items()}
    return {key: found[key] for key in wanted}


async def _logs(
    cluster: Cluster, ranges: Mapping[TopicPartition, PinnedRange], timeout_s: float
) -> dict[TopicPartition, LogState]:
    with_epochs = {key: pinned.leader_epoch for key, pinned in ranges.items() if pinned.leader_epoch >= 0}
    begins = await list_offsets(cluster, dict.fromkeys(ranges, OffsetSpec.EARLIEST), timeout_s)
    ends = await list_offsets(cluster, dict.fromkeys(ranges, OffsetSpec.LATEST), timeout_s)
    epoch_ends = await list_epoch_ends(cluster, with_epochs, timeout_s)
    return {key: LogState(begins[key].offset, ends[key].offset, epoch_ends.get(key)) for key in ranges}


async def _described(cluster: Cluster, name: str | None, timeout_s: float) -> list[DescribedSnapshot]:
    def check(response: DescribeSnapshotsResponse) -> None:
        if response.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise ResourceNotFoundError(response.error_message or f"there is no snapshot '{name}'")
        raise_for(response.error_code, "describing snapshots", response.error_message)

    request = DescribeSnapshotsRequest(name=name, timeout_ms=int(timeout_s * 1000))
    response: DescribeSnapshotsResponse = await _asked(cluster, request, timeout_s, check)
    return response.snapshots


def _only(rows: Sequence[DescribedSnapshot]) -> NamedSnapshot:
    if len(rows) != 1:
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker tells of {len(rows)} snapshots, and not of one")
    return _snapshot(rows[0])


async def _asked(cluster: Cluster, request: Message, timeout_s: float, check: Any) -> Any:
    try:
        return await cluster.request_controller(request, timeout_s, check)
    except UnsupportedVersionError as error:
        raise _unsupported(str(error)) from None


def _unsupported(reason: str) -> UnsupportedVersionError:
    text = f"this cluster has no named snapshots, as Apache Kafka and older versions of Barnabas have none ({reason})"
    return UnsupportedVersionError(text)


def _snapshot(row: DescribedSnapshot) -> NamedSnapshot:
    return NamedSnapshot(
        name=row.name,
        snapshot_id=row.snapshot_id,
        created_at_ms=row.created_at_ms,
        best_effort=row.best_effort,
        topics_count=row.topics_count,
        partitions_count=row.partitions_count,
        topics=tuple(map(_topic, row.topics)),
    )


def _topic(row: DescribedSnapshotTopic) -> SnapshotTopic:
    ranges = {one.partition: PinnedRange(one.start_offset, one.end_offset, one.leader_epoch) for one in row.partitions}
    return SnapshotTopic(row.name, row.topic_id, SnapshotTopicState(row.state), row.is_compacted, ranges)


def _range_now(begin: ListedOffset, end: ListedOffset) -> PinnedRange:
    # Retention may have moved the start past the end that was seen.
    return PinnedRange(min(begin.offset, end.offset), end.offset, end.leader_epoch)
