"""DeleteSnapshot, API key 25192: delete a named snapshot. Not Kafka's: Barnabas alone has it. Pure.

No record is deleted with it: it only told where to read.
"""

from barnabas_raftlog.wire.schema import NO_UUID, Int16, Int32, Message, String, Uuid, message

__all__ = ["DeleteSnapshotRequest", "DeleteSnapshotResponse"]


@message(api_key=25192, versions=range(1), flexible_since=0)
class DeleteSnapshotRequest(Message):
    """Name and id must both be right: a snapshot that was made anew under the name meanwhile stays."""

    name: String = ""
    snapshot_id: Uuid = NO_UUID
    timeout_ms: Int32 = 30_000


@message(api_key=25192, versions=range(1), flexible_since=0)
class DeleteSnapshotResponse(Message):
    """RESOURCE_NOT_FOUND: nothing has the name, or something else has."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
