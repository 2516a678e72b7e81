"""Knows the peers whose disks are so far behind that they get no entries.

A leader may refuse a proposal (`StorageBusyError`); a follower cannot refuse an append, and each of thousands of groups
has a window of its own. So a node says in its datagrams whether its disk is far behind, and leaders keep entries for it
to themselves meanwhile: they are in their logs anyway. Others make up the majority, or the producers wait. A node whose
disk is full says the same: it would refuse them.

The cost for a node, beyond the bound at which it says so: the entries that arrive within a datagram's interval, and
those that were on their way.
"""

from collections.abc import Callable

from barnabas_raftlog.raft.messages import Fact

__all__ = ["BusyPeers"]


class BusyPeers(set[int]):
    """Node ids, as of their newest datagrams. It holds no node that is not live: that is for a link to say.

    It is a set, because every append of a leader looks into it.
    """

    __slots__ = ("_on_fact",)

    def __init__(self, on_fact: Callable[[Fact], None]) -> None:
        super().__init__()
        self._on_fact = on_fact

    def on_notice(self, node_id: int, *, is_busy: bool) -> None:
        """Take in a datagram's word on its sender."""
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
