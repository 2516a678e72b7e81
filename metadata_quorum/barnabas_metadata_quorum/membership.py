"""Who takes part in the metadata quorum: what the nodes' configuration says. Pure."""

import msgspec

from barnabas_raftlog.raft.membership import Configuration, configuration_of

__all__ = ["Membership"]


class Membership(msgspec.Struct, frozen=True):
    """Who this node is, and who takes part. Voters are the nodes with the controller role, learners all others."""

    node_id: int
    cluster_id: str
    voters: frozenset[int]
    learners: frozenset[int]

    def __post_init__(self) -> None:
        assert self.voters
        assert not self.voters & self.learners
        assert self.node_id in self.voters | self.learners

    @property
    def configuration(self) -> Configuration:
        """The group's members; their directories play no part, because no entry ever changes them."""
        return configuration_of(self.voters, self.learners)
