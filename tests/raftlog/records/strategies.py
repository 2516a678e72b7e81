"""The parts that batches in tests are made of."""

from collections.abc import Sequence

from hypothesis import strategies as st

from barnabas_raftlog.records.builder import NewRecord, build_batch, varint, write_header
from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.records.header import CRC_POSITION, CRC_START, HEADER_BYTES
from barnabas_raftlog.wire.crc32c import crc32c

# Sizes on both sides of every varint boundary that a test can afford.
CONTENT = st.none() | st.binary(max_size=80) | st.integers(8_180, 8_200).map(lambda size: b"x" * size)
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=4)
TIMESTAMPS = st.integers(0, 2**42) | st.integers(1_700_000_000_000, 1_700_000_100_000)


def new_records() -> st.SearchStrategy[NewRecord]:
    return st.builds(NewRecord, CONTENT, CONTENT, TIMESTAMPS, HEADERS)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a batch with a few bytes of its body, its counts or its attributes changed, or cut off."""
    records = draw(st.lists(new_records(), min_size=1, max_size=4))
    batch = build_batch(records, compression=draw(st.sampled_from(Compression)))
    for _ in range(draw(st.integers(1, 3))):
        # Everything but the base offset, whose value is not checked, and mostly the bytes behind the header.
        position = draw(st.integers(8, len(batch) - 1) | st.integers(57, len(batch) - 1))
        batch[position] = draw(st.integers(0, 255))
    return bytes(batch)


def batch_of_deltas(
    deltas: Sequence[int], *, compression: Compression = Compression.NONE, last_delta: int, key: bytes | None = None
) -> bytes:
    """Return a batch at offset 0 of records that are alike, at these distances from it; its checksum is right."""
    encoded = b"\x01" if key is None else varint(len(key)) + key
    records = [b"\x00\x00" + varint(delta) + encoded + b"\x02v\x00" for delta in deltas]
    body = b"".join(varint(len(record)) + record for record in records)
    frame = bytearray(HEADER_BYTES) + compress(compression, body)
    write_header(frame, attributes=compression, record_count=len(deltas), base_timestamp=1_000, max_timestamp=1_000)
    frame[CRC_START + 2 : CRC_START + 6] = last_delta.to_bytes(4, "big")
    frame[CRC_POSITION:CRC_START] = crc32c(memoryview(frame)[CRC_START:]).to_bytes(4, "big")
    return bytes(frame)
