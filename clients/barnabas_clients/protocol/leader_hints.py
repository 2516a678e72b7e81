"""Where to go instead: what Produce and Fetch answers say about a leader that is elsewhere (KIP-951). Pure."""

from barnabas_raftlog.wire.schema import FrozenStruct, Int32, String, Struct

__all__ = ["LeaderIdAndEpoch", "NodeEndpoint"]


class LeaderIdAndEpoch(FrozenStruct):
    """Who leads, when the request came to somebody else; -1 is unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Struct):
    """Where to reach a leader that the response names."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
