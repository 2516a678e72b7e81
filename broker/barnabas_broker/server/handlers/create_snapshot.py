"""CreateSnapshot: have the controller keep ranges of offsets under a name.

Any broker takes the request; the active controller decides who comes first. This broker packs the ranges and checks
what it knows: that topics are there, and none of them is compacted, unless the client says that it does not mind. A
topic may be altered later, so whoever reads a snapshot looks at it again.
"""

from collections.abc import Generator

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.create_snapshot import CreateSnapshotRequest, CreateSnapshotResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import (
    CreateSnapshot,
    CreateSnapshotAnswer,
    RefusalReason,
    Refused,
)
from barnabas_metadata_quorum.controller.named_snapshots import check_name, check_size
from barnabas_metadata_quorum.image.pinned_ranges import PinnedRange, packed
from barnabas_metadata_quorum.image.records import NamedSnapshot, PinnedTopic

from .create_topics import code_of, limit_s
from .describe_snapshots import shown

__all__ = ["handle", "refuse"]

PIECE = 200  # ranges between two yields
NO_ID = bytes(16)


async def handle(broker: BrokerContext, _: Exchange, request: CreateSnapshotRequest) -> CreateSnapshotResponse:
    """Pack the ranges, and ask the controller."""
    try:
        check_name(request.name)
        topics = await taken(_pinned(broker, request))
        wanted = NamedSnapshot(
            snapshot_id=request.snapshot_id if request.snapshot_id != NO_ID else broker.new_id().bytes,
            name=request.name,
            created_at_ms=broker.partitions.wall_ms(),
            topics=topics,
            best_effort=request.best_effort,
        )
        answer = await broker.metadata.submit(CreateSnapshot(wanted), limit_s(request.timeout_ms))
    except Refused as refused:
        return CreateSnapshotResponse(error_code=code_of(refused.reason), error_message=in_words(refused.message))
    assert isinstance(answer, CreateSnapshotAnswer)
    snapshot = broker.image.named_snapshots.get(request.name)
    if snapshot is None:
        text = "this broker has not heard of the snapshot in time, or it was deleted at once; ask again"
        return CreateSnapshotResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)
    is_new = answer.created and snapshot.snapshot_id == answer.snapshot_id
    return CreateSnapshotResponse(created=is_new, snapshots=[await taken(shown(broker, snapshot))])


def refuse(_: CreateSnapshotRequest, code: ErrorCode) -> CreateSnapshotResponse:
    """Answer with `code`."""
    return CreateSnapshotResponse(error_code=code)


def _pinned(broker: BrokerContext, request: CreateSnapshotRequest) -> Generator[None, None, tuple[PinnedTopic, ...]]:
    check_size(len(request.topics), 0)
    check_size(0, sum(len(topic.partitions) for topic in request.topics))
    topics = []
    for asked in request.topics:
        hosted = broker.partitions.topics_by_id.get(asked.topic_id)
        if hosted is None:
            raise Refused(RefusalReason.UNKNOWN_TOPIC_ID, f"there is no topic with id {asked.topic_id.hex()}")
        name = hosted.topic.name
        if hosted.settings.is_compacted and not request.best_effort:
            text = f"topic '{name}' is compacted: records may vanish from the snapshot later, and nobody can tell which"
            raise Refused(RefusalReason.INVALID_CONFIG, text)
        ranges = []
        for row in asked.partitions:
            ranges.append(PinnedRange(row.partition, row.leader_epoch, row.start_offset, row.end_offset))
            if not len(ranges) % PIECE:
                yield
        try:
            topics.append(PinnedTopic(asked.topic_id, name, (yield from packed(ranges))))
        except ValueError as error:
            raise Refused(RefusalReason.INVALID_REQUEST, f"topic '{name}': {error}") from None
        yield
    return tuple(topics)
