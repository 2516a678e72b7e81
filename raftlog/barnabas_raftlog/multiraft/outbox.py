"""What a node says to each peer within one drive, gathered over all groups and sent as one frame.

Limit: when more than `ENTRIES_BYTES_MAX` wait unsent in this process for a peer, entries and snapshots for it are
dropped; at `links.CONGESTED_BYTES` so is everything. Raft forgives: heartbeats still say who leads, and the leader
sends again what was never acknowledged.
"""

from collections.abc import Sequence
from typing import Protocol

from barnabas_raftlog.raft.messages import AppendEntries, GroupId, InstallSnapshot, Message

from .framing import Buffer
from .wire import Addressed, encode_messages

__all__ = ["FrameSender", "Outbox"]

ENTRIES_BYTES_MAX = 32 << 20


class FrameSender(Protocol):
    """The part of `Links` that an outbox needs."""

    def is_connected(self, node_id: int) -> bool: ...

    def buffered_bytes(self, node_id: int) -> int: ...

    def send_frames(self, node_id: int, frames: Sequence[list[Buffer]]) -> bool: ...


class Outbox:
    """All unsent messages of one node; empty between drives."""

    __slots__ = ("_directory_id", "_links", "_queues", "dropped", "sent")

    def __init__(self, links: FrameSender, directory_id: bytes) -> None:
        self._links, self._directory_id = links, directory_id
        self._queues: dict[int, list[Addressed]] = {}
        self.sent = 0
        self.dropped = 0

    def add(self, group_id: GroupId, messages: Sequence[Message]) -> None:
        for message in messages:
            queue = self._queues.get(message.target)
            if queue is None:
                self._queues[message.target] = [(group_id, message)]
            else:
                queue.append((group_id, message))

    def flush(self) -> list[Addressed]:
        """Send everything; return the messages that fit in no frame, which sending again would not help."""
        unsendable: list[Addressed] = []
        queues, self._queues = self._queues, {}
        for node_id, messages in queues.items():
            if not self._links.is_connected(node_id):
                self.dropped += len(messages)
                continue
            wanted = messages
            if self._links.buffered_bytes(node_id) > ENTRIES_BYTES_MAX:
                wanted = [item for item in messages if not _is_heavy(item[1])]
            frames, oversized = encode_messages(wanted, self._directory_id)
            if self._links.send_frames(node_id, frames):
                self.sent += len(wanted)
                self.dropped += len(messages) - len(wanted)
            else:
                self.dropped += len(messages)
            unsendable += oversized
        return unsendable


def _is_heavy(message: Message) -> bool:
    return isinstance(message, InstallSnapshot) or (isinstance(message, AppendEntries) and bool(message.entries))
