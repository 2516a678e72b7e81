"""The codecs of a record batch's body; decompression is bounded. Pure.

A batch names its codec in the low three bits of its attributes. Everything goes through `cramjam`, which is
imported when the first compressed batch is met: a broker never meets one, and the command line starts faster.

*Bounds.* A few kilobytes can decompress to gigabytes, and the size that a frame states about itself is the
sender's claim. So output is always decompressed *into* a buffer that we allocated, which cannot grow. The claimed
size, where the format has one, is only the first guess; each further guess is four times larger, up to the limit
that the caller gives, or what the format can make of so many bytes. There the batch is called corrupt. A corrupt body
therefore costs as many attempts as there are guesses, each of which fails at the same place. A claim beyond the limit
costs none: the sizes of zstd and lz4 must be right, and the one at the end of a gzip is at most what comes out.

*Snappy* has two shapes in Kafka. Java writes blocks of raw snappy behind a 16-byte header (the framing of the
xerial library), most others write the same for its sake, librdkafka also raw snappy without framing. Both are read;
framed is written.

*LZ4* is the frame format with independent blocks; the Java client refuses linked ones. What is written has no
checksums, as what the Java client and librdkafka write: the batch has one. Those of a mebibyte take a millisecond to
make, and 0.4 ms to check, four and six times what the codec takes; the library's own frames have them, whatever it is
told, so they are put together here.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from barnabas_raftlog.errors import CorruptBatchError

__all__ = [
    "DECOMPRESSED_BYTES_MAX",
    "SNAPPY_RATIO_MAX",
    "XERIAL_HEADER",
    "XERIAL_MAGIC",
    "Compression",
    "TooLargePlainError",
    "compress",
    "decompress",
    "snappy_blocks",
    "xerial_blocks",
]

Buffer = bytes | bytearray | memoryview

# A batch is at most a few megabytes compressed; 128 MiB leaves room for a ratio of 100 and still fits an executor.
DECOMPRESSED_BYTES_MAX = 128 << 20

_FIRST_GUESS_BYTES_MIN = 1 << 16
_GUESS_FACTOR = 4

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version and lowest compatible version
_XERIAL_BLOCK_BYTES = 32 << 10  # as the Java library cuts
_BLOCK_SIZE = struct.Struct(">i")

_GZIP_LEVEL = 6
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # independent blocks of at most 64 KiB, no checksums, no content size
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_AS_IT_IS = 1 << 31  # in the size of a block that did not become smaller
_LZ4_END = bytes(4)
_LZ4_SIZE = struct.Struct("<I")
_ZSTD_LEVEL = 3


class TooLargePlainError(CorruptBatchError):
    """A body that would be larger, decompressed, than whoever reads it allows."""


class Compression(IntEnum):
    """Codec ids as attributes carry them."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@cache
def _cramjam() -> Any:
    import cramjam  # noqa: PLC0415 - see the module's first paragraph

    return cramjam


