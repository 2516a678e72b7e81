"""Bodies that come out piece by piece: the same bytes as at once, the same refusals, and little memory."""

import gzip
import struct
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.compression import Compression, TooLargePlainError, compress, decompress
from barnabas_raftlog.records.pieces import PIECE_BYTES, plain_pieces, small_body

from .bombs import GIB, MIB, Content, lz4_frame, snappy, value, xerial, zeros, zstd

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
PLAIN = b"".join(b"%d bottles of beer on the wall, " % number for number in range(2_000))
HALF = len(PLAIN) // 2


def read(codec: int, data: bytes, limit_bytes: int = 128 * MIB) -> bytes:
    """Return what comes out; a small body that comes out at once is the same."""
    view = memoryview(data)
    whole = b"".join(bytes(piece) for piece in plain_pieces(codec, view, limit_bytes))
    small = small_body(codec, view)
    assert small is None or small == whole
    return whole


def is_read(codec: int, data: bytes) -> bool:
    try:
        whole = read(codec, data)
    except CorruptBatchError:
        assert small_body(codec, memoryview(data)) is None
        return False
    assert whole == decompress(codec, data)
    return True


def plain_contents() -> st.SearchStrategy[bytes]:
    near = st.sampled_from([0, 1, 65_536, 131_072, PIECE_BYTES, 2 * PIECE_BYTES]).flatmap(
        lambda size: st.integers(max(size - 2, 0), size + 2)
    )
    return st.builds(
        lambda unit, size: (unit * (size // len(unit) + 1))[:size], st.binary(min_size=1, max_size=300), near
    ) | st.binary(max_size=2_000)


@settings(max_examples=60, deadline=None)
@given(codec=st.sampled_from(CODECS), plain=plain_contents())
def test_what_we_compress_comes_out_again(codec: Compression, plain: bytes) -> None:
    assert read(codec, bytes(compress(codec, plain))) == plain


@settings(max_examples=150, deadline=None)
@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_what_comes_out_in_pieces_comes_out_at_once(data: st.DataObject, codec: Compression) -> None:
    """Whatever is taken at produce, our clients can read: `is_read` compares."""
    damaged = bytearray(compress(codec, data.draw(plain_contents())))
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 20))
    is_read(codec, bytes(damaged[: len(damaged) - cut]) + data.draw(st.binary(max_size=12)))


def level(codec: int, number: int) -> bytes:
    if codec == Compression.ZSTD:  # as the Java client: as a stream, which does not know how much will come
        stream = zstandard.ZstdCompressor(level=number).compressobj()
        return stream.compress(PLAIN) + stream.flush()
    if codec == Compression.LZ4:
        return bytes(lz4.frame.compress(PLAIN, compression_level=number, block_linked=False, store_size=False))
    return gzip.compress(PLAIN, number)


LEVELS = [
    *((Compression.ZSTD, number) for number in (-7, 1, 3, 9, 19)),
    *(pytest.param(Compression.ZSTD, number, marks=pytest.mark.slow) for number in (20, 21, 22)),
    *((Compression.LZ4, number) for number in (-1, 1, 9, 12, 16)),
    *((Compression.GZIP, number) for number in (0, 1, 6, 9)),
]


@pytest.mark.parametrize(("codec", "number"), LEVELS)
def test_every_level_is_read(codec: Compression, number: int) -> None:
    data = level(codec, number)
    assert read(codec, data) == PLAIN
    assert is_read(codec, data)


def members(*parts: bytes) -> bytes:
    return b"".join(gzip.compress(part) for part in parts)


def frames(*parts: bytes, write_checksum: bool = False, write_content_size: bool = True) -> bytes:
    codec = zstandard.ZstdCompressor(write_checksum=write_checksum, write_content_size=write_content_size)
    return b"".join(codec.compress(part) for part in parts)


def lz4_frames(*parts: bytes, **options: bool | int) -> bytes:
    return b"".join(lz4.frame.compress(part, **options) for part in parts)


