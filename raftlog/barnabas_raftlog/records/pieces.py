"""Decompresses the body of a batch piece by piece, in a few megabytes whatever it says. Pure.

`decompress` returns a body as a whole, and its buffer is as large as what comes out. A broker that looks into what
strangers send must not hold that much: a batch of 12 KB may come out as 128 MiB. Here at most a piece is held, and the
window of the codec; whoever stops asking for pieces stops the work.

*What is read* is what every reader reads: the Java client, librdkafka, those in Python, and `decompress`. A gzip of
several members and a zstd of several frames are, since the Java client reads on. Bytes behind the end are not: the Java
client overlooks them behind gzip and lz4, others refuse the batch, and no client writes them. A second frame of lz4 is
such bytes, too: the Java client stops before it.

*What is held*: of zstd the window that a frame declares, but only as much of it as has come out. A window of 128 MiB,
as levels from 21 on declare, costs nothing for a batch of 1 MiB; beyond 48 MiB of plain bytes it is too much. Raw
snappy is one block, which comes out whole, and the same limit holds for it; cut into blocks, as the Java client does,
it has none. lz4 and gzip hold 4 MiB and less.

*What it costs*: a compressed byte can be made to come out as 32,000, so it is the plain bytes that count. Where each
part of a body takes a call (members of gzip, frames of zstd, blocks of snappy), their number is bounded, far from what
any client writes. 127 MiB of one value take 7 ms as zstd, 11 as gzip, 18 as lz4, and 80 as snappy in blocks; of the
batches in `tests/raftlog/records/bombs.py` none holds more than 48 MiB.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from barnabas_raftlog.errors import CorruptBatchError

from .compression import DECOMPRESSED_BYTES_MAX, SNAPPY_RATIO_MAX, Compression, TooLargePlainError, snappy_blocks

__all__ = ["PIECE_BYTES", "gzip_library", "plain_pieces", "small_body"]

Buffer = bytes | bytearray | memoryview

PIECE_BYTES = 256 << 10
"""The largest piece, except of snappy, whose blocks come out whole."""
_CHUNK_BYTES = 64 << 10  # handed to gzip at a time: what it has not used is copied with each call
_HELD_BYTES_MAX = 48 << 20  # of one window of zstd, or one block of snappy
_SMALL_BYTES_MAX = 64 << 10
_CLAIMED_BYTES_MAX = 1 << 20  # of a frame of zstd that states its size: in pieces it takes two times as long
_RATIO_GUESS = 16  # of small bodies, to begin with: those of text and JSON are below
_PIECE_BYTES_MIN = 4 << 10
_PARTS_MAX = 1_024  # members of gzip, frames of zstd: clients write one
_ZSTD_BLOCKS_MIN = 1 << 10  # as many as 128 MiB are of the usual size; looking at one takes 0.3 us
_ZSTD_BLOCK_BYTES_MIN = 2 << 10  # plain, on average, beyond those

_LZ4 = int(Compression.LZ4)  # looked up for each small batch
_ZSTD = int(Compression.ZSTD)
_GZIP_WBITS = 31
_SNAPPY_BLOCK_BYTES_MIN = 512  # on average, beyond the first thousand: the Java library's are 1 KiB and more
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50


@cache
def gzip_library() -> Any:
    """Return zlib-ng, which takes a tenth of the time where much comes of little; else the standard library's."""
    try:
        from zlib_ng import zlib_ng  # noqa: PLC0415 - loaded when the first batch needs it, as those below
    except ImportError:
        import zlib  # noqa: PLC0415

        return zlib
    return zlib_ng


@cache
def _snappy() -> Any:
    import cramjam  # noqa: PLC0415

    return cramjam


@cache
def _lz4() -> Any:
    import lz4.frame  # noqa: PLC0415

    return lz4.frame


@cache
def _zstd() -> Any:
    import zstandard  # noqa: PLC0415

    return zstandard


_idle_zstd: list[Any] = []  # decompressors: making one takes 10 us, a small batch 0.5; as many as threads used at once


def small_body(codec_id: int, data: memoryview) -> Buffer | None:
    """Return a body of at most 256 KiB at once, or one of zstd that states that it is at most a mebibyte.

    None if it is larger, or anything is odd: its pieces will tell.
    """
    if codec_id == _ZSTD:
        return _small_zstd(data) if 0 < len(data) <= _CLAIMED_BYTES_MAX else None
    if codec_id == _LZ4 and 0 < len(data) <= _SMALL_BYTES_MAX:
        library = _lz4()
        try:
            body, used, is_end = library.decompress_chunk(
                library.create_decompression_context(), data, max_length=_piece_bytes(data)
            )
        except RuntimeError:
            return None
        return body if is_end and used == len(data) else None
    return None


