"""DescribeSnapshots, API key 25191: list named snapshots, or show one. Not Kafka's: Barnabas alone has it. Pure.

The broker first hears from the controller what is newest, so that whatever was answered before is seen.
"""

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, field, message

from .snapshot_rows import DescribedSnapshot

__all__ = ["DescribeSnapshotsRequest", "DescribeSnapshotsResponse"]


@message(api_key=25191, versions=range(1), flexible_since=0)
class DescribeSnapshotsRequest(Message):
    """`name` null asks for all snapshots, without their ranges."""

    name: String | None = None
    timeout_ms: Int32 = 30_000


@message(api_key=25191, versions=range(1), flexible_since=0)
class DescribeSnapshotsResponse(Message):
    """RESOURCE_NOT_FOUND says that no snapshot has the name. Snapshots are sorted by name."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    snapshots: list[DescribedSnapshot] = field(default_factory=list)
