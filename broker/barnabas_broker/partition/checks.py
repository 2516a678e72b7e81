"""Checks batches where they may take the time: on the loop those of 2 ms at most, the others in a thread. Pure.

Measured with the compiled walker: 12 ns a record, 1 µs a batch; at worst, a record of nothing but empty headers, 3.3 ns
a byte. So plain batches of usual sizes are checked on the loop, and the worst of a mebibyte takes 3.5 ms. In Python it
is 3.2 µs a record and 490 ns a byte, so there only small ones are.

The plain size of a compressed batch is not known before it is there. One is tried on the loop up to a size (gzip yields
a mebibyte of random letters in 1.6 ms, the others in 0.5 ms, of zeros in 0.8 ms) and goes to a thread from the start if
it is larger as it came, or has more records than fit. In a thread it is short up to `SHORT_BYTES_MAX` plain bytes.
"""

from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import COMPRESSION_MASK, HEADER_BYTES, BatchHeader
from barnabas_raftlog.records.inside import PLAIN_BYTES_MAX, TooLargePlainError
from barnabas_raftlog.records.reader import RECORD_BYTES_MIN
from barnabas_raftlog.records.walker.twins import IS_COMPILED

from .record_rules import Checked, RecordRules, check_records

__all__ = ["SHORT_BYTES_MAX", "TakesLongError", "check_at_once", "check_in_thread", "is_surely_short"]

AT_ONCE_NS = 2_000_000
WORST_NS = 4_000_000  # of a batch that was made to take long; nobody may have 10 ms of the loop
RECORD_NS, WORST_BYTE_NS = (12.0, 3.3) if IS_COMPILED else (3_200.0, 490.0)
COMPRESSED_AT_ONCE = {
    Compression.GZIP: 512 << 10,
    Compression.SNAPPY: 1 << 20,
    Compression.LZ4: 1 << 20,
    Compression.ZSTD: 1 << 20,
}
SHORT_BYTES_MAX = 8 << 20
"""Plain bytes of a check in a thread that does not count as long: 10 to 30 ms."""


class TakesLongError(Exception):
    """A check goes no further, because it may not take long."""


def check_at_once(header: BatchHeader, frame: memoryview, rules: RecordRules, wall_ms: int) -> Checked | None:
    """Check a batch as `check_records` does if that takes little time; else return None.

    Raises:
        RefusedBatchError: the records cannot be read, or are not such as the topic takes.
    """
    plain_bytes_max = _bytes_at_once(header, len(frame)) if rules.is_validated else PLAIN_BYTES_MAX
    if not plain_bytes_max:
        return None
    try:
        return check_records(header, frame, rules, wall_ms, plain_bytes_max)
    except TooLargePlainError:
        return None


def check_in_thread(header: BatchHeader, frame: memoryview, rules: RecordRules, wall_ms: int, is_long: bool) -> Checked:
    """Check a batch as `check_records` does; if it may not take long, up to `SHORT_BYTES_MAX` plain bytes.

    Raises:
        RefusedBatchError: the records cannot be read, or are not such as the topic takes.
        TakesLongError: there are more.
    """
    try:
        return check_records(header, frame, rules, wall_ms, PLAIN_BYTES_MAX if is_long else SHORT_BYTES_MAX)
    except TooLargePlainError as error:
        raise TakesLongError from error


def is_surely_short(header: BatchHeader, frame: memoryview, rules: RecordRules) -> bool:
    """Tell whether `check_at_once` will check it, whatever is in it."""
    if not rules.is_validated:
        return True
    return not header.attributes & COMPRESSION_MASK and _bytes_at_once(header, len(frame)) > 0


def _bytes_at_once(header: BatchHeader, size_bytes: int) -> int:
    """Return how many plain bytes of a batch of `size_bytes` may be walked on the loop; 0: it is for a thread."""
    if header.record_count * RECORD_NS > AT_ONCE_NS:
        return 0
    bytes_max = int(WORST_NS / WORST_BYTE_NS)
    compression = header.attributes & COMPRESSION_MASK
    if not compression:
        return size_bytes if size_bytes - HEADER_BYTES <= bytes_max else 0
    bytes_max = min(bytes_max, COMPRESSED_AT_ONCE.get(Compression(compression), 0))
    return bytes_max if max(size_bytes, header.record_count * RECORD_BYTES_MIN) <= bytes_max else 0
