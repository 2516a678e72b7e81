"""Compresses a batch with another codec, in a few megabytes whatever comes out of it in between. Pure.

For topics that say which codec their batches are stored with (`compression.type`). The plain bytes go from the one
codec to the other piece by piece; only the result is held, and no more of it than a batch may have. Everything else of
the batch stays what it was. The libraries let go of the GIL while they work, so a loop beside it goes on.

*Levels* are those of Kafka. Its default for lz4, 9, is the fast kind, and any other level the thorough one; so it is
here, with 12 for all above, which the format does not know. A window of zstd is 2 MiB at most, with which the highest
level holds 40 MiB; a level of 20 would have 128 MiB of window and hold 700.
"""

import struct
from collections.abc import Iterator
from typing import Any, Protocol

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.wire.crc32c import crc32c

from .compression import XERIAL_HEADER, Compression, xerial_blocks
from .header import (
    BATCH_BYTES_MAX,
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    SIZE_PREFIX_BYTES,
    BatchHeader,
    parse_header,
)
from .pieces import gzip_library, plain_pieces

__all__ = ["DEFAULT_LEVELS", "TooLargeResultError", "recompress"]

Buffer = bytes | bytearray | memoryview

DEFAULT_LEVELS = {Compression.GZIP: -1, Compression.LZ4: 9, Compression.ZSTD: 3}
"""Kafka's, of the codecs that have levels."""
_PIECE_BYTES = 256 << 10
_LZ4_FAST = 9
_LZ4_THOROUGH_MIN = 3
_LZ4_THOROUGH_MAX = 12
_ZSTD_WINDOW_LOG_MAX = 21
_GZIP_WBITS = 31
_LENGTH_POSITION = 8
_INT = struct.Struct(">i")
_UNSIGNED = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")


class TooLargeResultError(BarnabasError):
    """A batch would be larger than it may be, in the other codec."""


class _Compressor(Protocol):
    """What those of gzip and zstd have in common, and the ones below."""

    def compress(self, data: Buffer, /) -> bytes: ...
    def flush(self) -> bytes: ...


def recompress(
    header: BatchHeader,
    frame: memoryview,
    compression: Compression,
    level: int,
    *,
    plain_bytes: int = 0,
    bytes_max: int = BATCH_BYTES_MAX,
) -> memoryview:
    """Return a batch with its records compressed with another codec; the new frame is writable.

    Args:
        header: The frame's.
        frame: The whole batch.
        compression: The codec.
        level: Kafka's, for codecs that have some.
        plain_bytes: The size of the records, decompressed, if it is known: the codec takes memory for so much only.
        bytes_max: The largest frame that may come of it.

    Raises:
        TooLargeResultError: a larger one would.
        CorruptBatchError: its records cannot be decompressed, or are more than a batch may have.
    """
    result = bytearray(frame[:HEADER_BYTES])
    compressor = _compressor(compression, level, plain_bytes)
    for piece in _cut(plain_pieces(header.attributes & COMPRESSION_MASK, frame[HEADER_BYTES:])):
        result += compressor.compress(piece)
        _check_size(len(result), compression, bytes_max)
    result += compressor.flush()
    _check_size(len(result), compression, bytes_max)
    _INT.pack_into(result, _LENGTH_POSITION, len(result) - SIZE_PREFIX_BYTES)
    _ATTRIBUTES.pack_into(result, CRC_START, header.attributes & ~COMPRESSION_MASK | compression)
    view = memoryview(result)
    _UNSIGNED.pack_into(result, CRC_POSITION, crc32c(view[CRC_START:]))
    assert parse_header(view).size_bytes == len(result)
    return view


def _check_size(size_bytes: int, compression: Compression, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        how = "uncompressed" if compression is Compression.NONE else f"compressed with {compression.name.lower()}"
        raise TooLargeResultError(f"a batch of more than {bytes_max} bytes when it is {how}; {bytes_max} are accepted")


def _cut(pieces: Iterator[Buffer]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), _PIECE_BYTES):
            yield view[start : start + _PIECE_BYTES]


def _compressor(compression: Compression, level: int, plain_bytes: int) -> _Compressor:
    if compression is Compression.GZIP:
        made: _Compressor = gzip_library().compressobj(level, wbits=_GZIP_WBITS)
        return made
    if compression is Compression.LZ4:
        return _Lz4(level)
    if compression is Compression.ZSTD:
        return _zstd(level, plain_bytes)
    return _Snappy() if compression is Compression.SNAPPY else _None()


def _zstd(level: int, plain_bytes: int) -> _Compressor:
    import zstandard  # noqa: PLC0415 - loaded when the first topic needs it, as those below

    by_level = zstandard.ZstdCompressionParameters.from_level(level, source_size=plain_bytes)
    window_log = min(by_level.window_log, _ZSTD_WINDOW_LOG_MAX)
    fitting = zstandard.ZstdCompressionParameters.from_level(level, source_size=plain_bytes, window_log=window_log)
    made: _Compressor = zstandard.ZstdCompressor(compression_params=fitting).compressobj()
    return made


class _Lz4:
    """The frame format with independent blocks, which is all that the Java client reads."""

    def __init__(self, level: int) -> None:
        import lz4.frame  # noqa: PLC0415

        thorough = min(max(level, _LZ4_THOROUGH_MIN), _LZ4_THOROUGH_MAX)
        self._stream: Any = lz4.frame.LZ4FrameCompressor(
            compression_level=0 if level == _LZ4_FAST else thorough, block_linked=False
        )
        self._begin = self._stream.begin()

    def compress(self, data: Buffer, /) -> bytes:
        begin, self._begin = self._begin, b""
        out: bytes = begin + self._stream.compress(data)
        return out

    def flush(self) -> bytes:
        out: bytes = self._begin + self._stream.flush()
        return out


class _Snappy:
    """Blocks of raw snappy in the framing of the xerial library."""

    def __init__(self) -> None:
        import cramjam  # noqa: PLC0415

        self._compress: Any = cramjam.snappy.compress_raw
        self._begin = XERIAL_HEADER

    def compress(self, data: Buffer, /) -> bytes:
        begin, self._begin = self._begin, b""
        return b"".join((begin, *xerial_blocks(self._compress, memoryview(data))))

    def flush(self) -> bytes:
        return self._begin


class _None:
    """No codec."""

    def compress(self, data: Buffer, /) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""
