"""The walker's keys and timestamps: both twins against the reader that makes an object of each record."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raftlog.records.strategies import batch_of_deltas, damaged

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.bounded import BatchBounds, bounded_part
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import BatchHeader, parse_header, stamp
from barnabas_raftlog.records.reader import Record, placed_records
from barnabas_raftlog.records.walker.arrow_parts import Part
from barnabas_raftlog.records.walker.faults import Fault
from barnabas_raftlog.records.walker.key_parts import Timed
from barnabas_raftlog.records.walker.pure import keys as pure_keys
from barnabas_raftlog.records.walker.pure import timestamps as pure_timestamps
from barnabas_raftlog.records.walker.twins import IS_COMPILED, check

SECRET = bytes(range(16))
BOUNDS = BatchBounds(1 << 20, 1 << 20)
TWINS: list[tuple[Any, Any]] = [(pure_keys, pure_timestamps)]
if IS_COMPILED:
    from barnabas_raftlog.records.walker.compiled import keys as compiled_keys
    from barnabas_raftlog.records.walker.compiled import timestamps as compiled_timestamps

    TWINS.append((compiled_keys, compiled_timestamps))

each_twin = pytest.mark.parametrize(("keys", "timestamps"), TWINS, ids=["pure", "compiled"][: len(TWINS)])

RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=2) | st.binary(min_size=9, max_size=40),
        st.none() | st.binary(max_size=90),
        st.integers(1_000, 1_009),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)
LOGS = st.lists(RECORDS, min_size=1, max_size=4)
RANGES = st.lists(st.integers(0, 60), max_size=8, unique=True).map(
    lambda ends: list(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)


def parts_of(batches: Sequence[Sequence[NewRecord]]) -> list[Part]:
    """Return batches that follow each other."""
    parts = []
    offset = 5
    for records in batches:
        frame = bytearray(build_batch(records))
        stamp(frame, offset, 1)
        parts.append(bounded_part(parse_header(frame), memoryview(frame), BOUNDS))
        offset += len(records)
    return parts


def header_of(part: Part) -> BatchHeader:
    """Return what the reader asks of a header."""
    return BatchHeader(
        base_offset=part.base_offset,
        batch_length=0,
        leader_epoch=1,
        magic=2,
        crc=0,
        attributes=0 if part.append_timestamp is None else 8,
        last_offset_delta=part.last_offset_delta,
        base_timestamp=part.base_timestamp,
        max_timestamp=part.append_timestamp or 0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=part.record_count,
    )


def read(part: Part) -> list[tuple[Record, int]]:
    return list(placed_records(header_of(part), bytes(part.body)))


def is_within(ranges: list[tuple[int, int]], offset: int) -> bool:
    return any(start <= offset < end for start, end in ranges)


@each_twin
@given(LOGS, RANGES, st.booleans())
def test_what_stays_is_what_a_dictionary_would_keep(
    keys: Any, timestamps: Any, batches: list[list[NewRecord]], aborted: list[tuple[int, int]], drop_tombstones: bool
) -> None:
    parts = parts_of(batches)
    table = keys.KeyTable(100, SECRET)
    newest: dict[bytes, int] = {}
    for part in parts:
        assert table.note(part, aborted)
        for record, _ in read(part):
            if record.key is not None and not is_within(aborted, record.offset):
                newest[record.key] = record.offset
    assert len(table) == len(newest)
    assert {key: table.newest(key) for key in newest} == newest
    assert table.newest(b"no key is so long" * 9) == -1
    for part in parts:
        kept = table.kept(part, drop_tombstones=drop_tombstones, aborted=aborted)
        wanted = bytearray()
        start = 0
        stay = []
        for record, end in read(part):
            is_replaced = record.key is not None and (
                newest.get(record.key, -1) > record.offset or (drop_tombstones and record.value is None)
            )
            if not is_replaced and not is_within(aborted, record.offset):
                wanted += memoryview(part.body)[start:end]
                stay.append(record)
            start = end
        assert (kept.records, kept.max_timestamp) == (len(stay), max((one.timestamp for one in stay), default=-1))
        body = bytearray(part.body)
        assert body[: keys.squeeze(body, kept.marks, part.record_count)] == wanted


@each_twin
@given(RECORDS, st.integers(0, 25), st.integers(1_000, 1_010), st.none() | st.just(1_004))
def test_the_first_at_a_timestamp_and_the_largest_are_those_of_the_reader(
    keys: Any, timestamps: Any, records: list[NewRecord], start_offset: int, asked: int, appended: int | None
) -> None:
    part = parts_of([records])[0]._replace(append_timestamp=appended)
    behind = [record for record, _ in read(part) if record.offset >= start_offset]
    first = next((one for one in behind if one.timestamp >= asked), None)
    largest = max(behind, key=lambda one: one.timestamp, default=None)
    for found, due in (
        (timestamps.first_at(part, asked, start_offset), first),
        (timestamps.largest_timestamp(part, start_offset), largest),
    ):
        assert found == (Timed(Fault.NONE, -1, -1) if due is None else Timed(Fault.NONE, due.offset, due.timestamp))


@each_twin
@given(damaged())
def test_of_damaged_batches_the_twins_and_the_reader_say_the_same(keys: Any, timestamps: Any, data: bytes) -> None:
    try:
        header = parse_header(data)
        part = bounded_part(header, memoryview(data), BOUNDS)
    except CorruptBatchError:
        return
    if not part.record_count:
        return
    found = []
    is_sound = True
    try:
        for record, _ in placed_records(header_of(part)._replace(max_timestamp=header.max_timestamp), bytes(part.body)):
            found.append(record)
    except CorruptBatchError:
        is_sound = False
    middle = found[len(found) // 2].timestamp if found else 0
    first = timestamps.first_at(part, middle, 0)
    due = next((one for one in found if one.timestamp >= middle), None)
    assert (first.offset, first.timestamp) == ((-1, -1) if due is None else (due.offset, due.timestamp))
    assert bool(first.fault) == (due is None and not is_sound)
    largest = timestamps.largest_timestamp(part, 0)
    assert bool(largest.fault) != is_sound
    table = keys.KeyTable(100, SECRET)
    walked = check(part.body, part.record_count, part.base_timestamp, part.last_offset_delta, is_dense=False)
    assert bool(walked.fault) != is_sound
    if is_sound:
        assert table.note(part)
        assert len(table) == len({one.key for one in found if one.key is not None})
        assert largest.timestamp == max(one.timestamp for one in found)
        return
    # A batch that was not checked first costs no more than an error.
    marks = bytes([0x55]) * (part.record_count // 8 + 1)
    with suppress(ValueError):
        table.note(part)
    with suppress(ValueError):
        table.kept(part, drop_tombstones=True)
    with suppress(ValueError):
        keys.squeeze(bytearray(part.body), marks, part.record_count)


@each_twin
def test_a_full_table_takes_nothing_more_and_finds_what_it_has(keys: Any, timestamps: Any) -> None:
    names = [f"key {number}".encode() for number in range(1_000)]
    part = parts_of([[NewRecord(name, b"v", 1_000) for name in (*names, b"a", names[0])]])[0]
    table = keys.KeyTable(1_000, SECRET)
    assert not table.note(part)
    assert len(table) == 1_000
    assert [table.newest(name) for name in names] == list(range(5, 1_005)), "the one behind the key without room is not"
    assert table.newest(b"a") == -1
    none = keys.KeyTable(0, SECRET)
    assert not none.note(part)
    assert (len(none), none.newest(b"a")) == (0, -1)


@each_twin
@pytest.mark.parametrize("shift", [7, 63, 64, 200])
def test_what_stays_moves_over_gaps_of_any_size(keys: Any, timestamps: Any, shift: int) -> None:
    first = NewRecord(b"", bytes(max(0, shift - 9)), 1_000)
    others = [NewRecord(None, bytes([number]) * 999, 1_000) for number in range(1, 9)]
    part = parts_of([[first, *others]])[0]
    size = read(part)[0][1]
    body = bytearray(part.body)
    assert keys.squeeze(body, b"\xfe\xff", 9) == len(body) - size
    assert body[: len(body) - size] == bytes(part.body)[size:]


@each_twin
def test_ranges_of_aborted_records_end_before_their_end(keys: Any, timestamps: Any) -> None:
    part = parts_of([[NewRecord(b"k", b"v", 1_000)] * 10])[0]  # offsets 5 to 14
    aborted = [(0, 2), (5, 6), (8, 10), (13, 20), (30, 40)]
    table = keys.KeyTable(5, SECRET)
    assert table.note(part, aborted)
    assert table.newest(b"k") == 12
    assert table.kept(part, drop_tombstones=False, aborted=aborted).marks == bytes([0x80, 0x00])
    assert table.kept(part, drop_tombstones=False).marks == bytes([0x80, 0x03])


@each_twin
def test_a_secret_has_its_size(keys: Any, timestamps: Any) -> None:
    with pytest.raises(ValueError, match="a secret has 16 bytes, not 15"):
        keys.KeyTable(1, SECRET[1:])


@each_twin
def test_records_with_gaps_keep_their_offsets(keys: Any, timestamps: Any) -> None:
    frame = memoryview(batch_of_deltas([0, 3, 9], last_delta=9))
    part = bounded_part(parse_header(frame), frame, BOUNDS)
    assert timestamps.first_at(part, 1_000, 4) == Timed(Fault.NONE, 9, 1_000)
    assert keys.KeyTable(0, SECRET).kept(part, drop_tombstones=True, aborted=[(3, 4)]).marks == b"\x05"


if IS_COMPILED:  # the twin in Python has another digest, which nobody sees

    def test_the_digest_is_that_of_its_authors() -> None:
        """The vectors of the reference implementation: of 0 to 63 bytes 00 01 02 ..., under the key 00 to 0f."""
        digests = [compiled_keys.siphash_128(bytes(range(size)), SECRET) for size in range(64)]
        assert digests[0].hex() == "a3817f04ba25a8e66df67214c7550293"
        assert digests[1].hex() == "da87c1d86b99af44347659119b22fc45"
        assert digests[63].hex() == "5150d1772f50834a503e069a973fbd7c"
        all_of_them = "ecfaa9fe47ff788fa834a9863ea2715a2880cd37d2b8c3c194402838428119b9"
        assert hashlib.sha256(b"".join(digests)).hexdigest() == all_of_them
