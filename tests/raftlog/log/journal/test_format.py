"""Journal bytes: records are read back; stale, torn and damaged ones are told apart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.log.journal.format import (
    FILE_HEADER_BYTES,
    FileHeader,
    QueuedRecord,
    RecordKind,
    aligned,
    as_stored,
    encode_batch,
    encode_file_header,
    parse_file_header,
    stored_size,
)
from barnabas_raftlog.log.journal.scan import JournalRecord, JournalScan

GROUP = bytes(19) + b"\1"
RECORDS = st.lists(
    st.tuples(
        st.sampled_from([int(kind) for kind in RecordKind if kind != RecordKind.BATCH]),
        st.just(GROUP),
        st.integers(0, 1 << 60),
        st.integers(0, 1 << 60),
        st.binary(max_size=900),
    ),
    min_size=1,
    max_size=5,
)


def written(data: bytearray, sequence: int, batches: list[list[QueuedRecord]], first: int = 1) -> list[int]:
    """Write the batches into `data`; return where each of them begins, and the end."""
    position = FILE_HEADER_BYTES
    places = []
    for number, records in enumerate(batches, first):
        buffers, size = encode_batch(sequence, number, records)
        joined = b"".join(buffers)
        assert len(joined) == size
        data[position : position + size] = joined
        places.append(position)
        position = aligned(position + size)
    return [*places, position]


def scanned(
    data: bytearray, sequence: int, start: int = FILE_HEADER_BYTES, before: int = 0
) -> tuple[list[JournalRecord], JournalScan]:
    """Scan with windows of all kinds: smaller than a record, smaller than a batch, larger than the file."""
    outcomes = []
    for window_bytes in (512, 1536, 1 << 20):

        def read(position: int, size_bytes: int, limit: int = window_bytes) -> bytearray:
            assert size_bytes <= limit
            return data[position : position + size_bytes]

        scan = JournalScan(read, len(data), sequence, start, before, window_bytes=window_bytes)
        outcomes.append((list(scan.records()), scan))
    first = outcomes[0]
    for records, scan in outcomes[1:]:
        assert records == first[0]
        assert (scan.end, scan.last_batch, scan.damaged_at) == (first[1].end, first[1].last_batch, first[1].damaged_at)
    return first


def found(data: bytearray, sequence: int, start: int = FILE_HEADER_BYTES, before: int = 0) -> list[QueuedRecord]:
    records, scan = scanned(data, sequence, start, before)
    assert scan.damaged_at is None
    return [(r.kind, r.group, r.index, r.term, bytes(data[r.position : r.position + r.size_bytes])) for r in records]


@given(st.lists(RECORDS, max_size=4), st.lists(RECORDS, max_size=4))
@settings(max_examples=100, deadline=None)
def test_the_newest_life_of_a_file_is_read_and_nothing_of_the_older(
    older: list[list[QueuedRecord]], newer: list[list[QueuedRecord]]
) -> None:
    data = bytearray(40_000)
    written(data, 1, older)
    places = written(data, 2, newer)
    assert found(data, 2) == [record for records in newer for record in records]
    if newer:
        assert found(data, 2, places[1], 1) == [record for records in newer[1:] for record in records]


@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_byte_is_cut_in_the_last_batch_and_reported_before_it(
    batches: list[list[QueuedRecord]], draw: st.DataObject
) -> None:
    data = bytearray(40_000)
    places = written(data, 5, batches)
    number = draw.draw(st.integers(0, len(batches) - 1))
    _, size = encode_batch(5, number + 1, batches[number])
    data[places[number] + draw.draw(st.integers(0, size - 1))] ^= 0x40
    records, scan = scanned(data, 5)
    intact = [record for records in batches[:number] for record in records]
    assert len(intact) <= len(records) < sum(map(len, batches)) or not records
    assert (scan.damaged_at is not None) == (number < len(batches) - 1)


def test_a_torn_batch_gives_the_records_before_the_tear() -> None:
    data = bytearray(10_000)
    record = (int(RecordKind.ENTRY), GROUP, 1, 1, b"x" * 1000)
    places = written(data, 1, [[record, record, record]])
    data[places[0] + 2500 :] = bytes(len(data) - places[0] - 2500)
    assert len(scanned(data, 1)[0]) == 2


def test_file_headers() -> None:
    header = FileHeader(7, 1024, 5)
    data = encode_file_header(header)
    assert len(data) == FILE_HEADER_BYTES
    assert parse_file_header(data) == header
    assert parse_file_header(bytes(FILE_HEADER_BYTES)) is None
    assert parse_file_header(b"") is None
    damaged = bytearray(data)
    damaged[20] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        parse_file_header(damaged)


def test_files_of_the_version_before_are_read_and_those_of_the_next_are_refused() -> None:
    data = bytearray(encode_file_header(FileHeader(7, 1024, 5)))
    assert data[8:12] == (3).to_bytes(4, "big")
    data[8:12] = (2).to_bytes(4, "big")
    assert parse_file_header(data) == FileHeader(7, 1024, 5)
    data[8:12] = (4).to_bytes(4, "big")
    with pytest.raises(ValueError, match="journal format 4, this version reads 3"):
        parse_file_header(data)


def test_an_entry_that_is_stored_leaves_its_size() -> None:
    assert as_stored((int(RecordKind.ENTRY), GROUP, 5, 2, b"x" * 1000)) == (13, GROUP, 5, 2, bytes((0, 0, 3, 232)))
    assert stored_size(bytes((0, 0, 3, 232))) == 1000
    other = (int(RecordKind.TRUNCATE), GROUP, 5, 2, b"")
    assert as_stored(other) == other


def test_the_bytes_on_disk_do_not_change() -> None:
    buffers, _ = encode_batch(3, 1, [(int(RecordKind.HARD_STATE), GROUP, 2, 9, b"")])
    batch = b"".join(buffers[:2]).hex()
    record = b"".join(buffers[2:]).hex()
    assert batch == ("358094c30000000801000000" + 20 * "00" + "00000000000000010000000000000068" + b"BNBSBTCH".hex())
    assert record == "71bd73670000000003000000" + 19 * "00" + "0100000000000000020000000000000009"
