"""Walks the records of one batch that a stranger sent, in bounded memory. Pure.

What produce asks before it takes a batch, and whoever else looks into one that nobody has validated. A plain body is
walked where it lies. A compressed one comes out piece by piece (`pieces.py`), and each piece is walked before the next
is asked for: at the first fault no further byte is decompressed.
"""

from typing import NamedTuple

from .compression import DECOMPRESSED_BYTES_MAX, TooLargePlainError
from .header import COMPRESSION_MASK, HEADER_BYTES, BatchHeader
from .pieces import plain_pieces, small_body
from .walker.faults import Walked
from .walker.twins import StreamCheck, check

__all__ = ["PLAIN_BYTES_MAX", "Inside", "TooLargePlainError", "check_due", "check_inside", "check_pieces"]

PLAIN_BYTES_MAX = DECOMPRESSED_BYTES_MAX
"""What a batch may be, decompressed, by default: 128 MiB."""


Buffer = bytes | bytearray | memoryview


class Inside(NamedTuple):
    """What is inside a batch. `plain_bytes` is the size of its records, as far as they were walked over."""

    walked: Walked
    plain_bytes: int


def check_inside(
    header: BatchHeader, frame: memoryview, *, is_dense: bool, plain_bytes_max: int = PLAIN_BYTES_MAX
) -> Inside:
    """Walk over the records of a batch whose header was verified, up to the first fault.

    May run in a thread: the GIL is released while it decompresses and walks.

    Args:
        header: Of the batch.
        frame: The whole batch.
        is_dense: Offsets must be 0, 1, 2 ...; else each must be larger than the one before.
        plain_bytes_max: Of the records, decompressed.

    Raises:
        TooLargePlainError: the records are larger, or the length of one says that they would be.
        CorruptBatchError: the codec cannot read the body.
    """
    data = frame[HEADER_BYTES:]
    codec_id = header.attributes & COMPRESSION_MASK
    body: Buffer | None = data
    if codec_id:
        body = small_body(codec_id, data)
        if body is None:
            return check_pieces(header, data, plain_bytes_max, is_dense=is_dense)
    assert body is not None
    if len(body) > plain_bytes_max:
        raise TooLargePlainError(f"{len(body)} bytes of records, the most is {plain_bytes_max}")
    walked = check(body, header.record_count, header.base_timestamp, header.last_offset_delta, is_dense=is_dense)
    return Inside(walked, len(body))


def check_pieces(
    header: BatchHeader, data: memoryview, plain_bytes_max: int, *, is_dense: bool, plain: bytearray | None = None
) -> Inside:
    """Walk over a compressed body, piece by piece; what is sound comes to the end of `plain`, if it is given.

    Raises:
        TooLargePlainError, CorruptBatchError: as `check_inside`.
    """
    stream = StreamCheck(header.record_count, header.base_timestamp, header.last_offset_delta, is_dense=is_dense)
    plain_bytes = 0
    for piece in plain_pieces(header.attributes & COMPRESSION_MASK, data, plain_bytes_max):
        plain_bytes += len(piece)
        if not stream.feed(piece):
            return Inside(stream.end(is_cut_short=True), plain_bytes)
        check_due(stream.bytes_due, plain_bytes_max)
        if plain is not None:
            plain += piece
    return Inside(stream.end(), plain_bytes)


def check_due(bytes_due: int, bytes_max: int) -> None:
    """Raise TooLargePlainError if a record says of itself that it ends beyond `bytes_max`."""
    if bytes_due > bytes_max:
        raise TooLargePlainError(f"a record up to byte {bytes_due}, the most is {bytes_max}")
