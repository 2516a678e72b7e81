"""Knows who leads each partition, and since when nobody does; requests wait here for elections.

Three sources are brought together: the table of leaders, which announcements and the replicas here fill; the absences
of other brokers; and since when each partition has had no leader. From these follows whether an election is under way
that a request should wait for (`expects_leader`), and whether this node would hear of one at all (`is_cut_off`).

All that may change an answer fires one pulse: news of leaders, of brokers and of links, and replicas that have been
opened. A request that waits looks again at each.

Limit: one entry for each partition without a leader, and one for each topic that may have such a partition.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence

from barnabas_broker.partition.partition import Partition
from barnabas_metadata_quorum.image.image import Image, Topic
from barnabas_metadata_quorum.leaders.announcer import LeaderAnnouncer
from barnabas_metadata_quorum.leaders.table import NO_LEADER, Leadership, PartitionKey
from barnabas_metadata_quorum.pulse import Pulse

from .absences import Absences
from .cut_off import is_cut_off

__all__ = ["ELECTION_S", "KnownLeaders"]

ELECTION_MS = 1_000  # elections take a tenth of that, or, without a majority, for ever
ELECTION_S = ELECTION_MS / 1000


class KnownLeaders:
    """Owned by `Partitions`.

    Args:
        node_id: This node.
        announcer: Has the table of leaders, and says what changes in it.
        busy_peers: Nodes that are behind with their disk, or have no room on it.
        clock: The monotonic clock, in milliseconds.
        session_ms: After so long without a word the controller fences a broker.
        find_topic: The topic of an id as it is in the image; None if it was deleted.
    """

    def __init__(
        self,
        node_id: int,
        announcer: LeaderAnnouncer,
        busy_peers: Container[int],
        clock: Callable[[], int],
        session_ms: int,
        find_topic: Callable[[bytes], Topic | None],
    ) -> None:
        self.absences = Absences(clock, session_ms)
        self._node_id = node_id
        self._announcer = announcer
        self._busy_peers = busy_peers
        self._clock = clock
        self._find_topic = find_topic
        self._vacant_since_ms: dict[PartitionKey, int] = {}
        self._unled: dict[bytes, None] = {}  # topics that may have a partition without a leader
        self._changed = Pulse()
        announcer.subscribe(self._on_leaders)

    # The leaders.

    def leadership(self, topic_id: bytes, partition: int) -> Leadership | None:
        """Return who leads, as far as this node has heard from the leader itself."""
        return self._announcer.table.get(topic_id, partition)

    def expects_leader(self, topic: Topic) -> bool:
        """Tell whether an election that began within the last second decides who leads a partition of this topic."""
        return any(self.expects_leader_of(topic, index) for index in range(len(topic.partitions)))

    def expects_leader_of(self, topic: Topic, index: int) -> bool:
        """As `expects_leader`, for one partition."""
        leadership = self.leadership(topic.topic_id, index)
        if leadership is None:
            return False
        if leadership.leader_id == NO_LEADER:
            vacant_ms = self._vacant_since_ms.get((topic.topic_id, index))
        else:
            vacant_ms = self.absences.silent_since_ms(leadership.leader_id)
        if vacant_ms is None or vacant_ms <= self._clock() - ELECTION_MS:
            return False
        # A node that is cut off would wait in vain: it hears of no election.
        return not self.is_cut_off(topic.partitions[index].voters)

    def is_cut_off(self, voters: Sequence[int]) -> bool:
        """Tell whether this node, one of `voters`, has just ceased to hear a majority of them."""
        return is_cut_off(self._node_id, voters, self.absences.is_doubtful)

    def available_since_ms(self, node_id: int) -> int | None:
        """Return since when a leadership could be handed to `node_id`; None: not now.

        One that is behind with its disk, or has no room on it, counts as if it had just come: it is looked at again.
        """
        since_ms = self.absences.available_since_ms(node_id)
        return self._clock() if since_ms is not None and node_id in self._busy_peers else since_ms

    @property
    def has_all_leaders(self) -> bool:
        """True if every partition of the image has a leader in the table. Asked at every change, so it remembers."""
        while self._unled:
            topic_id = next(iter(self._unled))
            if not self._has_leaders(topic_id):
                return False
            del self._unled[topic_id]
        return True

    def _has_leaders(self, topic_id: bytes) -> bool:
        topic = self._find_topic(topic_id)
        if topic is None:
            return True  # Deleted again: nobody will ever lead it.
        # More than the image has: partitions were added, and it does not tell of them yet.
        return self._announcer.table.count_led(topic_id) >= len(topic.partitions)

    # Waiting.

    async def wait_for_leaders(self, topic_ids: Iterable[bytes], timeout_s: float) -> None:
        """Return when every partition of these topics has a leader in the table, or the time is up."""
        waiting = deque(topic_ids)

        def is_waiting() -> bool:
            # Asked at every change, so it looks no further than to the first that has to be waited for.
            while waiting and self._has_leaders(waiting[0]):
                waiting.popleft()
            return bool(waiting)

        await self.wait_while(is_waiting, timeout_s)

    async def wait_while(self, is_undecided: Callable[[], bool], timeout_s: float) -> None:
        """Wait while this is so, asked again whenever leaders have changed, or until the time is up."""
        await self._changed.wait_while(is_undecided, timeout_s)

    def leaders_changed(self) -> asyncio.Future[None]:
        """Return what is done at the next change, from now on, of anything that decides who is said to lead."""
        return self._changed.wait()

    # News, from this node and from others.

    def announce(self, partition: Partition, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        """Tell everybody that this node leads `partition`, or leads it no more."""
        self._announcer.announce(partition.topic_id, partition.index, term, leader_id, isr)

    def learn(self, partition: Partition, term: int, leader_id: int) -> None:
        """Take in what the replica here has heard from its group."""
        # The leader will say in a moment which replicas are in sync; until then, those of before count.
        known = self.leadership(partition.topic_id, partition.index)
        isr = known.isr if known is not None and leader_id in known.isr else partition.replicas
        self._announcer.learn(partition.topic_id, partition.index, term, leader_id, isr)

    def on_brokers(self, old: Image, new: Image) -> None:
        """Brokers have been registered, fenced or unfenced."""
        self.absences.on_brokers(old, new)
        self._changed.fire()

    def on_peer(self, peer: int, live: bool) -> None:
        """A link has come up or gone dead."""
        self.absences.on_peer(peer, live)
        self._changed.fire()

    def on_topics(self, topics: Iterable[Topic]) -> None:
        """These have been created or changed: they may have partitions that nobody leads yet."""
        self._unled |= {topic.topic_id: None for topic in topics}

    def on_deleted(self, topic_id: bytes) -> None:
        """Nobody will lead this topic any more."""
        self._unled.pop(topic_id, None)
        self._changed.fire()

    def on_opened(self) -> None:
        """The replicas that this node should have are open, or it has become known which those are."""
        self._changed.fire()

    def _on_leaders(self, changed: list[PartitionKey]) -> None:
        for key in changed:
            leadership = self._announcer.table.get(*key)
            if leadership is not None and leadership.leader_id == NO_LEADER:
                self._vacant_since_ms[key] = self._clock()
                self._unled[key[0]] = None
            else:
                self._vacant_since_ms.pop(key, None)
        self._changed.fire()
