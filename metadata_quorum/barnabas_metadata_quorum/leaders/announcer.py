"""Tells every node who leads which partition: leaders say so themselves, at once.

`announce` changes this node's own table immediately and collects the news of one loop iteration into few posts:
a node that starts leading a thousand partitions sends two messages to each other node, not a thousand. When a node
becomes live it gets everything that this node leads, so a node that was away, or has been restarted, needs no more than
that from each live leader. For that the table is gone through in slices, each in an iteration of the loop of its own.

*Posts may be lost*: with a link, when one is congested, or when the other node has too many to serve. So they are
checked. Every `CHECK_S`, as long as some node has not confirmed it, this node posts to that one the digest of its
leaderships (`LeaderTable.digest_of`), behind everything that it posted before. The other one compares it with the
digest of its own entries about this node, and answers whether they are equal. If they are, that is the end of it until
something changes here; otherwise it gets everything again, and also the partitions without a leader. News of third
nodes can make two digests differ for a moment or, if nodes cannot reach each other, for longer; so for the same digest
the time to the next check doubles each time, up to `CHECKS_APART_MAX` times `CHECK_S`. At rest, when all nodes are
there, there is no post and no timer.

A node that is not live is asked like the others: TCP may reach one whose datagrams do not come through, and clients
may reach one that its peers take for silent. A node that is down costs a timer, and a post that the links drop, at
each of those times until it is back.

Within a term, news is numbered by its leader (`version`), so a later in-sync set wins over an earlier one by any way.
The numbers need not survive a restart: a restarted node leads only in a later term.

Entries of deleted topics go when the image says so.

Limits: one entry per announced partition and loop iteration; `ANNOUNCEMENTS_PER_POST` entries (about 25 KB) in one
post, which its receiver takes in in one go; per node and check one post of some 20 bytes, one such answer, and all
leaderships of this node if they differ.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Protocol

import msgspec

from barnabas_metadata_quorum.image.image import Image, topic_changes
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.unpacking import UNREADABLE

from .table import NO_LEADER, Announcement, LeaderTable, PartitionKey, decode_announcements, encode_announcements

__all__ = ["LeaderAnnouncer"]

METHOD = "leaders"
CHECK = "leaders.check"
CHECKED = "leaders.checked"
CHECK_S = 2.0
CHECKS_APART_MAX = 32
ANNOUNCEMENTS_PER_POST = 500  # To take one in takes 5 to 6 us.
LOOKED_PER_ITERATION = 500  # entries of the table, for a node that is to have everything
SWEPT_PER_ITERATION = 500

logger = logging.getLogger(__name__)

Subscriber = Callable[[list[PartitionKey]], None]

_check_decoder: msgspec.msgpack.Decoder[int] = msgspec.msgpack.Decoder(int)
_checked_decoder: msgspec.msgpack.Decoder[tuple[int, bool]] = msgspec.msgpack.Decoder(tuple[int, bool])


class ImageSource(Protocol):
    """The part of `MetadataService` that an announcer uses."""

    def subscribe(self, subscriber: Callable[[Image, Image], None]) -> None: ...


class _Unsure:
    """A node that has not confirmed this node's leaderships: the last question to it, and the turns to the next."""

    __slots__ = ("digest", "turns_apart", "turns_left")

    def __init__(self) -> None:
        self.digest = -1
        self.turns_apart = 1
        self.turns_left = 0

    def is_due(self, digest: int) -> bool:
        """Count one turn; tell whether to ask now. News is asked about at the next turn."""
        if digest != self.digest:
            self.digest = digest
            self.turns_apart = 1
            self.turns_left = 1
            return True
        self.turns_left -= 1
        if self.turns_left > 0:
            return False
        self.turns_apart = self.turns_left = min(2 * self.turns_apart, CHECKS_APART_MAX)
        return True


