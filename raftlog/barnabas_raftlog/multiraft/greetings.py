"""Tells other nodes where this one stands in the groups that they share.

So only groups are woken that differ. When a link becomes live, both nodes say where they stand in every shared group;
when a group is added here, the live nodes are asked where they stand in it (a digest that wants an answer). Digests go
into the other's cores as `PeerDigest` events (`raft.reconnect`). The digests of one loop iteration to one peer leave
together, `SAID_AT_ONCE` of them; two nodes that share thousands of groups need several iterations.

Some groups are not told of, but woken the old way with `PeerLive`: a group that has a promise on its way to the disk,
because its term may not be told yet, and one that has not heard yet that the peer had fallen silent, because that news
would come after the digest. The same happens to all of them when the frames cannot be sent. A lost digest costs an
election timeout: a member without a leader asks for pre-votes, and that wakes the leader.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice

from barnabas_raftlog.links.digests import encode_digests
from barnabas_raftlog.links.interfaces import FrameSender
from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.messages import GroupId, PeerDigest, PeerLive

from .driver import Driver
from .group import RaftGroup
from .interfaces import GroupStorage

__all__ = ["Greetings"]

SAID_AT_ONCE = 500  # 3 to 5 us each
ASKING, ANSWERING, GREETING = range(3)


class Greetings:
    """Owned by `MultiRaft`. `said` and `said_bytes` count digests that left. `digests` and the links have limits."""

    def __init__(self, node_id: int, links: FrameSender, driver: Driver, storage: GroupStorage) -> None:
        self._node_id = node_id
        self._links = links
        self._driver = driver
        self._storage = storage
        # Digests that are to be said, by reason and peer: the groups.
        self._unsaid: dict[tuple[int, int], dict[RaftGroup, None]] = {}
        self._is_scheduled = False
        self.said = 0
        self.said_bytes = 0

    def greet(self, peer: int, sharing: Iterable[RaftGroup]) -> None:
        """Tell `peer`, which is live from now on, where this node stands in all groups that they share."""
        unheard = self._driver.unheard_silence(peer)
        self._unsaid[GREETING, peer] = {group: None for group in sharing if group not in unheard}
        self._say_some(GREETING, peer, SAID_AT_ONCE)
        if self._unsaid:
            self._schedule()
        self._driver.post_bulk(PeerLive(peer), list(unheard))

    def forget(self, peer: int) -> None:
        """Tell `peer`, which fell silent, nothing more."""
        self._unsaid.pop((GREETING, peer), None)

    def ask(self, peer: int, group: RaftGroup) -> None:
        """Tell `peer` where this node stands in a group that it begins to take part in, and ask the same."""
        self._unsaid.setdefault((ASKING, peer), {})[group] = None
        self._schedule()

    def answer(self, peer: int, group: RaftGroup) -> None:
        self._unsaid.setdefault((ANSWERING, peer), {})[group] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        left = SAID_AT_ONCE
        for why, peer in sorted(self._unsaid):
            left -= self._say_some(why, peer, left)
            if not left:
                break
        if self._unsaid:
            self._schedule()

    def _say_some(self, why: int, peer: int, count_max: int) -> int:
        """Say some of the digests that are due; return of how many groups."""
        groups = self._unsaid[why, peer]
        some = list(islice(groups, count_max))
        if len(some) < len(groups):
            for group in some:
                del groups[group]
        else:
            del self._unsaid[why, peer]
        self._say(peer, some, wants_answer=why == ASKING)
        return len(some)

    def _say(self, peer: int, groups: Iterable[RaftGroup], *, wants_answer: bool) -> None:
        durable_ticket = self._storage.durable_ticket
        digests: list[tuple[GroupId, PeerDigest]] = []
        told: list[RaftGroup] = []
        untold: list[RaftGroup] = []
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

    def _digest_of(self, group: RaftGroup) -> PeerDigest:
        core = group.core
        log = group.log
        is_durable = log.durable_index == log.last_index and not core.uncertain
        at_rest = core.quiescent if core.role is Role.LEADER else is_durable
        return PeerDigest(
            peer=self._node_id,
            term=core.term,
            leader_id=core.leader_id,
            last_index=log.last_index,
            last_term=log.last_term,
            round=core.round,
            at_rest=at_rest,
            wants_answer=False,
        )
