"""Decompresses the body of a batch piece by piece, in a few megabytes whatever it says. Pure.

`decompress` returns a body as a whole, and its buffer is as large as what comes out. A broker that looks into what
strangers send must not hold that much: a batch of 12 KB may come out as 128 MiB. Here at most a piece is held, and the
window of the codec; whoever stops asking for pieces stops the work.

Loaded when the first compressed batch is looked into: a broker may never meet one.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol

from barnabas_raftlog.errors import CorruptBatchError

from .compression import DECOMPRESSED_BYTES_MAX, XERIAL_MAGIC, Compression, TooLargePlainError

__all__ = ["PIECE_BYTES", "plain_pieces"]

Buffer = bytes | bytearray | memoryview

PIECE_BYTES = 256 << 10
"""The largest piece, except of raw snappy, whose blocks come out whole."""
_CHUNK_BYTES = 64 << 10  # handed to a codec at a time: what it has not used yet is copied with each call
_HELD_BYTES_MAX = 48 << 20  # of one window of zstd, or one block of snappy

_GZIP_WBITS = 31
_GZIP_MAGIC = b"\x1f\x8b\x08"
_XERIAL_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")
_SNAPPY_RATIO_MAX = 22  # three bytes copy 64, which is the most that the format can do


class _Decompressor(Protocol):
    """What the decompressors of zstd and lz4 have in common: those of the standard library set the example."""

    eof: bool
    needs_input: bool
    unused_data: bytes | None

    def decompress(self, data: Buffer, /, max_length: int) -> bytes: ...


@cache
def _gzip() -> Any:
    """Return zlib-ng, which takes a tenth of the time where much comes of little; else the standard library's."""
    try:
        from zlib_ng import zlib_ng  # noqa: PLC0415 - see the module's third paragraph
    except ImportError:
        import zlib  # noqa: PLC0415

        return zlib
    return zlib_ng


@cache
def _zstd() -> Any:
    try:
        from compression import zstd  # noqa: PLC0415 - the standard library's, from Python 3.14 on
    except ImportError:
        from backports import zstd  # noqa: PLC0415
    return zstd


@cache
def _lz4() -> Any:
    import lz4.frame  # noqa: PLC0415

    return lz4.frame


@cache
def _snappy() -> Any:
    import cramjam  # noqa: PLC0415

    return cramjam


def plain_pieces(codec_id: int, data: memoryview, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Buffer]:
    """Yield the plain bytes of a body, in order; a piece may be empty, and lasts until the next is asked for.

    Raises:
        TooLargePlainError: more than `limit_bytes` come out, or it cannot be read without holding too much.
        CorruptBatchError: the codec is unknown, or the data is not what the codec wrote. Pieces before are sound.
    """
    total = 0
    for piece in _pieces_of(codec_id, data):
        total += len(piece)
        if total > limit_bytes:
            raise TooLargePlainError(f"{len(data)} compressed bytes are more than {limit_bytes} plain ones")
        yield piece


def _pieces_of(codec_id: int, data: memoryview) -> Iterator[Buffer]:
    if codec_id == Compression.NONE:
        return iter((data,))
    if codec_id == Compression.GZIP:
        return _gzip_pieces(data)
    if codec_id == Compression.SNAPPY:
        return _snappy_pieces(data)
    if codec_id == Compression.LZ4:
        return _lz4_pieces(data)
    if codec_id == Compression.ZSTD:
        return _zstd_pieces(data)
    raise CorruptBatchError(f"compression codec {codec_id} does not exist")


def _gzip_pieces(data: memoryview) -> Iterator[bytes]:
    library = _gzip()
    position = 0
    while position == 0 or data[position : position + len(_GZIP_MAGIC)] == _GZIP_MAGIC:
        member = library.decompressobj(wbits=_GZIP_WBITS)
        chunk: Buffer = b""
        while not member.eof:
            if not chunk:
                chunk = data[position : position + _CHUNK_BYTES]
                position += len(chunk)
            try:
                piece = member.decompress(chunk, PIECE_BYTES)
            except library.error as error:
                raise _corrupt("gzip", data, str(error)) from error
            if not chunk and not piece and not member.eof:
                raise _corrupt("gzip", data, "it is cut off")
            chunk = member.unconsumed_tail
            yield piece
        position -= len(member.unused_data)


