"""Says what is wrong with a record that a reader could not read. Pure.

A reader that makes objects stops at the first record that is not sound, and asks here what it is. So its twins use the
same words, and need not know more than that something is wrong.
"""

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.walker.batch_frame import BatchFrame
from barnabas_raftlog.records.walker.faults import Walked

from .walk import Buffer, Cursor, FaultError, walk_record

__all__ = ["damage_from"]


def damage_from(body: Buffer, position: int, number: int, delta_min: int, frame: BatchFrame) -> CorruptBatchError:
    """Return the error for the first record that is not sound of those that begin at `position`. There must be one.

    Args:
        body: The records of a batch, decompressed.
        position: Where a record begins, that one or one before it.
        number: The number of the record at `position`, from 0.
        delta_min: The least distance in offset from the base offset that it may have.
        frame: The batch.
    """
    cursor = Cursor(body, position)
    while True:
        try:
            seen = walk_record(cursor, frame.base_timestamp)
        except FaultError as error:
            return CorruptBatchError(Walked(error.fault, number, cursor.position, -1, -1, 0).words)
        if not delta_min <= seen.offset_delta <= frame.last_delta:
            due = f"{delta_min} to {frame.last_delta}"
            return CorruptBatchError(f"record {number} has offset delta {seen.offset_delta} where {due} is due")
        delta_min = seen.offset_delta + 1
        number += 1
