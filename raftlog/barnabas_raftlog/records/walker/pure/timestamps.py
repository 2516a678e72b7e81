"""Finds records by their timestamps, in Python. Pure."""

from barnabas_raftlog.records.walker.arrow_parts import Part
from barnabas_raftlog.records.walker.faults import Fault
from barnabas_raftlog.records.walker.key_parts import Timed

from .steps import steps
from .walk import FaultError

__all__ = ["first_at", "largest_timestamp"]

_NONE = Timed(Fault.NONE, -1, -1)


def first_at(part: Part, timestamp_ms: int, start_offset: int) -> Timed:
    """Return the first record at or after `timestamp_ms`, of those from `start_offset` on.

    What follows that record is not looked at. A fault before it is returned, and no record.
    """
    try:
        for seen in steps(part):
            offset = part.base_offset + seen.offset_delta
            timestamp = seen.timestamp if part.append_timestamp is None else part.append_timestamp
            if timestamp >= timestamp_ms and offset >= start_offset:
                return Timed(Fault.NONE, offset, timestamp)
    except FaultError as error:
        return Timed(error.fault, -1, -1)
    return _NONE


def largest_timestamp(part: Part, start_offset: int) -> Timed:
    """Return the first record with the largest timestamp, of those from `start_offset` on; or a fault."""
    largest = _NONE
    try:
        for seen in steps(part):
            offset = part.base_offset + seen.offset_delta
            timestamp = seen.timestamp if part.append_timestamp is None else part.append_timestamp
            if offset >= start_offset and (largest.offset < 0 or timestamp > largest.timestamp):
                largest = Timed(Fault.NONE, offset, timestamp)
    except FaultError as error:
        return Timed(error.fault, -1, -1)
    return largest