def _zstd_pieces(data: memoryview) -> Iterator[bytes]:
    library = _zstd()
    position = 0
    while position == 0 or position < len(data):
        window_bytes = _zstd_window_bytes(data[position : position + 18])
        frame_bytes = 0
        frame = _Frame("zstd", library.ZstdDecompressor, library.ZstdError, data, position)
        for piece in frame.pieces():
            frame_bytes += len(piece)
            if window_bytes > _HELD_BYTES_MAX < frame_bytes:
                raise TooLargePlainError(
                    f"a window of {window_bytes} bytes over more than {_HELD_BYTES_MAX} plain ones is too much to hold"
                )
            yield piece
        position = frame.position


def _zstd_window_bytes(header: memoryview) -> int:
    """Return how much of what came before a frame may refer to (RFC 8878, 3.1.1.1); 0 if it cannot be read."""
    if len(header) < 6:
        return 0
    descriptor = header[4]
    if not descriptor & 0x20:
        base = 1 << (10 + (header[5] >> 3))
        return base + (base >> 3) * (header[5] & 7)
    start = 5 + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(header[start : start + (1, 2, 4, 8)[descriptor >> 6]], "little")


def _lz4_pieces(data: memoryview) -> Iterator[bytes]:
    library = _lz4()
    return _Frame("lz4", library.LZ4FrameDecompressor, RuntimeError, data, 0).pieces()


class _Frame:
    """One frame of zstd or lz4 that begins at `position` of `data`, which is behind it once its pieces are out."""

    __slots__ = ("data", "failure", "make", "name", "position")

    def __init__(
        self, name: str, make: Callable[[], _Decompressor], failure: type[Exception], data: memoryview, position: int
    ) -> None:
        self.name = name
        self.make = make
        self.failure = failure
        self.data = data
        self.position = position

    def pieces(self) -> Iterator[bytes]:
        reader = self.make()
        while not reader.eof:
            chunk: Buffer = b""
            is_asked = reader.needs_input
            if is_asked:
                chunk = self.data[self.position : self.position + _CHUNK_BYTES]
                self.position += len(chunk)
            try:
                piece = reader.decompress(chunk, PIECE_BYTES)
            except self.failure as error:
                raise _corrupt(self.name, self.data, str(error)) from error
            if is_asked and not chunk and not piece and not reader.eof:
                raise _corrupt(self.name, self.data, "it is cut off")
            yield piece
        self.position -= len(reader.unused_data or b"")


def _snappy_pieces(data: memoryview) -> Iterator[Buffer]:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(data)
        return
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        if len(data) - position < _BLOCK_SIZE.size:
            raise _corrupt("snappy", data, f"the size of a block is cut off at {position}")
        (size,) = _BLOCK_SIZE.unpack_from(data, position)
        position += _BLOCK_SIZE.size
        if not 0 < size <= len(data) - position:
            raise _corrupt("snappy", data, f"a block of {size} bytes where {len(data) - position} are left")
        yield _snappy_block(data[position : position + size])
        position += size


def _snappy_block(block: memoryview) -> Buffer:
    """Return a raw block, which states its exact size first, and cannot make more than 64 bytes of three."""
    library = _snappy()
    try:
        size: int = library.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise _corrupt("snappy", block, f"they cannot be {size} plain ones")
        if size > _HELD_BYTES_MAX:
            raise TooLargePlainError(f"a block of snappy with {size} plain bytes is too much to hold")
        output = bytearray(size)
        library.snappy.decompress_raw_into(block, output)
    except library.DecompressionError as error:
        raise _corrupt("snappy", block, str(error)) from error
    return output


def _corrupt(name: str, data: memoryview, cause: str) -> CorruptBatchError:
    return CorruptBatchError(f"{len(data)} bytes of {name} are corrupt: {cause}")
