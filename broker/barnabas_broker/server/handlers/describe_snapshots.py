"""DescribeSnapshots: list named snapshots, or show one with its ranges, from this broker's own image.

The image is first brought to where the controller is: another broker may have answered the request that made a
snapshot or deleted one.
"""

from collections.abc import Generator

from barnabas_broker.coordinators.runtime.catching_up import catch_up
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.describe_snapshots import DescribeSnapshotsRequest, DescribeSnapshotsResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.snapshot_rows import (
    DescribedSnapshot,
    DescribedSnapshotTopic,
    SnapshotRange,
)
from barnabas_clients.protocol.snapshot_states import SnapshotTopicState
from barnabas_metadata_quorum.controller.commands import Refused
from barnabas_metadata_quorum.image.pinned_ranges import count_of, unpacked
from barnabas_metadata_quorum.image.records import NamedSnapshot, PinnedTopic

from .create_topics import code_of, limit_s

__all__ = ["TOPICS_SHOWN", "handle", "refuse", "shown"]

TOPICS_SHOWN = 10
"""Topics of each snapshot in a list of all."""
PIECE = 200  # rows between two yields


async def handle(broker: BrokerContext, _: Exchange, request: DescribeSnapshotsRequest) -> DescribeSnapshotsResponse:
    """Answer when this broker knows what the controller knew when it was asked."""
    try:
        await catch_up(broker.metadata, limit_s(request.timeout_ms))
    except Refused as refused:
        return DescribeSnapshotsResponse(error_code=code_of(refused.reason), error_message=in_words(refused.message))
    except TimeoutError:
        text = f"this broker has not yet heard all that the controller knows: it is at {broker.image.version}"
        return DescribeSnapshotsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)
    if request.name is None:
        return DescribeSnapshotsResponse(snapshots=await taken(_listed(broker)))
    snapshot = broker.image.named_snapshots.get(request.name)
    if snapshot is None:
        words = in_words(f"there is no snapshot '{request.name}'")
        return DescribeSnapshotsResponse(error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=words)
    return DescribeSnapshotsResponse(snapshots=[await taken(shown(broker, snapshot))])


def refuse(_: DescribeSnapshotsRequest, code: ErrorCode) -> DescribeSnapshotsResponse:
    """Answer with `code`."""
    return DescribeSnapshotsResponse(error_code=code)


def _listed(broker: BrokerContext) -> Generator[None, None, list[DescribedSnapshot]]:
    """Describe all snapshots; there are a thousand at most."""
    rows = []
    for _, snapshot in sorted(broker.image.named_snapshots.items()):
        row = _row(snapshot)
        row.topics = [_topic(broker, topic) for topic in snapshot.topics[:TOPICS_SHOWN]]
        rows.append(row)
        yield
    return rows


def shown(broker: BrokerContext, snapshot: NamedSnapshot) -> Generator[None, None, DescribedSnapshot]:
    """Describe one snapshot with its ranges, in pieces."""
    row = _row(snapshot)
    for topic in snapshot.topics:
        described = _topic(broker, topic)
        for number, one in enumerate(unpacked(topic.ranges), 1):
            described.partitions.append(
                SnapshotRange(
                    partition=one.partition,
                    leader_epoch=one.leader_epoch,
                    start_offset=one.start_offset,
                    end_offset=one.end_offset,
                )
            )
            if not number % PIECE:
                yield
        row.topics.append(described)
        yield
    return row


def _row(snapshot: NamedSnapshot) -> DescribedSnapshot:
    return DescribedSnapshot(
        name=snapshot.name,
        snapshot_id=snapshot.snapshot_id,
        created_at_ms=snapshot.created_at_ms,
        best_effort=snapshot.best_effort,
        topics_count=len(snapshot.topics),
        partitions_count=sum(count_of(topic.ranges) for topic in snapshot.topics),
    )


def _topic(broker: BrokerContext, topic: PinnedTopic) -> DescribedSnapshotTopic:
    described = DescribedSnapshotTopic(topic_id=topic.topic_id, name=topic.name)
    hosted = broker.partitions.topics_by_id.get(topic.topic_id)
    if hosted is not None:
        described.is_compacted = hosted.settings.is_compacted
    elif broker.image.topic_named(topic.name) is None:
        described.state = SnapshotTopicState.GONE
    else:
        described.state = SnapshotTopicState.CREATED_ANEW
    return described
