"""The promises of the plain reader, the builder and the codecs."""

import contextlib
import gc
import random
import struct

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch, varint
from barnabas_raftlog.records.compression import Compression, compress, decompress
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import batches, read_batch, read_records
from barnabas_raftlog.records.walker.faults import HEADERS_MAX

from .bombs import framed, headers
from .strategies import batch_of_deltas, damaged

PLAIN = b"the same words again and again " * 3_000
COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN, bytes(300_000)])
def test_what_is_compressed_comes_back(codec: Compression, plain: bytes) -> None:
    assert decompress(codec, compress(codec, plain), len(plain)) == plain


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_corrupt_at_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(10_000_000))
    assert len(bomb) < 500_000
    with pytest.raises(CorruptBatchError):
        decompress(codec, bomb, 9_999_999)
    assert len(decompress(codec, bomb, 10_000_000)) == 10_000_000


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_off_body_is_corrupt(codec: Compression) -> None:
    body = compress(codec, PLAIN)
    for size in (1, 5, len(body) // 2, len(body) - 1):
        with pytest.raises(CorruptBatchError):
            decompress(codec, body[:size], 1 << 20)


@settings(max_examples=100, deadline=None)
@given(codec_id=st.integers(1, 7), body=st.binary(max_size=60))
def test_garbage_is_corrupt_whatever_the_codec(codec_id: int, body: bytes) -> None:
    try:
        decompress(codec_id, body, 1 << 16)
    except CorruptBatchError:
        return


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_a_bomb_needed_is_free_when_it_is_refused(codec: Compression) -> None:
    """An error that stood in a circle would keep all the buffers that were tried until the collector comes by."""
    bomb = compress(codec, bytes(1 << 20))
    gc.collect()
    with contextlib.suppress(CorruptBatchError):
        decompress(codec, bomb, 1 << 18)
    assert gc.collect() == 0


def test_raw_snappy_is_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN))) == PLAIN


def test_a_snappy_claim_of_gigabytes_allocates_nothing() -> None:
    with pytest.raises(CorruptBatchError, match="4294967295"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"a" * 10)


@settings(max_examples=60, deadline=None)
@given(unit=st.binary(min_size=1, max_size=300), size=st.sampled_from([0, 1, 65_535, 65_536, 65_537, 131_072, 200_000]))
def test_lz4_is_what_others_write_and_read(unit: bytes, size: int) -> None:
    plain = (unit * (size // len(unit) + 1))[:size]
    body = compress(Compression.LZ4, plain)
    about = lz4.frame.get_frame_info(body)

    assert lz4.frame.decompress(body) == plain
    assert not about["block_linked"], "the Java client reads no others"
    assert about["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB
    assert not about["block_checksum"], "a batch has one, and these take six times as long as the codec"
    assert not about["content_checksum"]


def test_lz4_of_what_does_not_become_smaller_is_hardly_larger() -> None:
    plain = random.Random(1).randbytes(200_000)
    body = compress(Compression.LZ4, plain)

    assert len(body) == 7 + 4 * 4 + len(plain) + 4
    assert decompress(Compression.LZ4, body) == plain


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-65, "8101"), (2**31 - 1, "feffffff0f")],
)
def test_varints_are_zigzag(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


def test_a_batch_has_these_bytes() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 1_000, [("h", None)])], producer_id=1, producer_epoch=2, base_sequence=3)
    expected = (
        ("base offset", "0000000000000000"),
        ("length, leader epoch, magic", "0000003dffffffff02"),
        ("checksum", f"{parse_header(batch).crc:08x}"),
        ("attributes, last offset delta", "000000000000"),
        ("first and largest timestamp", "00000000000003e800000000000003e8"),
        ("producer id, epoch, base sequence", "0000000000000001000200000003"),
        ("number of records", "00000001"),
        ("length, attributes, two deltas", "16000000"),
        ("key, value, header count, name, null", "026b027602026801"),
    )
    assert batch.hex() == "".join(text for _, text in expected)


def test_a_cut_off_batch_at_the_end_is_ignored() -> None:
    first = bytes(build_batch([NewRecord(None, b"a", 1)]))
    second = bytes(build_batch([NewRecord(None, b"b", 1)], base_offset=1))
    for size in range(len(second)):
        assert [one.value for one in read_records(first + second[:size])] == [b"a"]
    assert [one.value for one in read_records(first + second, 1)] == [b"b"]


def test_a_batch_smaller_than_its_header_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError, match="claims 22 bytes"):
        list(batches(bytes(8) + struct.pack(">i", 10) + bytes(100)))


def test_more_records_than_bytes_are_corrupt_before_any_is_read() -> None:
    batch = build_batch([NewRecord(None, b"a", 1)])
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    header, frame = next(batches(batch, check_crc=False))
    with pytest.raises(CorruptBatchError, match="2147483647 records in 8 bytes"):
        list(read_batch(header, frame))


def test_a_bomb_of_records_that_are_all_the_same_ends_at_the_second() -> None:
    bomb = batch_of_deltas([0] * 100_000, compression=Compression.ZSTD, last_delta=99_999)
    assert len(bomb) < 1_000
    records = read_records(bomb)
    assert next(records).offset == 0
    with pytest.raises(CorruptBatchError, match="offset delta 0 of a record where 1 to 99999 is due"):
        next(records)


def test_a_record_has_at_most_65536_headers() -> None:
    (record,) = read_records(framed(Compression.NONE, headers(HEADERS_MAX).plain))
    assert record.headers == (("", b""),) * HEADERS_MAX
    with pytest.raises(CorruptBatchError, match="65537 headers in 131074 bytes, where 65,536 are the most"):
        list(read_records(framed(Compression.NONE, headers(HEADERS_MAX + 1).plain)))


def test_a_wrong_checksum_is_corrupt() -> None:
    batch = build_batch([NewRecord(None, b"a", 1)])
    batch[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        list(read_records(batch))


@settings(max_examples=150, deadline=None)
@given(data=damaged() | st.binary(max_size=100))
def test_damage_raises_only_corrupt_batch_error(data: bytes) -> None:
    try:
        list(read_records(data, check_crc=False, limit_bytes=1 << 20))
    except CorruptBatchError:
        return
