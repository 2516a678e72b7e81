"""The faults that a walk over the records of a batch can find, and their words. Pure."""

from enum import IntEnum
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError

__all__ = ["HEADERS_MAX", "Fault", "Walked", "raise_fault"]

HEADERS_MAX = 65_536
"""The most headers that a record may have. The compiled walker has the number, too: change both.

A header may be two bytes, and is an object for whoever reads it: without a limit, 63 million of them fit a batch of 4
KiB that is compressed, and take 6 GB.
"""


class Fault(IntEnum):
    """What is wrong with the first record that is. The compiled walker has the numbers, too: change both."""

    NONE = 0
    VARINT = 1  # cut off by the end of its record, or of more bits than its field has
    LENGTH = 2  # of a record: negative, or beyond the body
    OFFSET = 3  # not the next one, or outside of the batch
    TIMESTAMP = 4  # does not fit 64 bits
    KEY = 5  # of a negative size that is not null, or beyond its record
    VALUE = 6
    HEADER_COUNT = 7  # negative, more than fit, or more than `HEADERS_MAX`
    HEADER_NAME = 8  # null, or as a key
    HEADER_VALUE = 9
    LONGER = 10  # the record goes on behind its headers
    BEHIND = 11  # bytes follow the last record


_WORDS = {
    Fault.VARINT: "a varint that is cut off, or too long",
    Fault.LENGTH: "a length that is negative, or beyond the batch",
    Fault.OFFSET: "an offset that is not the next one",
    Fault.TIMESTAMP: "a timestamp that does not fit 64 bits",
    Fault.KEY: "a key of a negative size, or beyond its record",
    Fault.VALUE: "a value of a negative size, or beyond its record",
    Fault.HEADER_COUNT: f"a negative number of headers, or more than fit or than {HEADERS_MAX:,}",
    Fault.HEADER_NAME: "a header without a name, or with one beyond its record",
    Fault.HEADER_VALUE: "the value of a header of a negative size, or beyond its record",
    Fault.LONGER: "bytes behind its headers",
}


class Walked(NamedTuple):
    """What a walk has seen: up to its end, or up to the first fault.

    Attributes:
        fault: What is wrong, if anything.
        record: The number of the record with the fault, from 0; the number of records if there is none.
        position: Where in the body the walk stood.
        min_timestamp, max_timestamp: Milliseconds since 1970, of the records before the fault; -1 if there are none.
        null_keys: How many records had no key.
    """

    fault: Fault
    record: int
    position: int
    min_timestamp: int
    max_timestamp: int
    null_keys: int

    @property
    def words(self) -> str:
        """What is wrong, in words; "" if nothing is."""
        if self.fault is Fault.NONE:
            return ""
        if self.fault is Fault.BEHIND:
            return f"bytes follow the last of {self.record} records, from {self.position} on"
        return f"record {self.record} has {_WORDS[self.fault]}, at {self.position}"


def raise_fault(walked: Walked, base_offset: int) -> None:
    """Raise CorruptBatchError if a walk has found a fault in the batch at `base_offset`."""
    if walked.fault is not Fault.NONE:
        raise CorruptBatchError(f"the batch at offset {base_offset}: {walked.words}")
