"""The walker's keys and timestamps: both twins against the reader that makes an object of each record."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raftlog.records.strategies import batch_of_deltas, damaged

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.bounded import BatchBounds, find_by_time, sound_part
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import BatchHeader, parse_header, stamp
from barnabas_raftlog.records.reader import Record, batch_body, placed_records
from barnabas_raftlog.records.walker.arrow_parts import Part
from barnabas_raftlog.records.walker.faults import Fault
from barnabas_raftlog.records.walker.key_parts import Timed
from barnabas_raftlog.records.walker.pure import keys as pure_keys
from barnabas_raftlog.records.walker.pure import timestamps as pure_timestamps
from barnabas_raftlog.records.walker.twins import IS_COMPILED

Buffer = bytes | bytearray | memoryview
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


def parts_of(batches: Sequence[Sequence[NewRecord]]) -> list[Part]:
    """Return batches that follow each other."""
    parts = []
    offset = 5
    for records in batches:
        frame = bytearray(build_batch(records))
        stamp(frame, offset, 1)
        parts.append(sound_part(parse_header(frame), memoryview(frame), BOUNDS))
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


@each_twin
@given(LOGS, st.booleans())
def test_what_stays_is_what_a_dictionary_would_keep(
    keys: Any, timestamps: Any, batches: list[list[NewRecord]], drop_tombstones: bool
) -> None:
    parts = parts_of(batches)
    table = keys.KeyTable(100, SECRET)
    newest: dict[bytes, int] = {}
    for part in parts:
        assert table.note(part)
        for record, _ in read(part):
            if record.key is not None:
                newest[record.key] = record.offset
    assert len(table) == len(newest)
    assert {key: table.newest(key) for key in newest} == newest
    assert table.newest(b"no key is so long" * 9) == -1
    for part in parts:
        kept = table.kept(part, drop_tombstones=drop_tombstones)
        wanted = bytearray()
        start = 0
        stay = []
        for record, end in read(part):
            is_replaced = record.key is not None and (
                newest.get(record.key, -1) > record.offset or (drop_tombstones and record.value is None)
            )
            if not is_replaced:
                wanted += memoryview(part.body)[start:end]
                stay.append(record)
            start = end
        assert (kept.records, kept.max_timestamp) == (len(stay), max((one.timestamp for one in stay), default=-1))
        body = bytearray(part.body)
        assert body[: keys.squeeze(body, kept.marks, part.record_count)] == wanted


def search_of(timestamps: Any, header: BatchHeader, start_offset: int, wanted: int | None) -> Any:
    return timestamps.TimeSearch(
        count=header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_timestamp=header.max_timestamp if header.attributes & 8 else None,
        start_offset=start_offset,
        wanted=wanted,
    )


def fed(search: Any, body: Buffer, cuts: Sequence[int]) -> Timed | None:
    """Feed a body that is cut at these places, and what was not used with what follows it."""
    left = bytearray()
    places = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    for start, end in pairwise(places):
        left += memoryview(body)[start:end]
        if len(left) >= search.bytes_due:
            del left[: search.feed(left)]
        if search.is_done:
            break
    found: Timed | None = search.end(is_left=bool(left))
    return found


CUTS = st.lists(st.integers(0, 300), max_size=6) | st.just(range(400))


@each_twin
@given(RECORDS, st.integers(0, 25), st.none() | st.integers(1_000, 1_010), st.none() | st.just(1_004), CUTS)
def test_the_first_at_a_timestamp_and_the_largest_are_those_of_the_reader(
    keys: Any,
    timestamps: Any,
    records: list[NewRecord],
    start_offset: int,
    wanted: int | None,
    appended: int | None,
    cuts: Sequence[int],
) -> None:
    part = parts_of([records])[0]._replace(append_timestamp=appended)
    behind = [record for record, _ in read(part) if record.offset >= start_offset]
    if wanted is None:
        due = max(behind, key=lambda one: one.timestamp, default=None)
    else:
        due = next((one for one in behind if one.timestamp >= wanted), None)
    search = search_of(timestamps, header_of(part), start_offset, wanted)
    found = fed(search, part.body, cuts)
    assert found == (None if due is None else Timed(due.offset, due.timestamp))
    assert search.fault is Fault.NONE


def sound_records(header: BatchHeader, body: Buffer) -> tuple[list[Record], bool]:
    """Return the records before the first that is not sound, and whether there is one."""
    found = []
    try:
        for record, _ in placed_records(header, bytes(body)):
            found.append(record)
    except CorruptBatchError:
        return found, True
    return found, False


@each_twin
@given(damaged(), CUTS)
def test_of_damaged_batches_the_twins_and_the_reader_say_the_same(
    keys: Any, timestamps: Any, data: bytes, cuts: Sequence[int]
) -> None:
    try:
        header = parse_header(data)
        body = batch_body(header, memoryview(data), 1 << 20)
    except CorruptBatchError:
        return
    found, is_bad = sound_records(header, body)
    middle = found[len(found) // 2].timestamp if found else 0
    search = search_of(timestamps, header, 0, middle)
    due = next((one for one in found if one.timestamp >= middle), None)
    assert fed(search, body, cuts) == (due and Timed(due.offset, due.timestamp))
    assert bool(search.fault) == (due is None and is_bad)
    search = search_of(timestamps, header, 0, None)
    due = max(found, key=lambda one: one.timestamp, default=None)
    assert fed(search, body, cuts) == (None if is_bad or due is None else Timed(due.offset, due.timestamp))
    assert bool(search.fault) == is_bad
    part = Part(body, header.record_count, header.base_offset, header.last_offset_delta, header.base_timestamp, None)
    table = keys.KeyTable(100, SECRET)
    if not is_bad:
        assert table.note(part)
        assert len(table) == len({one.key for one in found if one.key is not None})
        return
    # A batch that was not checked first costs no more than an error.
    marks = bytes([0x55]) * (part.record_count // 8 + 1)
    with suppress(ValueError):
        table.note(part)
    with suppress(ValueError):
        table.kept(part, drop_tombstones=True)
    with suppress(ValueError):
        keys.squeeze(bytearray(part.body), marks, part.record_count)


@given(damaged(), st.none() | st.integers(0, 2**42))
def test_a_batch_is_found_sound_by_its_bounds_as_the_reader_finds_it(data: bytes, wanted: int | None) -> None:
    try:
        header = parse_header(data)
    except CorruptBatchError:
        return
    frame = memoryview(data)
    found, is_bad = list[Record](), True
    with suppress(CorruptBatchError):
        found, is_bad = sound_records(header, batch_body(header, frame, 1 << 20))
    looked = find_by_time(header, frame, BOUNDS, start_offset=0, wanted_ms=None)
    assert looked.is_sound != is_bad
    try:
        part = sound_part(header, frame, BOUNDS)
    except CorruptBatchError:
        assert is_bad
        return
    assert not is_bad
    assert [record for record, _ in placed_records(header, bytes(part.body))] == found
    if wanted is not None:
        first = next((one for one in found if one.timestamp >= wanted), None)
        looked = find_by_time(header, frame, BOUNDS, start_offset=0, wanted_ms=wanted)
        assert looked.record == (first and Timed(first.offset, first.timestamp))


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
def test_bytes_behind_the_last_record_are_a_fault_to_each_of_them(keys: Any, timestamps: Any) -> None:
    part = parts_of([[NewRecord(b"k", b"v", 1_000)] * 2])[0]
    part = part._replace(body=bytes(part.body) + b"\x00")
    table = keys.KeyTable(5, SECRET)
    with pytest.raises(ValueError, match="a batch that was not checked"):
        table.note(part)
    with pytest.raises(ValueError, match="a batch that was not checked"):
        table.kept(part, drop_tombstones=False)
    for count in (2, 0, -1):
        search = search_of(timestamps, header_of(part)._replace(record_count=count), 0, None)
        assert fed(search, part.body, ()) is None
        assert search.fault is Fault.BEHIND


@each_twin
def test_a_secret_has_its_size(keys: Any, timestamps: Any) -> None:
    with pytest.raises(ValueError, match="a secret has 16 bytes, not 15"):
        keys.KeyTable(1, SECRET[1:])


@each_twin
def test_records_with_gaps_keep_their_offsets(keys: Any, timestamps: Any) -> None:
    frame = memoryview(batch_of_deltas([0, 3, 9], last_delta=9, key=b"k"))
    part = sound_part(parse_header(frame), frame, BOUNDS)
    assert fed(search_of(timestamps, header_of(part), 4, 1_000), part.body, ()) == Timed(9, 1_000)
    table = keys.KeyTable(5, SECRET)
    assert table.note(part)
    assert table.newest(b"k") == 9
    assert table.kept(part, drop_tombstones=False).marks == b"\x04"


if IS_COMPILED:  # the twin in Python has another digest, which nobody sees

    def test_the_digest_is_that_of_its_authors() -> None:
        """The vectors of the reference implementation: of 0 to 63 bytes 00 01 02 ..., under the key 00 to 0f."""
        digests = [compiled_keys.siphash_128(bytes(range(size)), SECRET) for size in range(64)]
        assert digests[0].hex() == "a3817f04ba25a8e66df67214c7550293"
        assert digests[1].hex() == "da87c1d86b99af44347659119b22fc45"
        assert digests[63].hex() == "5150d1772f50834a503e069a973fbd7c"
        all_of_them = "ecfaa9fe47ff788fa834a9863ea2715a2880cd37d2b8c3c194402838428119b9"
        assert hashlib.sha256(b"".join(digests)).hexdigest() == all_of_them
