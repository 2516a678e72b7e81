"""RemoveRaftVoter, API key 81: let a node vote no more in the metadata quorum (KIP-853). Pure.

Versions: 0 flexible already.
"""

from barnabas_raftlog.wire.schema import NO_UUID, Int16, Int32, Message, String, Uuid, message

__all__ = [
    "RemoveRaftVoterRequest",
    "RemoveRaftVoterResponse",
]


@message(api_key=81, versions=range(1), flexible_since=0)
class RemoveRaftVoterRequest(Message):
    """The node, and the directory that it votes with."""

    cluster_id: String | None = None
    voter_id: Int32 = 0
    voter_directory_id: Uuid = NO_UUID


@message(api_key=81, versions=range(1), flexible_since=0)
class RemoveRaftVoterResponse(Message):
    """Done, or why not."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
