"""CreateSnapshot, API key 25190: keep ranges of offsets under a name. Not Kafka's: Barnabas alone has it. Pure.

Any broker takes the request, and has the active controller decide. Whoever comes first makes the snapshot. Everybody
else is answered with the one that is there: so of several readers who use a new name at the same time, all read the
same ranges. A snapshot stays until somebody deletes it (DeleteSnapshot).
"""

from barnabas_raftlog.wire.schema import NO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid, field, message

from .snapshot_rows import DescribedSnapshot, SnapshotRange

__all__ = ["CreateSnapshotRequest", "CreateSnapshotResponse", "SnapshotTopicRanges"]


class SnapshotTopicRanges(Struct):
    """The ranges of one topic, in any order."""

    topic_id: Uuid = NO_UUID
    partitions: list[SnapshotRange] = field(default_factory=list)


@message(api_key=25190, versions=range(1), flexible_since=0)
class CreateSnapshotRequest(Message):
    """`snapshot_id` is drawn by the client, so that a retry finds what an earlier attempt has made.

    Topics that are compacted are refused unless it is a `best_effort`.
    """

    name: String = ""
    snapshot_id: Uuid = NO_UUID
    best_effort: Bool = False
    topics: list[SnapshotTopicRanges] = field(default_factory=list)
    timeout_ms: Int32 = 30_000


@message(api_key=25190, versions=range(1), flexible_since=0)
class CreateSnapshotResponse(Message):
    """`snapshots` has the one that has the name now: with the id that was asked for if it was `created`, or another."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    created: Bool = False
    snapshots: list[DescribedSnapshot] = field(default_factory=list)