def named_member() -> bytes:
    """A header of gzip with everything that it may have."""
    deflate = zlib.compressobj(9, wbits=-15)
    extra = struct.pack("<H", 4) + b"more"
    start = b"\x1f\x8b\x08\x1c\x00\x00\x00\x00\x00\xff" + extra + b"name\x00comment\x00"
    return start + deflate.compress(PLAIN) + deflate.flush() + struct.pack("<II", zlib.crc32(PLAIN), len(PLAIN))


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"12345"
RAW = bytes(cramjam.snappy.compress_raw(PLAIN))
BLOCKS = bytes(compress(Compression.SNAPPY, PLAIN))
# Asked of the Java client (4.3.1), which reads all of the first list but the linked blocks.
READ = {
    "gzip of two members": (1, members(PLAIN[:HALF], PLAIN[HALF:])),
    "gzip with an empty member behind": (1, members(PLAIN, b"")),
    "gzip with an empty member before": (1, members(b"", PLAIN)),
    "gzip with a name, a comment and more": (1, named_member()),
    "snappy, raw": (2, RAW),
    "snappy with an empty block": (2, BLOCKS + b"\x00\x00\x00\x01\x00"),
    "snappy of another version": (2, BLOCKS[:8] + struct.pack(">ii", 2, 2) + BLOCKS[16:]),
    "lz4 with checksums of blocks": (3, lz4_frames(PLAIN, block_checksum=True)),
    "lz4 with a checksum": (3, lz4_frames(PLAIN, content_checksum=True)),
    "lz4 without its size": (3, lz4_frames(PLAIN, store_size=False)),
    "lz4 in blocks of 4 MiB": (3, lz4_frames(PLAIN, block_size=7)),
    "lz4 in linked blocks": (3, lz4_frames(PLAIN * 5, block_size=4, block_linked=True)),
    "zstd of two frames": (4, frames(PLAIN[:HALF], PLAIN[HALF:])),
    "zstd with an empty frame behind": (4, frames(PLAIN, b"")),
    "zstd with an empty frame before": (4, frames(b"", PLAIN)),
    "zstd with a skippable frame behind": (4, frames(PLAIN) + SKIPPABLE),
    "zstd with a skippable frame before": (4, SKIPPABLE + frames(PLAIN)),
    "zstd with a checksum": (4, frames(PLAIN, write_checksum=True)),
    "zstd without its size": (4, frames(PLAIN, write_content_size=False)),
    "zstd in a window of 128 MiB": (4, zstd(Content(PLAIN, 1), window_log=27)),
}
REFUSED_BY_ALL = {
    "gzip with a wrong checksum": (1, flipped(members(PLAIN), -8)),
    "gzip with a wrong size": (1, flipped(members(PLAIN), -4)),
    "zlib without gzip": (1, zlib.compress(PLAIN)),
    "nothing, as gzip": (1, b""),
    "snappy and four bytes": (2, BLOCKS + b"four"),
    "raw snappy and a byte": (2, RAW + b"x"),
    "snappy with a block of no bytes": (2, BLOCKS + bytes(4)),
    "snappy with a header that is cut off": (2, BLOCKS[:15]),
    "lz4 with a wrong header": (3, flipped(lz4_frames(PLAIN), 14)),
    "lz4 with a skippable frame before": (3, SKIPPABLE + lz4_frames(PLAIN)),
    "nothing, as lz4": (3, b""),
    "zstd with a wrong checksum": (4, flipped(frames(PLAIN, write_checksum=True), -1)),
    "zstd and four bytes": (4, frames(PLAIN) + b"four"),
    "zstd and zeros": (4, frames(PLAIN) + bytes(8)),
    "zstd in a window of 256 MiB": (4, zstd(Content(PLAIN, 1), window_log=28)),
    "nothing, as zstd": (4, b""),
}
# The Java client reads these, since it does not look; librdkafka, Python's clients or `decompress` do not.
REFUSED_BY_SOME = {
    "gzip and a byte": (1, members(PLAIN) + b"x"),
    "gzip and zeros": (1, members(PLAIN) + bytes(40)),
    "gzip and a broken member": (1, members(PLAIN) + b"\x1f\x8b\x08" + bytes(20)),
    "snappy and a byte": (2, BLOCKS + b"x"),
    "snappy with a second header": (2, BLOCKS + BLOCKS),
    "lz4 and a byte": (3, lz4_frames(PLAIN) + b"x"),
    "lz4 with a second frame": (3, lz4_frames(PLAIN, PLAIN)),
    "lz4 with a wrong checksum": (3, flipped(lz4_frames(PLAIN, content_checksum=True), -1)),
    "zstd and half a magic number": (4, frames(PLAIN) + frames(b"")[:3]),
}


