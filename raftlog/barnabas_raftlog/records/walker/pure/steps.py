"""The walk from one record of a batch to the next, offsets in order, in Python. Pure."""

from collections.abc import Iterator

from barnabas_raftlog.records.walker.arrow_parts import Part
from barnabas_raftlog.records.walker.faults import Fault

from .walk import Cursor, FaultError, Seen, walk_record

__all__ = ["steps"]


def steps(part: Part) -> Iterator[Seen]:
    """Yield the records of a batch.

    Raises:
        FaultError: one is not sound, or bytes follow the last one.
    """
    cursor = Cursor(part.body)
    next_delta = 0
    for _ in range(part.record_count):
        seen = walk_record(cursor, part.base_timestamp)
        if not next_delta <= seen.offset_delta <= part.last_offset_delta:
            raise FaultError(Fault.OFFSET)
        next_delta = seen.offset_delta + 1
        yield seen
    if cursor.position != len(part.body):
        raise FaultError(Fault.BEHIND)