def _small_zstd(data: memoryview) -> bytes | None:
    library = _zstd()
    try:
        decompressor = _idle_zstd.pop()
    except IndexError:
        decompressor = library.ZstdDecompressor()
    try:
        claim = library.frame_content_size(data)
        if claim > _CLAIMED_BYTES_MAX or (claim <= 0 and len(data) > _SMALL_BYTES_MAX):
            return None
        # By position, as keywords cost 0.2 us: how much may come out if the frame does not say; one frame, and no more.
        body: bytes = decompressor.decompress(data, 0 if claim > 0 else _piece_bytes(data), False, False)
    except library.ZstdError:
        return None
    finally:
        _idle_zstd.append(decompressor)
    return body or None  # an empty frame may come before others


def _piece_bytes(data: memoryview) -> int:
    """Return the size of pieces: small for what is small, since the memory for one is asked for beforehand."""
    size = len(data) * _RATIO_GUESS
    if size > PIECE_BYTES:
        return PIECE_BYTES
    return size if size > _PIECE_BYTES_MIN else _PIECE_BYTES_MIN  # noqa: FURB136 - `max` costs 0.1 us more


def plain_pieces(codec_id: int, data: memoryview, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Buffer]:
    """Yield the plain bytes of a body, in order; a piece may be empty, and lasts until the next is asked for.

    Raises:
        TooLargePlainError: more than `limit_bytes` come out, or it cannot be read without holding too much.
        CorruptBatchError: the codec is unknown, or the data is not what the codec wrote. Pieces before are sound.
    """
    total = 0
    for piece in _pieces_of(codec_id, data, limit_bytes):
        total += len(piece)
        if total > limit_bytes:
            raise TooLargePlainError(f"{len(data)} compressed bytes are more than {limit_bytes} plain ones")
        yield piece


def _pieces_of(codec_id: int, data: memoryview, limit_bytes: int) -> Iterator[Buffer]:
    if codec_id == Compression.NONE:
        return iter((data,))
    if codec_id == Compression.GZIP:
        return _gzip_pieces(data)
    if codec_id == Compression.SNAPPY:
        return _snappy_pieces(data, limit_bytes)
    if codec_id == Compression.LZ4:
        return _lz4_pieces(data)
    if codec_id == Compression.ZSTD:
        return _zstd_pieces(data, limit_bytes)
    raise CorruptBatchError(f"compression codec {codec_id} does not exist")


def _gzip_pieces(data: memoryview) -> Iterator[bytes]:
    library = gzip_library()
    piece_bytes = _piece_bytes(data)
    position = 0
    for _ in range(_PARTS_MAX):
        member = library.decompressobj(wbits=_GZIP_WBITS)
        chunk: Buffer = b""
        while not member.eof:
            if not chunk:
                chunk = data[position : position + _CHUNK_BYTES]
                position += len(chunk)
            try:
                piece = member.decompress(chunk, piece_bytes)
            except library.error as error:
                raise _corrupt("gzip", data, str(error)) from error
            if not chunk and not piece and not member.eof:
                raise _corrupt("gzip", data, "they are cut off")
            chunk = member.unconsumed_tail
            yield piece
        position -= len(member.unused_data)
        if position == len(data):
            return
    raise _corrupt("gzip", data, f"more than {_PARTS_MAX} members")


def _lz4_pieces(data: memoryview) -> Iterator[bytes]:
    library = _lz4()
    piece_bytes = _piece_bytes(data)
    context = library.create_decompression_context()
    position = 0
    is_end = False
    while not is_end:
        try:
            piece, used, is_end = library.decompress_chunk(context, data[position:], max_length=piece_bytes)
        except RuntimeError as error:
            raise _corrupt("lz4", data, str(error)) from error
        if not used and not piece and not is_end:
            raise _corrupt("lz4", data, "they are cut off")
        position += used
        yield piece
    if position != len(data):
        raise _corrupt("lz4", data, f"bytes follow the end of the frame at {position}")