class LeaderAnnouncer:
    """This node's leader table, its news to other nodes, and their news."""

    def __init__(self, node_id: int, peers: Collection[int], links: NodeLinks, images: ImageSource) -> None:
        self.table = LeaderTable()
        self._node_id = node_id
        self._links = links
        self._peers = sorted(set(peers) - {node_id})
        self._version = 0
        self._news: dict[PartitionKey, Announcement] = {}
        self._subscribers: list[Subscriber] = []
        self._unsure: dict[int, _Unsure] = {}
        # Nodes that are to have everything: the keys that are still to be looked at, and whose leaderships they get.
        self._catching_up: dict[int, tuple[Iterator[PartitionKey], tuple[int, ...]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        links.serve(METHOD, self._on_post)
        links.serve(CHECK, self._on_check)
        links.serve(CHECKED, self._on_checked)
        links.on_peer.append(self._on_peer)
        images.subscribe(self._on_image)

    def announce(self, topic_id: bytes, partition: int, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        """Say that `leader_id` leads in `term`, with these replicas in sync. `NO_LEADER`: this node leads no more.

        Only the leader of `term` may speak about it, and only about itself or nobody: its numbers order the news.
        """
        assert leader_id in {self._node_id, NO_LEADER}
        self._version += 1
        news = Announcement(
            topic_id=topic_id,
            partition=partition,
            term=term,
            version=self._version,
            leader_id=leader_id,
            isr=isr,
        )
        if not self.table.merge(news):
            return  # A later term is known here already: the caller has not heard of it yet.
        if not self._news:
            asyncio.get_running_loop().call_soon(self._flush)
        self._news[topic_id, partition] = news
        self._tell([(topic_id, partition)])

    def learn(self, topic_id: bytes, partition: int, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        """Take in the news of this node's own replica, which Raft brings sooner than the leader's announcement."""
        news = Announcement(
            topic_id=topic_id,
            partition=partition,
            term=term,
            version=0,
            leader_id=leader_id,
            isr=isr,
        )
        if self.table.merge(news):
            self._tell([(topic_id, partition)])

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with the partitions whose entry has changed or gone."""
        self._subscribers.append(subscriber)

    @property
    def is_confirmed(self) -> bool:
        """True while every other node is known to have heard all that this node says it leads."""
        return not self._unsure

    @property
    def has_timer(self) -> bool:
        """True while another turn of checks will come."""
        return self._timer is not None

    def close(self) -> None:
        """Check nothing any more. Idempotent."""
        self._closed = True
        self._unsure.clear()
        self._catching_up.clear()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, changed: list[PartitionKey]) -> None:
        call_each(self._subscribers, lambda subscriber: subscriber(changed))

    def _flush(self) -> None:
        news = list(self._news.values())
        self._news = {}
        self._post(self._peers, news)
        self._doubt(self._peers)

    def _post(self, peers: Iterable[int], news: Iterable[Announcement]) -> None:
        source = iter(news)
        while part := list(islice(source, ANNOUNCEMENTS_PER_POST)):
            body = encode_announcements(part)
            for peer in peers:
                self._links.post(peer, METHOD, body)

    def _on_peer(self, peer: int, live: bool) -> None:
        self._unsure.pop(peer, None)
        self._catching_up.pop(peer, None)
        if live:
            self._post_all(peer, self._node_id)
        self._doubt([peer])

    def _post_all(self, peer: int, *leader_ids: int) -> None:
        """Tell `peer` all leaderships of these, some in each iteration of the loop, the first at once."""
        is_at_it = bool(self._catching_up)
        self._catching_up[peer] = iter(self.table.keys()), leader_ids
        if not is_at_it:
            self._post_some()

    def _post_some(self) -> None:
        if not self._catching_up:
            return
        peer, (keys, leader_ids) = next(iter(self._catching_up.items()))
        some = list(islice(keys, LOOKED_PER_ITERATION))
        self._post([peer], self.table.led_by(leader_ids, some))
        if len(some) < LOOKED_PER_ITERATION:
            del self._catching_up[peer]
        if self._catching_up:
            asyncio.get_running_loop().call_soon(self._post_some)

    def _doubt(self, peers: Iterable[int]) -> None:
        """Ask these nodes, from the next turn on, whether they know this node's leaderships."""
        if self._closed:
            return
        for peer in peers:
            self._unsure.setdefault(peer, _Unsure())
        if self._unsure and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self.check)

    def check(self) -> None:
        """Take one turn: ask the nodes that are due. Called by the timer."""
        self._stop_timer()
        digest = self.table.digest_of(self._node_id)
        body = msgspec.msgpack.encode(digest)
        for peer, unsure in sorted(self._unsure.items()):
            if unsure.is_due(digest):
                self._links.post(peer, CHECK, body)
        self._doubt(())

    async def _on_check(self, source: int, body: bytes) -> bytes:
        """Say whether this node holds the same about `source` as that node does."""
        try:
            asked = _check_decoder.decode(body)
        except UNREADABLE as error:
            logger.warning("node %d sent a digest of leaders that cannot be read: %s", source, error)
            return b""
        is_equal = asked == self.table.digest_of(source)
        self._links.post(source, CHECKED, msgspec.msgpack.encode((asked, is_equal)))
        return b""

    async def _on_checked(self, source: int, body: bytes) -> bytes:
        try:
            asked, is_equal = _checked_decoder.decode(body)
        except UNREADABLE as error:
            logger.warning("node %d sent an answer about leaders that cannot be read: %s", source, error)
            return b""
        if source not in self._unsure or asked != self.table.digest_of(self._node_id):
            return b""  # More was said meanwhile: the next question is about that.
        if is_equal:
            del self._unsure[source]
        else:
            self._post_all(source, self._node_id, NO_LEADER)
        return b""

    async def _on_post(self, source: int, body: bytes) -> bytes:
        if source < 0:
            return b""  # An admin connection leads nothing.
        try:
            news = decode_announcements(body)
        except MalformedMessageError as error:
            logger.warning("node %d sent leader announcements that cannot be read: %s", source, error)
            return b""
        merge = self.table.merge
        if changed := [(item.topic_id, item.partition) for item in news if merge(item)]:
            self._tell(changed)
        return b""

    def _on_image(self, old: Image, new: Image) -> None:
        deleted = topic_changes(old, new).deleted
        if not deleted:
            return
        self.table.forget_topics(topic.topic_id for topic in deleted)
        self._sweep()

    def _sweep(self) -> None:
        """Forget topics that are gone, a piece in each iteration of the loop."""
        gone = self.table.sweep(SWEPT_PER_ITERATION)
        for key in gone:
            self._news.pop(key, None)
        if len(gone) == SWEPT_PER_ITERATION:
            asyncio.get_running_loop().call_soon(self._sweep)
        if gone:
            self._tell(gone)
