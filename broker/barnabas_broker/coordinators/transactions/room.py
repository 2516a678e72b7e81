"""Counts what transactional ids hold, and says how much more there is room for. Pure.

All ids that a broker coordinates hold `Room.limit_bytes` at most. The count takes the bytes of each id's record, which
has everything that a client can make longer, and a flat sum for each thing beside it: Python's objects around it,
measured and rounded up.

*A reserve:* new ids may use all but an eighth, partitions of transactions all but a sixteenth. What ends a transaction
needs no more than it had (and two bytes, if its end is kept), and is never refused: so room comes back.

Not here: requests that wait; they are their connections'.
"""

__all__ = ["ID_BYTES", "PLACE_BYTES", "Room", "bytes_of"]

ID_BYTES = 1_500
"""A transactional id, its two producers, its places in the table and the shard; 1,100 were measured."""
PLACE_BYTES = 200
"""A partition of a transaction, in the sets of what is committed, what is under way, and what lacks its marker; 140."""


def bytes_of(record_bytes: int, place_count: int) -> int:
    """Return how much an id takes whose record has so many bytes, and its transaction so many partitions."""
    return ID_BYTES + record_bytes + PLACE_BYTES * place_count


class Room:
    """The room of one broker. A shard that holds something changes `held_bytes`, up and down by the same."""

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    @property
    def for_ids_bytes(self) -> int:
        """Bytes that new ids may take; 0 or less: nothing."""
        return self.limit_bytes - self.limit_bytes // 8 - self.held_bytes

    @property
    def for_places_bytes(self) -> int:
        """Bytes that partitions that are added to transactions may take."""
        return self.limit_bytes - self.limit_bytes // 16 - self.held_bytes
