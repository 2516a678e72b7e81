"""How all nodes learn who leads which partition: leaders say so themselves, to everybody, at once.

`announce` changes this node's own table immediately and collects the news of one loop iteration into one post per
node: a node that starts leading a thousand partitions sends one message to each other node, not a thousand. When a
node becomes live it gets everything that this node leads, so whoever was away, or has been restarted, needs no more
than one message from each live leader. Posts may be lost with a link, and the link's return repeats them.

Within a term, news is numbered by its leader (`version`), so a later in-sync set wins over an earlier one whatever
way they take. The numbers need not survive a restart: a restarted node leads only in a later term.

Entries of deleted topics go when the image says so.

Limits: one entry per announced partition and loop iteration; `ANNOUNCEMENTS_PER_POST` entries (about 200 KB) in one
post.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import islice
from typing import Protocol

from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import MalformedMessageError

from .image import Image, topic_changes
from .leaders import (
    NO_LEADER,
    Announcement,
    LeaderTable,
    PartitionKey,
    decode_announcements,
    encode_announcements,
)

__all__ = ["LeaderAnnouncer"]

METHOD = "leaders"
ANNOUNCEMENTS_PER_POST = 4_000

logger = logging.getLogger(__name__)

Subscriber = Callable[[list[PartitionKey]], None]


class NodeLinks(Protocol):
    """The part of `Links` that is used here."""

    on_peer: list[Callable[[int, bool], None]]

    def serve(self, method: str, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None: ...
    def post(self, node_id: int, method: str, body: bytes) -> None: ...


class ImageSource(Protocol):
    """The part of `MetadataService` that is used here."""

    def subscribe(self, subscriber: Callable[[Image, Image], None]) -> None: ...


class LeaderAnnouncer:
    """This node's leader table, what it adds to those of others, and what it hears from them."""

    def __init__(self, node_id: int, peers: Collection[int], links: NodeLinks, images: ImageSource) -> None:
        self.table = LeaderTable()
        self._node_id, self._links = node_id, links
        self._peers = sorted(set(peers) - {node_id})
        self._version = 0
        self._news: dict[PartitionKey, Announcement] = {}
        self._subscribers: list[Subscriber] = []
        links.serve(METHOD, self._on_post)
        links.on_peer.append(self._on_peer)
        images.subscribe(self._on_image)

    def announce(self, topic_id: bytes, partition: int, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        """Say that `leader_id` leads in `term`, with these replicas in sync. `NO_LEADER`: this node leads no more.

        Only the leader of `term` may speak about it, and only about itself or nobody: its numbers order the news.
        """
        assert leader_id in {self._node_id, NO_LEADER}
        self._version += 1
        news = Announcement(topic_id, partition, term, self._version, leader_id, isr)
        if not self.table.merge(news):
            return  # A later term is known here already: the caller has not heard of it yet.
        if not self._news:
            asyncio.get_running_loop().call_soon(self._flush)
        self._news[topic_id, partition] = news
        self._tell([(topic_id, partition)])

    def hear(self, topic_id: bytes, partition: int, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        """Take in what this node's own replica knows from Raft, sooner than the leader's announcement comes."""
        if self.table.merge(Announcement(topic_id, partition, term, 0, leader_id, isr)):
            self._tell([(topic_id, partition)])

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with the partitions whose entry has changed or gone."""
        self._subscribers.append(subscriber)

    def _tell(self, changed: list[PartitionKey]) -> None:
        call_each(self._subscribers, lambda subscriber: subscriber(changed))

    def _flush(self) -> None:
        news, self._news = list(self._news.values()), {}
        self._post(self._peers, news)

    def _post(self, peers: Iterable[int], news: Iterable[Announcement]) -> None:
        source = iter(news)
        while part := list(islice(source, ANNOUNCEMENTS_PER_POST)):
            body = encode_announcements(part)
            for peer in peers:
                self._links.post(peer, METHOD, body)

    def _on_peer(self, peer: int, live: bool) -> None:
        if live:
            self._post([peer], self.table.led_by(self._node_id))

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
        gone = [(topic.topic_id, partition) for topic in deleted for partition in range(len(topic.partitions))]
        for key in gone:
            self._news.pop(key, None)
        self._tell(gone)
