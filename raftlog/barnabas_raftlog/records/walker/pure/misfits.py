"""Names the records of a batch that a topic does not take, in Python. Pure."""

from .walk import Buffer, Cursor, FaultError, walk_record

__all__ = ["misfits"]

_NO_TIMESTAMP = -1


def misfits(
    body: Buffer,
    count: int,
    base_timestamp: int,
    *,
    needs_key: bool,
    timestamp_min: int,
    timestamp_max: int,
    limit: int,
) -> list[tuple[int, int, bool]]:
    """Return the number, from 0, the timestamp and whether the key is missing of the records that do not fit.

    A timestamp of -1, which means none, always fits. The walk ends at the first fault.

    Args:
        body: The records of a batch, decompressed.
        count: How many there are, by the header.
        base_timestamp: The header's, in milliseconds.
        needs_key: A record without a key does not fit.
        timestamp_min: The first timestamp that fits, in 64 bits.
        timestamp_max: The last one.
        limit: Return at most so many: the first ones.
    """
    cursor = Cursor(body)
    found: list[tuple[int, int, bool]] = []
    for number in range(count):
        if len(found) >= limit:
            break
        try:
            seen = walk_record(cursor, base_timestamp)
        except FaultError:
            break
        timestamp = seen.timestamp
        is_keyless = needs_key and seen.key_size < 0
        if is_keyless or (timestamp != _NO_TIMESTAMP and not timestamp_min <= timestamp <= timestamp_max):
            found.append((number, timestamp, is_keyless))
    return found
