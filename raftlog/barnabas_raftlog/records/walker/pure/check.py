"""Checks the records of a batch, in Python. Pure."""

from barnabas_raftlog.records.walker.faults import Fault, Walked

from .walk import INT64_MAX, INT64_MIN, Buffer, Cursor, FaultError, walk_record

__all__ = ["check"]

_NONE = -1  # of a walk over no records


def check(body: Buffer, count: int, base_timestamp: int, last_offset_delta: int, *, is_dense: bool) -> Walked:
    """Walk over the `count` records of a plain body, and return what was seen, up to the first fault.

    Args:
        body: The records of a batch, decompressed.
        count: How many there are to be, by the header.
        base_timestamp: The header's, in milliseconds.
        last_offset_delta: The header's; no record may be beyond it.
        is_dense: Offsets must be 0, 1, 2 ...; else each must be larger than the one before.
    """
    cursor = Cursor(body)
    next_delta = null_keys = number = 0
    min_timestamp, max_timestamp = INT64_MAX, INT64_MIN

    def walked(fault: Fault) -> Walked:
        if not number:
            return Walked(fault, number, cursor.position, _NONE, _NONE, 0)
        return Walked(fault, number, cursor.position, min_timestamp, max_timestamp, null_keys)

    while number < count:
        try:
            seen = walk_record(cursor, base_timestamp)
        except FaultError as error:
            return walked(error.fault)
        if not next_delta <= seen.offset_delta <= last_offset_delta or (is_dense and seen.offset_delta != next_delta):
            return walked(Fault.OFFSET)
        next_delta = seen.offset_delta + 1
        min_timestamp = min(min_timestamp, seen.timestamp)
        max_timestamp = max(max_timestamp, seen.timestamp)
        null_keys += seen.key_size < 0
        number += 1
    return walked(Fault.NONE if cursor.position == len(body) else Fault.BEHIND)
