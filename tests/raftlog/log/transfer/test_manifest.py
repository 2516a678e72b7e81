"""The list of a snapshot's files: what is written is read, and nothing that contradicts itself is."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile, decode_manifest, encode_manifest, stem_of

FILES = (
    SegmentFile(20, 11, 30, 15, 500, 7, 1000, 28),
    SegmentFile(30, 16, 44, 30, 900, 8, 2000, 30),
)
MANIFEST = Manifest(30, 4, 44, 10, 23, ((2, 3, 4), (4, 12, 22)), FILES, b"", b"state")


def test_bytes_are_what_the_document_says() -> None:
    data = encode_manifest(msgspec.structs.replace(MANIFEST, files=FILES[1:], start_index=15, log_start_offset=30))
    assert data[:12] == b"BNBSMNFT\0\0\0\1"
    assert data[24:].hex() == ("991e042c0f1e929302030493040c1691981e102c1ecd038408cd07d01ec400c4057374617465")


@given(
    sizes=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 90)), max_size=6),
    start=st.integers(0, 100),
    state=st.binary(max_size=40),
)
@settings(max_examples=60)
def test_what_is_written_is_read(sizes: list[tuple[int, int]], start: int, state: bytes) -> None:
    files: list[SegmentFile] = []
    index = start
    offset = 2 * start
    for entries, records in sizes:
        files.append(SegmentFile(offset, index + 1, offset + records, index + entries, 61, 5, 1, offset))
        index += entries
        offset += records
    epochs = ((3, 1, 0),) if index else ()
    manifest = Manifest(index, 3 if index else 0, offset, start, 2 * start, epochs, tuple(files), b"who", state)
    assert decode_manifest(encode_manifest(manifest)) == manifest


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot_index": 31},
        {"end_offset": 45},
        {"start_index": 9},
        {"log_start_offset": 19},
        {"snapshot_term": 5},
        {"files": FILES[::-1]},
        {"files": (FILES[0], msgspec.structs.replace(FILES[1], base_offset=31))},
        {"epochs": ((4, 12, 22), (2, 13, 23))},
        {"epochs": ((2, 3, 4), (4, 31, 44))},
    ],
)
def test_what_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(MalformedMessageError):
        decode_manifest(encode_manifest(msgspec.structs.replace(MANIFEST, **change)))


@given(place=st.integers(0, 100), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(place: int, bit: int) -> None:
    data = bytearray(encode_manifest(MANIFEST))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(MalformedMessageError):
        decode_manifest(data)


def test_names_sort_as_numbers_do() -> None:
    assert stem_of(9, 2) < stem_of(10, 1)
