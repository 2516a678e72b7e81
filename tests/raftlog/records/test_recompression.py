"""Batches in another codec: the records stay, readers of every kind read them, and no memory is held for them."""

import tracemalloc

import aiokafka.codec
import pytest
from broker.wire_client import batch, framed
from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.records.header import HEADER_BYTES, BatchHeader, verify
from barnabas_raftlog.records.reader import read_batch
from barnabas_raftlog.records.recompression import DEFAULT_LEVELS, TooLargeResultError, recompress

CODECS = list(Compression)
LEVELS = {
    Compression.NONE: [0],
    Compression.SNAPPY: [0],
    Compression.GZIP: [-1, 1, 9],
    Compression.LZ4: [1, 2, 9, 12, 17],
    Compression.ZSTD: [-131_072, 1, 3, 22],
}
READERS = {
    Compression.GZIP: aiokafka.codec.gzip_decode,
    Compression.SNAPPY: aiokafka.codec.snappy_decode,
    Compression.LZ4: aiokafka.codec.lz4_decode,
    Compression.ZSTD: aiokafka.codec.zstd_decode,
}


def sent(codec: Compression, count: int = 50, **fields: int) -> tuple[BatchHeader, memoryview]:
    frame = memoryview(bytearray(batch(count, attributes=codec, producer_id=7, epoch=1, sequence=5, **fields)))
    return verify(frame), frame


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
def test_the_records_and_the_rest_of_the_header_stay(source: Compression, target: Compression) -> None:
    header, frame = sent(source, body_bytes=100_000)
    result = recompress(header, frame, target, DEFAULT_LEVELS.get(target, 0))
    found = verify(result)
    changed = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert found._replace(**changed) == header._replace(**changed)
    assert found.attributes == target
    assert list(read_batch(found, result)) == list(read_batch(header, frame))
    assert not result.readonly


@pytest.mark.parametrize(("target", "level"), [(codec, level) for codec in LEVELS for level in LEVELS[codec]])
def test_every_level_is_read_by_others(target: Compression, level: int) -> None:
    header, frame = sent(Compression.NONE, body_bytes=600_000)
    for plain_bytes in (0, 600_000):
        result = recompress(header, frame, target, level, plain_bytes=plain_bytes)
        body = bytes(result[HEADER_BYTES:])
        plain = READERS[target](body) if target in READERS else body
        assert plain == frame[HEADER_BYTES:]


def test_the_blocks_of_lz4_are_independent() -> None:
    header, frame = sent(Compression.NONE, body_bytes=600_000)
    flags = recompress(header, frame, Compression.LZ4, 9)[HEADER_BYTES + 4]
    assert flags & 0x20, "the Java client reads no others"


@given(body=st.binary(max_size=5_000), source=st.sampled_from(CODECS), target=st.sampled_from(CODECS))
def test_any_bytes_come_through(body: bytes, source: Compression, target: Compression) -> None:
    frame = memoryview(bytearray(framed(bytes(compress(source, body)), source, 0, 1, 1, -1, -1, -1, 1)))
    result = recompress(verify(frame), frame, target, DEFAULT_LEVELS.get(target, 0), plain_bytes=len(body))
    back = recompress(verify(result), result, Compression.NONE, 0)
    assert back[HEADER_BYTES:] == body


@pytest.mark.parametrize("target", [Compression.NONE, Compression.SNAPPY])
def test_a_result_that_is_too_large_is_given_up_before_it_is_held(target: Compression) -> None:
    bomb = bytes(compress(Compression.ZSTD, bytes(100 << 20)))
    frame = memoryview(bytearray(framed(bomb, Compression.ZSTD, 0, 1, 1, -1, -1, -1, 1)))
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeResultError, match="65536 are accepted"):
            recompress(verify(frame), frame, target, 0, bytes_max=1 << 16)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_what_cannot_be_decompressed_is_corrupt() -> None:
    frame = memoryview(bytearray(framed(b"no zstd", Compression.ZSTD, 0, 1, 1, -1, -1, -1, 1)))
    with pytest.raises(CorruptBatchError):
        recompress(verify(frame), frame, Compression.GZIP, -1)
