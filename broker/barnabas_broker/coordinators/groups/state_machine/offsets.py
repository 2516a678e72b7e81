"""Keeps the committed offsets of one offsets partition, and says which have outlived their use. Pure.

*Two moments.* An offset is *appended* when its record is in the coordinator's log, and *committed* when a majority has
it. Only committed offsets are here to be read: an offset that a fetch has answered must survive every failover. In
between it is *under way* (`coordinators.runtime.under_way`).

*Expiry* (KIP-211). While a group has members, the offsets of topics that they subscribe to stay; the others go
`retention_ms` after their commit. When the last member has left, everything goes `retention_ms` after that, or after
the commit if that was later. A group that never had members (positions stored from outside) has only the times of its
commits. An expiry time that the client set itself (OffsetCommit before version 5) counts instead of all of this.

*A topic's id* is stored with an offset where the client's or the broker's knowledge allows. A topic that was deleted
and made again has another id; an offset of the old one says nothing about the new one, and is not returned.

Limit: none of its own; offsets count towards that of all groups of a node (`room`).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from .records import NO_TIMESTAMP, NO_TOPIC_ID, CommittedOffset, OffsetKey, encode_offset, encode_offset_key
from .room import OFFSET_BYTES

__all__ = ["Membership", "OffsetTable", "expired", "in_batches", "record_of", "size_of"]

RECORD_OVERHEAD_BYTES = 12
"""Bytes that a record takes beside key and value: lengths, deltas, its share of a batch's header."""

V = TypeVar("V", bound=CommittedOffset | None)
Batch = tuple[list[tuple[OffsetKey, V]], list[tuple[bytes, bytes | None]]]
"""Changes, and the record of each."""
PartitionOffsets = dict[tuple[str, int], CommittedOffset]


class Membership(NamedTuple):
    """Everything that expiry asks about a group.

    `empty_since_ms`: since when it has no members, in milliseconds since 1970; None: it has some, or never had any.
    `subscribed`: the topics of its members; None: not known, so any topic may be one of them.
    """

    has_members: bool
    empty_since_ms: int | None = None
    subscribed: Container[str] | None = None


class OffsetTable:
    """Committed offsets by group.

    Invariants: no group has an empty dictionary; `count` says how many offsets there are, and `live_bytes` is the sum
    of `size_of` over them.
    """

    __slots__ = ("_groups", "count", "live_bytes")

    def __init__(self) -> None:
        self._groups: dict[str, PartitionOffsets] = {}
        self.count = self.live_bytes = 0

    def __len__(self) -> int:
        return self.count

    @property
    def held_bytes(self) -> int:
        """Memory that they take (`room`)."""
        return self.count * OFFSET_BYTES + self.live_bytes

    def growth(self, key: OffsetKey, value: CommittedOffset) -> int:
        """Return by how much more memory is held when that is stored; negative if it is less than before."""
        old = self.get(key)
        return size_of(key, value) - size_of(key, old) if old is not None else OFFSET_BYTES + size_of(key, value)

    def group_ids(self) -> Iterable[str]:
        """Return the groups that have committed something; a view."""
        return self._groups.keys()

    def of_group(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Return the committed offsets of a group by (topic, partition); a view, not to be kept over an await."""
        return self._groups.get(group_id, {})

    def keys(self) -> list[OffsetKey]:
        """Return every key that has a committed offset now."""
        return [
            OffsetKey(group_id, topic, partition)
            for group_id, offsets in self._groups.items()
            for topic, partition in offsets
        ]

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        offsets = self._groups.get(key.group_id)
        return None if offsets is None else offsets.get((key.topic, key.partition))

    def get_for(self, key: OffsetKey, topic_id: bytes) -> CommittedOffset | None:
        """As `get`, but nothing if it was committed for another topic of that name. An id of zeros is any topic."""
        found = self.get(key)
        if found is None or topic_id == NO_TOPIC_ID or found.topic_id in {NO_TOPIC_ID, topic_id}:
            return found
        return None

    def put(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        """Take in a committed record; None is a tombstone."""
        offsets = self._groups.get(key.group_id)
        if offsets is None:
            if value is None:
                return
            offsets = self._groups[key.group_id] = {}
        place = (key.topic, key.partition)
        old = offsets.pop(place, None)
        if old is not None:
            self.live_bytes -= size_of(key, old)
            self.count -= 1
        if value is not None:
            offsets[place] = value
            self.live_bytes += size_of(key, value)
            self.count += 1
        elif not offsets:
            del self._groups[key.group_id]


def size_of(key: OffsetKey, value: CommittedOffset) -> int:
    """Return how many bytes the record takes in the log, roughly: its own and a little for the frame around it."""
    text = len(key.group_id) + len(key.topic) + len(value.metadata)
    return text + 10 + 22 + (19 if value.topic_id != NO_TOPIC_ID else 0) + RECORD_OVERHEAD_BYTES


def record_of(key: OffsetKey, value: CommittedOffset | None) -> tuple[bytes, bytes | None]:
    """Return key and value of the record that says so. Raises ValueError as `encode_offset_key`."""
    return encode_offset_key(key), None if value is None else encode_offset(value)


def in_batches(changes: Sequence[tuple[OffsetKey, V]], bytes_max: int) -> "list[Batch[V]]":
    """Return the changes with their records, cut into batches of about so many bytes. Raises ValueError as above."""
    batches: list[Batch[V]] = []
    size_bytes = bytes_max
    for change in changes:
        key, value = record = record_of(*change)
        record_bytes = len(key) + len(value or b"")
        size_bytes += record_bytes
        if size_bytes > bytes_max:
            batches.append(([], []))
            size_bytes = record_bytes
        batches[-1][0].append(change)
        batches[-1][1].append(record)
    return batches


def expired(
    offsets: Mapping[tuple[str, int], CommittedOffset], membership: Membership, now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    """Return which offsets of one group have outlived their use; see the module."""
    gone = []
    for (topic, partition), value in offsets.items():
        if value.expire_timestamp_ms != NO_TIMESTAMP:
            is_over = value.expire_timestamp_ms <= now_ms
        elif membership.has_members:
            subscribed = membership.subscribed
            is_used = subscribed is None or topic in subscribed
            is_over = not is_used and value.commit_timestamp_ms + retention_ms <= now_ms
        else:
            since_ms = max(value.commit_timestamp_ms, membership.empty_since_ms or 0)
            is_over = since_ms + retention_ms <= now_ms
        if is_over:
            gone.append((topic, partition))
    return gone