def _zstd_pieces(data: memoryview, limit_bytes: int) -> Iterator[memoryview]:
    library = _zstd()
    piece = memoryview(bytearray(_piece_bytes(data)))
    for frame in list(_zstd_frames(data, _ZSTD_BLOCKS_MIN + limit_bytes // _ZSTD_BLOCK_BYTES_MIN)):
        # One for each frame: it keeps the window, which may be large.
        reader = library.ZstdDecompressor().stream_reader(data[frame.start : frame.end])
        frame_bytes = 0
        try:
            while size := reader.readinto(piece):
                frame_bytes += size
                if frame.window_bytes > _HELD_BYTES_MAX < frame_bytes:
                    raise TooLargePlainError(
                        f"a window of {frame.window_bytes} bytes over more than {_HELD_BYTES_MAX} plain ones"
                        " is too much to hold"
                    )
                yield piece[:size]
        except library.ZstdError as error:
            raise _corrupt("zstd", data, str(error)) from error


class _ZstdFrame(NamedTuple):
    """Where a frame is, and how much of what came before it may refer to."""

    start: int
    end: int
    window_bytes: int


def _zstd_frames(data: memoryview, blocks_max: int) -> Iterator[_ZstdFrame]:
    """Yield the frames that have content (RFC 8878, 3.1), by the sizes that they state: their reader knows no end."""
    position = parts = blocks = 0
    while position < len(data) or not parts:
        parts += 1
        if parts > _PARTS_MAX:
            raise _corrupt("zstd", data, f"more than {_PARTS_MAX} frames")
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPABLE and len(data) - position >= 8:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        elif magic == _ZSTD_MAGIC and len(data) - position >= 6:
            start = position
            window_bytes, position = _zstd_frame_header(data, start)
            is_last = False
            while not is_last and position + 3 <= len(data):
                blocks += 1
                if blocks > blocks_max:
                    raise TooLargePlainError(f"{len(data)} bytes of zstd are more than {blocks_max} blocks")
                block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                is_last = bool(block & 1)
                position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # one byte that is repeated, else its size
            position += data[start + 4] & 4  # the bit says that a checksum of four bytes follows
            if not is_last:
                raise _corrupt("zstd", data, "they are cut off")
            yield _ZstdFrame(start, position, window_bytes)
        else:
            raise _corrupt("zstd", data, f"no frame begins at {position}")
        if position > len(data):
            raise _corrupt("zstd", data, "they are cut off")


def _zstd_frame_header(data: memoryview, start: int) -> tuple[int, int]:
    """Return the size of a frame's window, and where its header ends (RFC 8878, 3.1.1.1)."""
    descriptor = data[start + 4]
    position = start + 5
    size_bytes = (0, 2, 4, 8)[descriptor >> 6]
    window_bytes = 0
    if descriptor & 0x20:  # a single segment: the content is the window
        size_bytes = size_bytes or 1
    else:
        base = 1 << (10 + (data[position] >> 3))
        window_bytes = base + (base >> 3) * (data[position] & 7)
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]
    content = int.from_bytes(data[position : position + size_bytes], "little")
    return window_bytes or content, position + size_bytes


def _snappy_pieces(data: memoryview, limit_bytes: int) -> Iterator[Buffer]:
    total = 0
    for blocks, block in enumerate(snappy_blocks(data), 1):
        piece = _snappy_block(block, limit_bytes)
        total += len(piece)
        if blocks > _PARTS_MAX + total // _SNAPPY_BLOCK_BYTES_MIN:
            raise _corrupt("snappy", data, f"{blocks} blocks hold {total} bytes, which is too little of each")
        yield piece


def _snappy_block(block: memoryview, limit_bytes: int) -> Buffer:
    """Return a raw block, which states its exact size first, and cannot make more than 64 bytes of three."""
    library = _snappy()
    try:
        size: int = library.snappy.decompress_raw_len(block)
        if size > len(block) * SNAPPY_RATIO_MAX:
            raise _corrupt("snappy", block, f"they cannot be {size} plain ones")
        if size > min(_HELD_BYTES_MAX, limit_bytes):
            raise TooLargePlainError(f"a block of snappy with {size} plain bytes is too much to hold")
        output = bytearray(size)
        library.snappy.decompress_raw_into(block, output)
    except library.DecompressionError as error:
        raise _corrupt("snappy", block, str(error)) from error
    return output


def _corrupt(name: str, data: memoryview, cause: str) -> CorruptBatchError:
    return CorruptBatchError(f"{len(data)} bytes of {name} are corrupt: {cause}")
