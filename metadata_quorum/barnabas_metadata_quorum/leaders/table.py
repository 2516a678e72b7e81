"""The leaders of all partitions, as far as this node has heard. Pure.

Groups elect their leaders themselves, so this table is hearsay: eventually right, never a promise. Its rules make
all nodes end with the same table, in any order of the news and with any repetition:

* of two announcements for one partition the higher term wins: a term has one leader, and a later one deposes it;
* within a term the higher `version` wins: only that term's leader numbers, so its newest in-sync set stands;
* relayed news carries the leader's own term and version, so relaying needs no trust;
* a deleted topic's entries go with it, and news of it that comes late stays out: the ids of the last
  `DELETED_TOPICS_MAX` deletions are remembered, and ids are never used twice. A straggler that outlives even that
  costs one unused entry until the next restart.

*Digests.* For each leader the table keeps one number, the sum of a hash of each entry that names it. Two tables with
the same number hold the same about that leader, so a few bytes tell whether another node has heard all its news.

A leader that is gone stays listed until its successor speaks; the brokers' fencing says whether it is there.
`leader_id` -1 says that the announcer itself knows that nobody leads in that term any more.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.unpacking import UNREADABLE

__all__ = [
    "NO_LEADER",
    "Announcement",
    "LeaderTable",
    "Leadership",
    "PartitionKey",
    "decode_announcements",
    "encode_announcements",
]

NO_LEADER = -1
DELETED_TOPICS_MAX = 10_000
DIGEST_LIMIT = 1 << 63  # exclusive; every msgpack reader knows such an integer
PartitionKey = tuple[bytes, int]
"""(topic_id, partition)."""


class Leadership(NamedTuple):
    """One partition's leader in `term`; `version` numbers that leader's news within it."""

    term: int
    version: int
    leader_id: int
    isr: tuple[int, ...]


class Announcement(NamedTuple):
    """A leadership on its way to others."""

    topic_id: bytes
    partition: int
    term: int
    version: int
    leader_id: int
    isr: tuple[int, ...]


class LeaderTable:
    """The newest known leadership of each partition. One entry per partition of the cluster, one number per leader."""

    def __init__(self) -> None:
        self._leaders: dict[PartitionKey, Leadership] = {}
        self._partitions: dict[bytes, set[int]] = {}
        self._led: dict[bytes, int] = {}  # number of partitions with a leader, by topic id
        self._deleted: dict[bytes, None] = {}
        self._going: deque[bytes] = deque()  # deleted topics that have entries yet
        self._digests: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._leaders)

    def get(self, topic_id: bytes, partition: int) -> Leadership | None:
        return self._leaders.get((topic_id, partition))

    def merge(self, news: Announcement) -> bool:
        """Take `news` in if it is newer than what is known; return whether it was."""
        if news.topic_id in self._deleted:
            return False
        key = (news.topic_id, news.partition)
        known = self._leaders.get(key)
        if known is not None and (news.term, news.version) <= (known.term, known.version):
            return False
        now = Leadership(news.term, news.version, news.leader_id, news.isr)
        self._leaders[key] = now
        was_led = False
        if known is None:
            self._partitions.setdefault(news.topic_id, set()).add(news.partition)
        else:
            was_led = known.leader_id >= 0
            self._count(key, known, -1)
        self._count(key, now, 1)
        self._led[news.topic_id] = self._led.get(news.topic_id, 0) + (now.leader_id >= 0) - was_led
        return True

    def count_led(self, topic_id: bytes) -> int:
        """Return the number of partitions of a topic that have a leader, without a look at each."""
        return self._led.get(topic_id, 0)

    def digest_of(self, leader_id: int) -> int:
        """Return the number that two tables have in common if they hold the same about `leader_id`; 0: nothing."""
        return self._digests.get(leader_id, 0)

    def _count(self, key: PartitionKey, leadership: Leadership, sign: int) -> None:
        entry = msgspec.msgpack.encode((*key, leadership.term, leadership.version))
        mark = int.from_bytes(blake2b(entry, digest_size=8).digest(), "big")
        digest = (self._digests.pop(leadership.leader_id, 0) + sign * mark) % DIGEST_LIMIT
        if digest:
            self._digests[leadership.leader_id] = digest

    def forget_topics(self, topic_ids: Iterable[bytes]) -> None:
        """Keep news of deleted topics out from now on; their entries go with `sweep`."""
        for topic_id in topic_ids:
            if topic_id in self._partitions and topic_id not in self._deleted:
                self._going.append(topic_id)
            self._deleted[topic_id] = None
            if len(self._deleted) > DELETED_TOPICS_MAX:
                del self._deleted[next(iter(self._deleted))]

    def sweep(self, count_max: int) -> list[PartitionKey]:
        """Drop and return entries of deleted topics, at most so many; if it returns fewer, there are no more."""
        gone: list[PartitionKey] = []
        while self._going and len(gone) < count_max:
            topic_id = self._going[0]
            partitions = self._partitions[topic_id]
            while partitions and len(gone) < count_max:
                key = (topic_id, partitions.pop())
                self._count(key, self._leaders.pop(key), -1)
                gone.append(key)
            if not partitions:
                del self._partitions[topic_id], self._led[topic_id]
                self._going.popleft()
        return gone

    def led_by(self, node_ids: Collection[int], among: Iterable[PartitionKey]) -> Iterator[Announcement]:
        """Yield the leaderships of these nodes `among` some partitions, ready to be announced."""
        for topic_id, partition in among:
            leadership = self._leaders.get((topic_id, partition))
            if leadership is not None and leadership.leader_id in node_ids:
                yield Announcement(topic_id, partition, *leadership)

    def keys(self) -> list[PartitionKey]:
        return list(self._leaders)


_announcements: msgspec.msgpack.Decoder[list[Announcement]] = msgspec.msgpack.Decoder(list[Announcement])


def encode_announcements(announcements: list[Announcement]) -> bytes:
    """Return them as msgpack, about 45 bytes each."""
    return msgspec.msgpack.encode(announcements)


def decode_announcements(body: bytes | memoryview) -> list[Announcement]:
    """Read announcements.

    Raises:
        MalformedMessageError: they are none.
    """
    try:
        return _announcements.decode(body)
    except UNREADABLE as error:
        raise MalformedMessageError(f"not leader announcements: {error}") from error
