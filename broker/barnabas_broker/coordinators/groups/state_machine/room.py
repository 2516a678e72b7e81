"""Counts what groups hold. Pure.

*Two limits.* A group must be saved to be of any use, in one record; so a member that would make that record larger than
its log takes is refused before anything is changed (`record_bytes`, an upper bound that is known at any time: of
several protocols the longest counts, because nobody knows yet which one will be chosen). And all groups of a node
together, with their members, the ids that were given out, the records that are being saved or were, and the committed
offsets, have one `Room`.

*The count* takes everything that a client can make longer, byte for byte, and a flat sum for each thing beside it:
Python's objects around it, measured and rounded up. Bytes that are held once and named twice (a member says what the
record of its group says, too) count twice; they may be two in the next moment.

*A reserve* is kept from newcomers, which are members and new groups: a generation that has formed can then be given its
assignment, though nobody else finds room. Additions are offsets of partitions that had none, or a shorter note.

Not here: requests and answers on their way. They are their connections'.
"""

__all__ = [
    "GROUP_BYTES",
    "GROUP_RECORD_BYTES",
    "MEMBER_BYTES",
    "MEMBER_RECORD_BYTES",
    "OFFSET_BYTES",
    "PENDING_ID_BYTES",
    "SAVED_MEMBER_BYTES",
    "STAGED_BYTES",
    "TRANSACTION_BYTES",
    "UNLIMITED_BYTES",
    "text_bytes",
]

GROUP_BYTES = 2_500
"""A group, its lists of members, its place in the shard, its deadline."""
MEMBER_BYTES = 1_000
"""A member, its ticket, and its places in the lists of its group."""
SAVED_MEMBER_BYTES = 300
"""The same member in a record that is on its way to the log."""
PENDING_ID_BYTES = 200
OFFSET_BYTES = 300
"""A committed offset with its key, or one that is under way."""
STAGED_BYTES = 450
"""An offset that is staged, its key, and its place among those of its group and of its transaction."""
TRANSACTION_BYTES = 350
"""A transaction that has something staged."""
GROUP_RECORD_BYTES = 28
"""The fixed fields of a group's record and its key: lengths, version, generation, time, number of members."""
MEMBER_RECORD_BYTES = 24
"""The fixed fields of a member in it: six lengths, two timeouts."""
UNLIMITED_BYTES = 1 << 62


def text_bytes(*texts: str | None) -> int:
    """Return how many bytes these texts take, as UTF-8."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts if text)
