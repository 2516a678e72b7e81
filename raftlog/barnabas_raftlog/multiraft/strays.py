"""Keeps messages for groups that this node does not host yet, for a moment. Pure.

When a topic is created, its replicas open their logs at different moments, and the first of them asks for votes
before the others listen. Keeping that question for two seconds makes the first election immediate instead of a
retry later. Of heartbeats the newest is kept: a node that is slow to open its groups hears ten a second of each.
Messages for a group that was removed here are dropped: that node's core is gone for good.

Limits: `MESSAGES_MAX` and `BYTES_MAX` over all groups, the newest is dropped; `LIFE_MS`; `REMOVED_MAX` removed
groups are remembered, the oldest is forgotten first.
"""

from barnabas_raftlog.links.raft_frames import payload_bytes_of
from barnabas_raftlog.raft.messages import AppendEntries, GroupId, InstallSnapshot, Message, PeerDigest, VoteRequest

__all__ = ["Strays"]

LIFE_MS = 2_000
SWEEP_MS = 500  # at least between two looks at all of them; `claim` looks at the age of its own
MESSAGES_MAX = 10_000
BYTES_MAX = 32 << 20
REMOVED_MAX = 10_000


class Strays:
    """The stray messages of one node. `dropped` counts those that nobody will see."""

    def __init__(self) -> None:
        self._kept: dict[GroupId, list[tuple[int, Message]]] = {}
        self._removed: dict[GroupId, None] = {}
        self._count = 0
        self._bytes = 0
        self._oldest_ms = 0
        self._next_sweep_ms = 0
        self.dropped = 0

    def keep(self, group_id: GroupId, message: Message | PeerDigest, now_ms: int) -> None:
        size = 0 if isinstance(message, PeerDigest) else payload_bytes_of(message)
        if (
            group_id in self._removed
            or not isinstance(message, VoteRequest | AppendEntries | InstallSnapshot)
            or self._count >= MESSAGES_MAX
            or self._bytes + size > BYTES_MAX
        ):
            self.dropped += 1
            return
        if not self._count:
            self._oldest_ms = now_ms
        kept = self._kept.setdefault(group_id, [])
        if kept and _is_heartbeat(message) and _is_heartbeat(kept[-1][1]) and message.source == kept[-1][1].source:
            kept[-1] = (now_ms, message)
            return
        kept.append((now_ms, message))
        self._count += 1
        self._bytes += size

    def claim(self, group_id: GroupId, now_ms: int) -> list[Message]:
        """Return, in order, the messages that are young enough, for a group that is hosted from now on."""
        self._removed.pop(group_id, None)
        kept = self._kept.pop(group_id, [])
        self._count -= len(kept)
        self._bytes -= sum([payload_bytes_of(message) for _, message in kept])
        return [message for at_ms, message in kept if now_ms - at_ms < LIFE_MS]

    def remove(self, group_id: GroupId) -> None:
        self._removed[group_id] = None
        if len(self._removed) > REMOVED_MAX:
            del self._removed[next(iter(self._removed))]

    def expire(self, now_ms: int) -> None:
        """Forget old messages, now and then. Costs nothing while the oldest message is young."""
        if not self._count or now_ms - self._oldest_ms < LIFE_MS or now_ms < self._next_sweep_ms:
            return
        self._next_sweep_ms = now_ms + SWEEP_MS
        before = self._count
        self._kept = {
            group_id: young
            for group_id, kept in self._kept.items()
            if (young := [item for item in kept if now_ms - item[0] < LIFE_MS])
        }
        self._count = sum(map(len, self._kept.values()))
        self._bytes = sum([payload_bytes_of(message) for kept in self._kept.values() for _, message in kept])
        self._oldest_ms = min((kept[0][0] for kept in self._kept.values()), default=now_ms)
        self.dropped += before - self._count


def _is_heartbeat(message: Message) -> bool:
    return isinstance(message, AppendEntries) and not message.entries
