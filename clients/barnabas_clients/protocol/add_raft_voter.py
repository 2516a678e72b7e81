"""AddRaftVoter, API key 80: let a node vote in the metadata quorum (KIP-853). Pure.

Versions: 0 flexible already; 1 may be answered before the change is committed (KIP-1186).
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
    message,
    wire,
)

__all__ = [
    "AddRaftVoterListener",
    "AddRaftVoterRequest",
    "AddRaftVoterResponse",
]


class AddRaftVoterListener(Struct):
    """An address of the new voter."""

    name: String = ""
    host: String = ""
    port: UInt16 = 0


@message(api_key=80, versions=range(2), flexible_since=0)
class AddRaftVoterRequest(Message):
    """The node, the directory that it keeps the metadata in, and where it is."""

    cluster_id: String | None = None
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = NO_UUID
    listeners: list[AddRaftVoterListener] = field(default_factory=list)
    ack_when_committed: Annotated[Bool, wire(since=1)] = True


@message(api_key=80, versions=range(2), flexible_since=0)
class AddRaftVoterResponse(Message):
    """Done, or why not."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
