"""Batches that are small as sent and huge inside, or ask for much work: what a stranger would send to harm a broker.

Each has a header and a checksum that are right, and at most 1 MiB, unless its name says otherwise. `BOMBS` makes one
when it is asked for: some take a tenth of a second.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import lz4.frame
import zstandard

from barnabas_raftlog.records.builder import varint, write_header
from barnabas_raftlog.records.compression import DECOMPRESSED_BYTES_MAX, XERIAL_MAGIC, Compression, compress
from barnabas_raftlog.records.header import CRC_POSITION, CRC_START, HEADER_BYTES
from barnabas_raftlog.records.walker.faults import HEADERS_MAX
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["BOMBS", "MANY_HEADERS", "Bomb", "framed", "headers", "records_of_headers"]

MIB = 1 << 20
GIB = 1 << 30
LIMIT = DECOMPRESSED_BYTES_MAX
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_ZSTD_BLOCK = 128 << 10


class Content(NamedTuple):
    """Plain bytes: some, and zeros behind them."""

    start: bytes
    zeros: int

    @property
    def plain(self) -> bytes:
        return self.start + bytes(self.zeros)


class Bomb(NamedTuple):
    """How to make a batch, and what `check_inside` says of it.

    `answer` is the name of a fault, of "NONE" if it is sound, "TooLargePlainError" or "CorruptBatchError".
    """

    codec: Compression
    body: Callable[[], bytes]
    answer: str
    records: int = 1

    def batch(self) -> bytes:
        return framed(self.codec, self.body(), self.records)


def framed(codec: Compression, body: bytes, records: int = 1) -> bytes:
    """Return a batch at offset 0 around a compressed body, with a checksum that is right."""
    frame = bytearray(HEADER_BYTES) + body
    write_header(frame, attributes=codec, record_count=records, base_timestamp=1_000, max_timestamp=1_000)
    frame[CRC_START + 2 : CRC_START + 6] = (records - 1).to_bytes(4, "big")
    frame[CRC_POSITION:CRC_START] = crc32c(memoryview(frame)[CRC_START:]).to_bytes(4, "big")
    return bytes(frame)


def zeros(size: int) -> Content:
    return Content(b"", size)


def value(size: int, *, claim: int = 0) -> Content:
    """One record with a value of zeros, whose sizes are right, or claim another one."""
    claim = claim or size
    start = b"\x00\x00\x00\x01" + varint(claim)
    return Content(varint(len(start) + claim + 1) + start, size + 1)


def headers(count: int) -> Content:
    """One record with headers, each an empty name and an empty value."""
    start = b"\x00\x00\x00\x01\x01" + varint(count)
    return Content(varint(len(start) + 2 * count) + start, 2 * count)


def records_of_headers(count: int, headers: int) -> Iterator[bytes]:
    """Records that have nothing but headers, each an empty name and an empty value."""
    for number in range(count):
        record = b"\x00\x00" + varint(number) + b"\x01\x01" + varint(headers) + bytes(2 * headers)
        yield varint(len(record)) + record


def records(count: int) -> bytes:
    """Records without a key or a value, as small as they can be."""
    bodies = (b"\x00\x00" + varint(number) + b"\x01\x01\x00" for number in range(count))
    return b"".join(varint(len(body)) + body for body in bodies)


def zstd(content: Content, *, window_log: int = 17, claim: int | None = None) -> bytes:
    """Return a frame of plain blocks for the start, and of blocks of one repeated byte for the zeros."""
    descriptor, size = (0, b"") if claim is None else (0xC0, struct.pack("<Q", claim))
    frame = bytearray(struct.pack("<IBB", 0xFD2FB528, descriptor, (window_log - 10) << 3) + size)
    for at in range(0, len(content.start), _ZSTD_BLOCK):
        piece = content.start[at : at + _ZSTD_BLOCK]
        frame += (len(piece) << 3).to_bytes(3, "little") + piece
    whole, rest = divmod(content.zeros, _ZSTD_BLOCK)
    frame += ((_ZSTD_BLOCK << 3 | 2).to_bytes(3, "little") + b"\x00") * whole
    return bytes(frame + (rest << 3 | 3).to_bytes(3, "little") + b"\x00")


def zstd_stream(parts: Iterable[bytes]) -> bytes:
    """Return what many parts are compressed to, of which none is kept."""
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join(stream.compress(part) for part in parts) + stream.flush()


def lz4_frame(content: Content, *, claim: int | None = None) -> bytes:
    """Return one frame; `claim` says how large it is."""
    stream = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    start: bytes = stream.begin(claim or 0)
    block = bytes(4 * MIB)
    parts = [start, stream.compress(content.start)]
    parts += [stream.compress(block[: content.zeros - at]) for at in range(0, content.zeros, len(block))]
    if claim is None:
        parts.append(stream.flush())
    return b"".join(parts)


def gzip(content: Content) -> bytes:
    """Return one member, sound to its end up to 128 MiB; beyond that nobody gets to its checksum."""
    deflate = zlib.compressobj(6, wbits=-15)
    parts = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", deflate.compress(content.start)]
    parts.append(deflate.flush(zlib.Z_FULL_FLUSH))
    mebibyte = zlib.compressobj(6, wbits=-15)
    block = mebibyte.compress(bytes(MIB)) + mebibyte.flush(zlib.Z_FULL_FLUSH)
    whole, rest = divmod(content.zeros, MIB)
    parts.append(block * whole)
    last = zlib.compressobj(6, wbits=-15)
    parts.append(last.compress(bytes(rest)) + last.flush())
    size = len(content.start) + content.zeros
    if size <= DECOMPRESSED_BYTES_MAX:
        checksum = zlib.crc32(bytes(content.zeros), zlib.crc32(content.start))
        parts.append(struct.pack("<II", checksum, size))
    return b"".join(parts)


def snappy(content: Content, *, claim: int | None = None) -> bytes:
    """Return one raw block: the start as it is, and copies of 64 bytes, in three each."""
    start = content.start + b"\x00"
    copies, rest = divmod(content.zeros - 1, 64)
    size = _unsigned(len(content.start) + content.zeros if claim is None else claim)
    literal = b"\xfc" + (len(start) - 1).to_bytes(4, "little") + start
    return size + literal + b"\xfe\x01\x00" * copies + (bytes((rest - 1 << 2 | 2, 1, 0)) if rest else b"")


def xerial(content: Content, block_bytes: int = 32 << 10) -> bytes:
    """Return blocks as the Java client cuts them."""
    whole, rest = divmod(content.zeros - 1, block_bytes)
    blocks = [snappy(Content(content.start, rest + 1)), *[snappy(zeros(block_bytes))] * whole]
    return _XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _unsigned(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


EMPTY = zlib.compress(b"", wbits=31)
SKIPPABLE = struct.pack("<II", 0x184D2A50, 0)
TINY = 200_000  # records; these compress worst
MANY_HEADERS = "zstd of 1,000 records of 65,536 headers each"  # 125 MiB; no record may have more

BOMBS: dict[str, Bomb] = {
    "zstd of 10 GiB of zeros": Bomb(Compression.ZSTD, lambda: zstd(zeros(10 * GIB)), "TooLargePlainError"),
    "zstd of 1 GiB of zeros": Bomb(Compression.ZSTD, lambda: zstd(zeros(GIB)), "VARINT"),
    "zstd of a sound value of 127 MiB": Bomb(Compression.ZSTD, lambda: zstd(value(127 * MIB)), "NONE"),
    "zstd of a value of 128 MiB": Bomb(Compression.ZSTD, lambda: zstd(value(128 * MIB)), "TooLargePlainError"),
    "zstd of a value that claims 2 GiB": Bomb(
        Compression.ZSTD, lambda: zstd(value(MIB, claim=2**31 - 20)), "TooLargePlainError"
    ),
    "zstd of a value that claims 100 MiB of 1 GiB": Bomb(
        Compression.ZSTD, lambda: zstd(value(GIB, claim=100 * MIB)), "BEHIND"
    ),
    "zstd of a value that claims 100 MiB of 1": Bomb(
        Compression.ZSTD, lambda: zstd(value(MIB, claim=100 * MIB)), "LENGTH"
    ),
    "zstd of 127 MiB in a window of 128": Bomb(
        Compression.ZSTD, lambda: zstd(value(127 * MIB), window_log=27), "TooLargePlainError"
    ),
    "zstd of 40 MiB in a window of 128": Bomb(Compression.ZSTD, lambda: zstd(value(40 * MIB), window_log=27), "NONE"),
    "zstd of 1 KiB in a window of 128 MiB": Bomb(Compression.ZSTD, lambda: zstd(value(1024), window_log=27), "NONE"),
    "zstd in a window of 2 GiB": Bomb(Compression.ZSTD, lambda: zstd(value(1024), window_log=31), "CorruptBatchError"),
    "zstd that claims 10 GiB": Bomb(Compression.ZSTD, lambda: zstd(value(1024), claim=10 * GIB), "CorruptBatchError"),
    "zstd of 63 million headers": Bomb(Compression.ZSTD, lambda: zstd(headers(63 * MIB)), "HEADER_COUNT"),
    "zstd of 65,537 headers": Bomb(Compression.ZSTD, lambda: zstd(headers(HEADERS_MAX + 1)), "HEADER_COUNT"),
    MANY_HEADERS: Bomb(Compression.ZSTD, lambda: zstd_stream(records_of_headers(1_000, HEADERS_MAX)), "NONE", 1_000),
    "zstd of 32,000 records of 2,040 headers each": Bomb(
        Compression.ZSTD, lambda: zstd_stream(records_of_headers(32_000, 2_040)), "NONE", 32_000
    ),
    "zstd of 100,000 empty frames": Bomb(Compression.ZSTD, lambda: zstd(zeros(0)) * 100_000, "CorruptBatchError"),
    "zstd of 100,000 skippable frames": Bomb(
        Compression.ZSTD, lambda: SKIPPABLE * 100_000 + zstd(value(1)), "CorruptBatchError"
    ),
    "zstd of 300,000 empty blocks": Bomb(
        Compression.ZSTD, lambda: zstd(zeros(0))[:6] + bytes(900_000) + b"\x01\x00\x00", "TooLargePlainError"
    ),
    "zstd of small records": Bomb(
        Compression.ZSTD, lambda: bytes(compress(Compression.ZSTD, records(TINY))), "NONE", TINY
    ),
    "zstd of 9 million times the first record": Bomb(
        Compression.ZSTD,
        lambda: bytes(compress(Compression.ZSTD, records(1) * (9 * MIB))),
        "OFFSET",
        9 * MIB,
    ),
    "lz4 of 250 MiB of zeros": Bomb(Compression.LZ4, lambda: lz4_frame(zeros(250 * MIB)), "VARINT"),
    "lz4 of a sound value of 127 MiB": Bomb(Compression.LZ4, lambda: lz4_frame(value(127 * MIB)), "NONE"),
    "lz4 of a value of 250 MiB": Bomb(Compression.LZ4, lambda: lz4_frame(value(250 * MIB)), "TooLargePlainError"),
    "lz4 of a value that claims 100 MiB of 250": Bomb(
        Compression.LZ4, lambda: lz4_frame(value(250 * MIB, claim=100 * MIB)), "BEHIND"
    ),
    "lz4 that claims 10 GiB": Bomb(Compression.LZ4, lambda: lz4_frame(value(MIB), claim=10 * GIB), "CorruptBatchError"),
    "lz4 of 63 million headers": Bomb(Compression.LZ4, lambda: lz4_frame(headers(63 * MIB)), "HEADER_COUNT"),
    "lz4 of blocks of one byte": Bomb(
        Compression.LZ4,
        lambda: lz4_frame(zeros(0))[:-4] + b"\x01\x00\x00\x80\x02" * 200_000 + bytes(4),
        "VARINT",
        200_000,
    ),
    "lz4 of small records": Bomb(
        Compression.LZ4, lambda: bytes(compress(Compression.LZ4, records(TINY))), "NONE", TINY
    ),
    "gzip of 1 GiB of zeros": Bomb(Compression.GZIP, lambda: gzip(zeros(GIB)), "VARINT"),
    "gzip of a sound value of 127 MiB": Bomb(Compression.GZIP, lambda: gzip(value(127 * MIB)), "NONE"),
    "gzip of a value of 1 GiB": Bomb(Compression.GZIP, lambda: gzip(value(GIB)), "TooLargePlainError"),
    "gzip of a value that claims 100 MiB of 1 GiB": Bomb(
        Compression.GZIP, lambda: gzip(value(GIB, claim=100 * MIB)), "BEHIND"
    ),
    "gzip of 63 million headers": Bomb(Compression.GZIP, lambda: gzip(headers(63 * MIB)), "HEADER_COUNT"),
    "gzip of 50,000 empty members": Bomb(Compression.GZIP, lambda: EMPTY * 50_000, "CorruptBatchError"),
    "gzip of small records": Bomb(
        Compression.GZIP, lambda: bytes(compress(Compression.GZIP, records(TINY))), "NONE", TINY
    ),
    "snappy of 21 MiB of zeros": Bomb(Compression.SNAPPY, lambda: snappy(zeros(21 * MIB)), "VARINT"),
    "snappy of a sound value of 21 MiB": Bomb(Compression.SNAPPY, lambda: snappy(value(21 * MIB)), "NONE"),
    "snappy of a sound value of 47 MiB, in 2 MiB": Bomb(Compression.SNAPPY, lambda: snappy(value(47 * MIB)), "NONE"),
    "snappy of a value of 60 MiB, in 3 MiB": Bomb(
        Compression.SNAPPY, lambda: snappy(value(60 * MIB)), "TooLargePlainError"
    ),
    "snappy that claims 4 GiB": Bomb(
        Compression.SNAPPY, lambda: snappy(value(MIB), claim=2**32 - 1), "CorruptBatchError"
    ),
    "snappy that claims 20 MiB of 19": Bomb(
        Compression.SNAPPY, lambda: snappy(value(19 * MIB), claim=20 * MIB), "CorruptBatchError"
    ),
    "snappy in blocks, of a sound value of 21 MiB": Bomb(Compression.SNAPPY, lambda: xerial(value(21 * MIB)), "NONE"),
    "snappy in blocks, of a sound value of 127 MiB, in 6 MiB": Bomb(
        Compression.SNAPPY, lambda: xerial(value(127 * MIB)), "NONE"
    ),
    "snappy in blocks, of 500 bytes each": Bomb(Compression.SNAPPY, lambda: xerial(value(12 * MIB), 520), "NONE"),
    "snappy in blocks, 200,000 empty ones": Bomb(
        Compression.SNAPPY, lambda: _XERIAL_HEADER + b"\x00\x00\x00\x01\x00" * 200_000, "CorruptBatchError"
    ),
    "snappy in blocks, 140,000 of one byte": Bomb(
        Compression.SNAPPY, lambda: _XERIAL_HEADER + b"\x00\x00\x00\x03\x01\x00\x02" * 140_000, "VARINT"
    ),
    "snappy in blocks, of 10 million headers": Bomb(
        Compression.SNAPPY, lambda: xerial(headers(10 * MIB)), "HEADER_COUNT"
    ),
}