@pytest.mark.parametrize(("codec", "data"), READ.values(), ids=READ)
def test_what_consumers_read_is_read(codec: int, data: bytes) -> None:
    assert is_read(codec, data)
    assert read(codec, data).startswith(PLAIN)


@pytest.mark.parametrize(("codec", "data"), REFUSED_BY_ALL.values(), ids=REFUSED_BY_ALL)
def test_what_no_consumer_reads_is_refused(codec: int, data: bytes) -> None:
    assert not is_read(codec, data)


@pytest.mark.parametrize(("codec", "data"), REFUSED_BY_SOME.values(), ids=REFUSED_BY_SOME)
def test_what_some_consumers_cannot_read_is_refused(codec: int, data: bytes) -> None:
    assert not is_read(codec, data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_body_that_is_cut_off_anywhere_is_refused(codec: Compression) -> None:
    data = bytes(compress(codec, PLAIN[:3_000]))
    assert is_read(codec, data)
    # An empty one is no body at all, and blocks of snappy may end after any.
    ends = [16] if codec is Compression.SNAPPY else []
    assert [size for size in range(len(data)) if is_read(codec, data[:size])] == ends


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_a_size_that_is_read(codec: Compression) -> None:
    data = bytes(compress(codec, PLAIN))
    assert read(codec, data, len(PLAIN)) == PLAIN
    with pytest.raises(TooLargePlainError):
        read(codec, data, len(PLAIN) - 1)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.ZSTD, frames(bytes(9 * MIB))),
        (Compression.ZSTD, frames(bytes(9 * MIB), write_content_size=False)),
        (Compression.LZ4, lz4_frames(bytes(9 * MIB))),
    ],
)
def test_only_what_stays_small_comes_out_at_once(codec: Compression, data: bytes) -> None:
    assert small_body(codec, memoryview(data)) is None
    assert read(codec, data) == bytes(9 * MIB)


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(CorruptBatchError, match="codec 5 does not exist"):
        read(5, b"data")


@pytest.mark.parametrize("codec", CODECS)
def test_whoever_stops_asking_stops_the_work(codec: Compression) -> None:
    made = {
        Compression.GZIP: lambda: members(bytes(9 * MIB)) + b"not a member",
        Compression.SNAPPY: lambda: xerial(zeros(9 * MIB)) + b"not a block",
        Compression.LZ4: lambda: lz4_frame(zeros(9 * MIB)) + b"not a frame",
        Compression.ZSTD: lambda: zstd(zeros(9 * MIB))[:-4] + (7 << 3 | 5).to_bytes(3, "little") + b"garbage",
    }[codec]()
    pieces = plain_pieces(codec, memoryview(made))
    assert sum(len(next(pieces)) for _ in range(8)) > 0
    with pytest.raises(CorruptBatchError):
        list(pieces)


CLAIMS = [
    (Compression.ZSTD, zstd(value(1024), claim=10 * GIB)),
    (Compression.LZ4, lz4_frame(value(1024), claim=10 * GIB)),
    (Compression.GZIP, members(PLAIN)[:-4] + b"\xff\xff\xff\xff"),
    (Compression.SNAPPY, snappy(value(129 * MIB))),
]


@pytest.mark.parametrize(("codec", "data"), CLAIMS)
def test_a_claim_beyond_the_limit_is_refused_before_any_attempt(
    codec: Compression, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cramjam.zstd, cramjam.lz4, cramjam.gzip):
        monkeypatch.setattr(module, "decompress_into", None)
    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", None)
    with pytest.raises(TooLargePlainError, match="claim"):
        decompress(codec, data)


def test_raw_snappy_that_claims_what_it_cannot_be_is_refused_before_it_gets_a_buffer() -> None:
    data = snappy(value(MIB), claim=40 * MIB)
    for attempt in (decompress, read):
        with pytest.raises(CorruptBatchError, match="cannot be"):
            attempt(Compression.SNAPPY, data)