def compress(codec: Compression, data: Buffer) -> Buffer:
    """Return `data` compressed; for `NONE` the same object."""
    if codec is Compression.NONE:
        return data
    library = _cramjam()
    if codec is Compression.SNAPPY:
        return b"".join((XERIAL_HEADER, *xerial_blocks(library.snappy.compress_raw, memoryview(data))))
    if codec is Compression.LZ4:
        return b"".join((_LZ4_HEADER, *_lz4_blocks(library.lz4.compress_block, memoryview(data)), _LZ4_END))
    if codec is Compression.GZIP:
        return bytes(library.gzip.compress(data, level=_GZIP_LEVEL))
    return bytes(library.zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(codec_id: int, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return the plain bytes of a body; for codec 0 `data` itself, without a copy.

    Raises:
        CorruptBatchError: the codec is unknown, the data is not what the codec wrote, or more than
            `limit_bytes` would come out; a TooLargePlainError if the data says so itself.
    """
    if codec_id == Compression.NONE:
        return data
    view = memoryview(data)
    if codec_id == Compression.SNAPPY:
        return _decompress_snappy(view, limit_bytes)
    library = _cramjam()
    if codec_id == Compression.GZIP:
        return _decompress_guessing(_GZIP, library.gzip.decompress_into, view, _gzip_claim(view), limit_bytes)
    if codec_id == Compression.LZ4:
        return _decompress_guessing(_LZ4, library.lz4.decompress_into, view, _lz4_claim(view), limit_bytes)
    if codec_id == Compression.ZSTD:
        return _decompress_guessing(_ZSTD, library.zstd.decompress_into, view, _zstd_claim(view), limit_bytes)
    raise CorruptBatchError(f"compression codec {codec_id} does not exist")


class _Format(NamedTuple):
    """A format, and the most that it can make of a byte."""

    name: str
    ratio_max: int


_GZIP = _Format("gzip", 1_032)  # two bits copy 258 bytes
_LZ4 = _Format("lz4", 255)  # each byte of a length adds 255
_ZSTD = _Format("zstd", 1 << 15)  # four bytes are a block of 128 KiB
SNAPPY_RATIO_MAX = 22  # three bytes copy 64, which is the most that the format can do


def _decompress_guessing(
    form: _Format, into: Callable[[memoryview, bytearray], int], data: memoryview, claim: int | None, limit_bytes: int
) -> bytearray:
    if claim is not None and claim > limit_bytes:
        raise TooLargePlainError(
            f"{len(data)} bytes of {form.name} claim {claim} plain ones, the limit is {limit_bytes}"
        )
    failure = _cramjam().DecompressionError
    cause = ""
    for size in _guesses(len(data), claim, min(limit_bytes, len(data) * form.ratio_max)):
        output = bytearray(size)
        try:
            written = into(data, output)
        except failure as error:
            # Not the error itself: it knows this frame, which would know it. Such a circle lasts, with the output in
            # it, until the collector comes by, and that is not moved by how large a buffer is.
            cause = str(error)
            output.clear()
            continue
        del output[written:]
        return output
    raise CorruptBatchError(f"{len(data)} bytes of {form.name} are corrupt or exceed {limit_bytes} bytes: {cause}")


def _guesses(compressed_bytes: int, claim: int | None, limit_bytes: int) -> Iterator[int]:
    if claim is not None and claim <= limit_bytes:
        yield claim
    size = max(compressed_bytes * _GUESS_FACTOR, _FIRST_GUESS_BYTES_MIN)
    while size < limit_bytes:
        yield size
        size *= _GUESS_FACTOR
    yield limit_bytes


def _gzip_claim(data: memoryview) -> int | None:
    """Return the last member's size modulo 2**32, which ends the stream."""
    return int.from_bytes(data[-4:], "little") if len(data) >= 18 else None


def _lz4_claim(data: memoryview) -> int | None:
    """Return the content size, which follows the two flag bytes when bit 3 of the first says so."""
    if len(data) < 14 or not data[4] & 0x08:
        return None
    return int.from_bytes(data[6:14], "little")


def _zstd_claim(data: memoryview) -> int | None:
    """Return the frame content size (RFC 8878, 3.1.1.1)."""
    if len(data) < 5:
        return None
    descriptor = data[4]
    single_segment = descriptor & 0x20
    size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if not size_bytes or len(data) < start + size_bytes:
        return None
    size = int.from_bytes(data[start : start + size_bytes], "little")
    return size + 256 if size_bytes == 2 else size


def xerial_blocks(compress_raw: Callable[[memoryview], Buffer], data: memoryview) -> Iterator[Buffer]:
    """Yield the blocks that follow `XERIAL_HEADER`, each behind its size."""
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = compress_raw(data[start : start + _XERIAL_BLOCK_BYTES])
        yield _BLOCK_SIZE.pack(len(block))
        yield block


def _lz4_blocks(compress_block: Callable[..., Buffer], data: memoryview) -> Iterator[Buffer]:
    """Yield the blocks that follow `_LZ4_HEADER`, each behind its size."""
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = compress_block(plain, store_size=False)
        is_smaller = len(block) < len(plain)
        yield _LZ4_SIZE.pack(len(block) if is_smaller else _LZ4_AS_IT_IS | len(plain))
        yield block if is_smaller else plain


def snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of raw snappy in a body: those behind `XERIAL_MAGIC`, or the whole of one without it.

    Raises:
        CorruptBatchError: the framing is cut off, or says what cannot be.
    """
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield data
        return
    position = len(XERIAL_HEADER)
    if position > len(data):
        raise CorruptBatchError(f"the header of snappy blocks is cut off at {len(data)}")
    while position < len(data):
        if len(data) - position < _BLOCK_SIZE.size:
            raise CorruptBatchError(f"snappy block size is cut off at {position}")
        (size,) = _BLOCK_SIZE.unpack_from(data, position)
        position += _BLOCK_SIZE.size
        if not 0 < size <= len(data) - position:
            raise CorruptBatchError(f"snappy block of {size} bytes, {len(data) - position} are left")
        yield data[position : position + size]
        position += size


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytearray:
    library = _cramjam()
    output = bytearray()
    try:
        for block in snappy_blocks(data):
            _append_raw_snappy(library, output, block, limit_bytes)
    except library.DecompressionError as error:
        raise CorruptBatchError(f"{len(data)} bytes of snappy are corrupt: {error}") from error
    return output


def _append_raw_snappy(library: Any, output: bytearray, block: memoryview, limit_bytes: int) -> None:
    """Decompress one raw block to the end of `output`; raw snappy states its exact size first."""
    start = len(output)
    size: int = library.snappy.decompress_raw_len(block)
    if size > len(block) * SNAPPY_RATIO_MAX:
        raise CorruptBatchError(f"{len(block)} bytes of snappy claim {size} plain ones, which they cannot be")
    if start + size > limit_bytes:
        raise TooLargePlainError(f"snappy claims {start + size} bytes, the limit is {limit_bytes}")
    output += bytes(size)
    with memoryview(output) as view, view[start:] as target:
        library.snappy.decompress_raw_into(block, target)
