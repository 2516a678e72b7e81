"""Gathers a drive's messages to each peer, over all groups, into few frames.

Limit: when more than `ENTRIES_BYTES_MAX` wait unsent in this process for a peer, entries and snapshots for it are
dropped; at `links.CONGESTED_BYTES` so is everything. Raft forgives: heartbeats still say who leads, and the leader
sends entries again that were never acknowledged.

*Much at once.* A follower that lacks much is sent tens of megabytes, which take long to write. Frames beyond
`FLUSHED_BYTES` for a peer leave in the next drives, one or more in each, before any later message.
"""

from collections.abc import Sequence

from barnabas_raftlog.links.framing import Buffer
from barnabas_raftlog.links.interfaces import FrameSender
from barnabas_raftlog.links.raft_frames import Addressed, encode_messages
from barnabas_raftlog.raft.messages import AppendEntries, GroupId, InstallSnapshot, Message

__all__ = ["Outbox"]

ENTRIES_BYTES_MAX = 32 << 20
FLUSHED_BYTES = 1 << 20  # to write so much takes about a millisecond


_Sized = tuple[int, list[Buffer]]
NO_FRAMES: list[_Sized] = []  # never changed


class Outbox:
    """All unsent messages of one node. Between drives: only frames that were too many for one (`is_behind`)."""

    __slots__ = ("_directory_id", "_frames", "_links", "_queues", "dropped", "is_behind", "sent")

    def __init__(self, links: FrameSender, directory_id: bytes) -> None:
        self._links = links
        self._directory_id = directory_id
        self._queues: dict[int, list[Addressed]] = {}
        self._frames: dict[int, list[_Sized]] = {}  # by peer, in order
        self.is_behind = False
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
        """Send all messages; return those that fit in no frame, which sending again would not help."""
        unsendable: list[Addressed] = []
        queues, self._queues = self._queues, {}
        for node_id in self._frames:
            queues.setdefault(node_id, [])
        for node_id, messages in queues.items():
            if not self._links.is_connected(node_id):
                self._frames.pop(node_id, None)
                self.dropped += len(messages)
                continue
            wanted = messages
            waiting = NO_FRAMES
            waiting_bytes = self._links.buffered_bytes(node_id)
            if self._frames and node_id in self._frames:
                waiting = self._frames.pop(node_id)
                waiting_bytes += sum([size for size, _ in waiting])
            if waiting_bytes > ENTRIES_BYTES_MAX:
                wanted = [item for item in messages if not _is_heavy(item[1])]
            frames, oversized = encode_messages(wanted, self._directory_id)
            if waiting or frames[1:]:
                frames = self._first_of(node_id, waiting, frames)
            if self._links.send_frames(node_id, frames):
                self.sent += len(wanted)
                self.dropped += len(messages) - len(wanted)
            else:
                self._frames.pop(node_id, None)
                self.dropped += len(messages)
            unsendable += oversized
        self.is_behind = bool(self._frames)
        return unsendable

    def _first_of(self, node_id: int, waiting: list[_Sized], frames: list[list[Buffer]]) -> list[list[Buffer]]:
        """Return the frames to be sent now of all these, and keep the rest."""
        waiting = [*waiting, *[(sum([len(buffer) for buffer in frame]), frame) for frame in frames]]
        count = 0
        size_bytes = 0
        while count < len(waiting) and size_bytes < FLUSHED_BYTES:
            size_bytes += waiting[count][0]
            count += 1
        if count < len(waiting):
            self._frames[node_id] = waiting[count:]
        return [frame for _, frame in waiting[:count]]


def _is_heavy(message: Message) -> bool:
    return isinstance(message, InstallSnapshot) or (isinstance(message, AppendEntries) and bool(message.entries))
