"""The hints to another leader in answers to Produce and Fetch (KIP-951). Pure."""

from barnabas_raftlog.wire.schema import FrozenStruct, Int32, String, Struct

__all__ = ["LeaderIdAndEpoch", "NodeEndpoint"]


class LeaderIdAndEpoch(FrozenStruct):
    """The leader, if the request came to another broker; -1 is unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Struct):
    """The address of a leader that the response names."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
