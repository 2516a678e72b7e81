"""Counts what transactional ids hold. Pure.

All ids that a broker coordinates have one `Room`. The count takes the bytes of each id's record, which has everything
that a client can make longer, and a flat sum for each thing beside it: Python's objects around it, measured and rounded
up.

*A reserve* is kept from newcomers, which are new ids, and some of it from partitions that are added to transactions.
What ends a transaction needs no more than it had (and two bytes, if its end is kept), and is never refused: so room
comes back.

Not here: requests that wait; they are their connections'.
"""

__all__ = ["ID_BYTES", "PLACE_BYTES", "bytes_of"]

ID_BYTES = 1_500
"""A transactional id, its two producers, its places in the table and the shard; 1,100 were measured."""
PLACE_BYTES = 200
"""A partition of a transaction, in the sets of what is committed, what is under way, and what lacks its marker; 140."""


def bytes_of(record_bytes: int, place_count: int) -> int:
    """Return how much an id takes whose record has so many bytes, and its transaction so many partitions."""
    return ID_BYTES + record_bytes + PLACE_BYTES * place_count
