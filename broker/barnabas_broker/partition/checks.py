"""Checks batches where they may take the time: on the loop those of 2 ms at most, the others in a thread. Pure.

*Plain batches.* Measured with the compiled walker: 12 ns a record, 1 us a batch; at worst, a record of nothing but
empty headers, 3.3 ns a byte. So those of usual sizes are checked on the loop, and the worst of a mebibyte takes 3.5 ms.
In Python it is 3.2 us a record and 490 ns a byte, so there only small ones are.

*Compressed ones.* They come in pieces, of which a record takes 25 ns, and a mebibyte 1 ms with most codecs, 3 ms with
gzip. Their plain size is not known before it is there. One is tried on the loop up to a size, for which
the codec and the walk take 2 ms, and goes to a thread from the start if it is larger as it came, or has more records
than fit. In a thread it is tried up to `SHORT_BYTES_MAX`, so that those behind it wait for 30 ms at most; one that is
larger waits with others of its kind (`check_threads`).

*Those that are compressed anew* are limited by what the other codec takes for a byte of text at the level.
"""

from typing import NamedTuple

from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import COMPRESSION_MASK, HEADER_BYTES, BatchHeader
from barnabas_raftlog.records.inside import PLAIN_BYTES_MAX, TooLargePlainError
from barnabas_raftlog.records.reader import RECORD_BYTES_MIN
from barnabas_raftlog.records.walker.twins import IS_COMPILED

from .record_rules import Checked, RecordRules, check_records

__all__ = ["SHORT_BYTES_MAX", "TakesLongError", "check_at_once", "check_in_thread", "is_surely_short"]

AT_ONCE_NS = 2_000_000
SHORT_NS = 30_000_000
WORST_NS = 4_000_000  # of a batch that was made to take long; nobody may have 10 ms of the loop
GZIP_AT_ONCE = 512 << 10
PLAIN_AT_ONCE = 1 << 20  # of the other codecs
SHORT_BYTES_MAX = 8 << 20
"""Plain bytes of a check in a thread that does not count as long: 10 to 30 ms."""
LZ4_FAST = 9
ZSTD_QUICK_MAX, ZSTD_USUAL_MAX = 3, 9


class AtOnce(NamedTuple):
    """What may be walked over on the loop: records, and their plain bytes."""

    records_max: int
    bytes_max: int


def limits(*, is_compiled: bool) -> tuple[AtOnce, ...]:
    """Return what may be walked over on the loop, by codec."""
    record_ns, pieced_record_ns, worst_byte_ns = (12.0, 25.0, 3.3) if is_compiled else (3_200.0, 3_200.0, 490.0)
    bytes_max = int(WORST_NS / worst_byte_ns)
    found = [AtOnce(int(AT_ONCE_NS / record_ns), bytes_max)]
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        codec_max = min(bytes_max, GZIP_AT_ONCE if codec is Compression.GZIP else PLAIN_AT_ONCE)
        found.append(AtOnce(min(int(AT_ONCE_NS / pieced_record_ns), codec_max // RECORD_BYTES_MIN), codec_max))
    return tuple(found)


LIMITS = limits(is_compiled=IS_COMPILED)


class TakesLongError(Exception):
    """A check goes no further, because it may not take long."""


def check_at_once(header: BatchHeader, frame: memoryview, rules: RecordRules, wall_ms: int) -> Checked | None:
    """Check a batch as `check_records` does if that takes little time; else return None.

    Raises:
        RefusedBatchError: the records cannot be read, or are not such as the topic takes.
    """
    plain_bytes_max = _bytes_at_once(header, len(frame), rules)
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
    plain_bytes_max = PLAIN_BYTES_MAX if is_long else SHORT_BYTES_MAX
    if rules.must_recompress(header) and not is_long:
        plain_bytes_max = min(plain_bytes_max, int(SHORT_NS / _compression_ns(rules)))
        if not rules.is_validated or len(frame) - HEADER_BYTES > plain_bytes_max:
            raise TakesLongError
    try:
        return check_records(header, frame, rules, wall_ms, plain_bytes_max)
    except TooLargePlainError as error:
        raise TakesLongError from error


def is_surely_short(header: BatchHeader, frame: memoryview, rules: RecordRules) -> bool:
    """Tell whether `check_at_once` will check it, whatever is in it."""
    is_plain = not header.attributes & COMPRESSION_MASK
    return (is_plain or not rules.is_validated) and _bytes_at_once(header, len(frame), rules) > 0


def _bytes_at_once(header: BatchHeader, size_bytes: int, rules: RecordRules) -> int:
    """Return how many plain bytes of a batch of `size_bytes` may be walked on the loop; 0: it is for a thread."""
    body_bytes = size_bytes - HEADER_BYTES
    compression = header.attributes & COMPRESSION_MASK
    must_recompress = rules.compression is not None and rules.must_recompress(header)
    if not rules.is_validated:
        # Unless it is plain, it may stand for any number of bytes.
        is_known = not must_recompress or (not compression and body_bytes * _compression_ns(rules) <= AT_ONCE_NS)
        return PLAIN_BYTES_MAX if is_known else 0
    records_max, bytes_max = LIMITS[compression]
    if must_recompress:
        bytes_max = min(bytes_max, int(AT_ONCE_NS / _compression_ns(rules)))
    return bytes_max if body_bytes <= bytes_max and header.record_count <= records_max else 0


def _compression_ns(rules: RecordRules) -> float:
    """Return what compressing a byte of text takes, as measured with text of random words."""
    compression, level = rules.compression, rules.level
    if compression is Compression.GZIP:
        return 40.0
    if compression is Compression.LZ4:
        return 8.0 if level == LZ4_FAST else 80.0
    if compression is Compression.ZSTD:
        return 10.0 if level <= ZSTD_QUICK_MAX else 100.0 if level <= ZSTD_USUAL_MAX else 1_200.0
    return 2.0
