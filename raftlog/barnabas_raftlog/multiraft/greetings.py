"""What two nodes tell each other about the groups they share, so that only those are woken that differ.

When a link becomes live, both nodes say where they stand in every shared group; when a group is added here, the live
nodes are asked where they stand in it (a digest that wants an answer). What is said goes into the other's cores as
`PeerDigest` events (`raft.reconnect`). All digests of one loop iteration to one peer leave together.

Not said, but woken the old way with `PeerLive`: a group that has a promise on its way to the disk, because its term may
not be told yet, and one that has not heard yet that the peer had fallen silent, because that news would come after what
the digest says. The same happens to all of them when the frames cannot be sent. A lost digest costs an election
timeout: who has no leader asks for pre-votes, and that wakes the leader.
"""

import asyncio
from collections.abc import Iterable

from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.messages import GroupId, PeerDigest, PeerLive

from .digests import encode_digests
from .driver import Driver
from .group import Group, GroupStorage
from .outbox import FrameSender

__all__ = ["Greetings"]


class Greetings:
    """Owned by `MultiRaft`. `said_bytes` and `said` count what left; limits are those of `digests` and of the links."""

    def __init__(self, node_id: int, links: FrameSender, driver: Driver, storage: GroupStorage) -> None:
        self._node_id, self._links, self._driver, self._storage = node_id, links, driver, storage
        self._asking: dict[int, dict[Group, None]] = {}  # peer: groups that were added in this iteration
        self._answering: dict[int, dict[Group, None]] = {}
        self._is_scheduled = False
        self.said = self.said_bytes = 0

    def greet(self, peer: int, sharing: Iterable[Group]) -> None:
        """Tell `peer`, which is live from now on, where this node stands in all groups that they share."""
        unheard = self._driver.unheard_silence(peer)
        self._say(peer, [group for group in sharing if group not in unheard], wants_answer=False)
        self._driver.post_bulk(PeerLive(peer), sorted(unheard, key=lambda group: group.group_id))

    def ask(self, peer: int, group: Group) -> None:
        """Tell `peer` where this node stands in a group that it begins to take part in, and ask the same."""
        self._asking.setdefault(peer, {})[group] = None
        self._schedule()

    def answer(self, peer: int, group: Group) -> None:
        self._answering.setdefault(peer, {})[group] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        asking, self._asking = self._asking, {}
        answering, self._answering = self._answering, {}
        for peer, groups in asking.items():
            self._say(peer, groups, wants_answer=True)
        for peer, groups in answering.items():
            self._say(peer, groups, wants_answer=False)

    def _say(self, peer: int, groups: Iterable[Group], *, wants_answer: bool) -> None:
        durable_ticket = self._storage.durable_ticket
        digests: list[tuple[GroupId, PeerDigest]] = []
        told: list[Group] = []
        untold: list[Group] = []
        for group in sorted(groups, key=lambda group: group.group_id):
            if group.is_removed or group.failed is not None:
                continue
            if group.promise_ticket > durable_ticket:
                untold.append(group)
            else:
                told.append(group)
                digests.append((group.group_id, self._digest_of(group)))
        frames = encode_digests(digests, wants_answer=wants_answer, directory_id=self._storage.directory_id)
        if self._links.send_frames(peer, frames):
            self.said += len(digests)
            self.said_bytes += sum(len(buffer) for frame in frames for buffer in frame)
        else:
            untold += told
        self._driver.post_bulk(PeerLive(peer), untold)

    def _digest_of(self, group: Group) -> PeerDigest:
        core, log = group.core, group.log
        is_durable = log.durable_index == log.last_index and not core.uncertain
        at_rest = core.quiescent if core.role is Role.LEADER else is_durable
        return PeerDigest(
            self._node_id, core.term, core.leader_id, log.last_index, log.last_term, core.round, at_rest, False
        )
