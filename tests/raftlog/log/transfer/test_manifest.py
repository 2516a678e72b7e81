"""A manifest is read as it was written, unless it contradicts itself."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile, decode_manifest, encode_manifest, stem_of

FILES = (
    SegmentFile(
        base_offset=20,
        first_index=11,
        end_offset=30,
        last_index=15,
        size_bytes=500,
        crc32c=7,
        max_timestamp=1000,
        max_timestamp_offset=28,
    ),
    SegmentFile(
        base_offset=30,
        first_index=16,
        end_offset=44,
        last_index=30,
        size_bytes=900,
        crc32c=8,
        max_timestamp=2000,
        max_timestamp_offset=30,
    ),
)
MANIFEST = Manifest(
    snapshot_index=30,
    snapshot_term=4,
    end_offset=44,
    start_index=10,
    log_start_offset=23,
    epochs=((2, 3, 4), (4, 12, 22)),
    files=FILES,
    configuration=b"",
    state=b"state",
)


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
        file = SegmentFile(
            base_offset=offset,
            first_index=index + 1,
            end_offset=offset + records,
            last_index=index + entries,
            size_bytes=61,
            crc32c=5,
            max_timestamp=1,
            max_timestamp_offset=offset,
        )
        files.append(file)
        index += entries
        offset += records
    epochs = ((3, 1, 0),) if index else ()
    manifest = Manifest(
        snapshot_index=index,
        snapshot_term=3 if index else 0,
        end_offset=offset,
        start_index=start,
        log_start_offset=2 * start,
        epochs=epochs,
        files=tuple(files),
        configuration=b"who",
        state=state,
    )
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
