"""Which peers have so much waiting for their disks that they must not be sent more.

A leader may refuse what it is asked to append (`StorageBusyError`); a follower cannot, and each of thousands of groups
has a window of its own. So a node says in its datagrams whether its disk is far behind, and leaders keep entries for it
to themselves meanwhile: they are in their logs anyway. Others make up the majority, or the producers wait. A node whose
disk is full says the same: it would refuse them.

What it costs a node beyond the bound at which it says so: what arrives within a datagram's interval, and what was on
its way.
"""

from collections.abc import Callable

from barnabas_raftlog.raft.messages import Fact

__all__ = ["BusyPeers"]


class BusyPeers(set[int]):
    """Node ids, as of their newest datagrams. Whoever is not live is not in it: that is for a link to say.

    A set, because every append of a leader looks into it.
    """

    __slots__ = ("_on_fact",)

    def __init__(self, on_fact: Callable[[Fact], None]) -> None:
        super().__init__()
        self._on_fact = on_fact

    def on_notice(self, node_id: int, *, is_busy: bool) -> None:
        """Take in what a peer says of itself."""
        if is_busy == (node_id in self):
            return
        if is_busy:
            self.add(node_id)
            self._on_fact(
                Fact("peer busy", 0, f"node {node_id} is behind with its disk, or has no room: it is sent no entries")
            )
        else:
            self.discard(node_id)
            self._on_fact(Fact("peer not busy", 0, f"node {node_id} is sent entries again"))
