"""Both twins make the same objects of the records of a batch, and find the same damage in them."""

import sys
from typing import Any, NamedTuple

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch, varint
from barnabas_raftlog.records.header import HEADER_BYTES, TIMESTAMP_LOG_APPEND, parse_header
from barnabas_raftlog.records.reader import batch_body, placed_records
from barnabas_raftlog.records.walker import twins
from barnabas_raftlog.records.walker.batch_frame import BatchFrame
from barnabas_raftlog.records.walker.faults import HEADERS_MAX
from barnabas_raftlog.records.walker.pure import records as pure

from .strategies import new_records

# Where nothing is compiled, the twin is compared with the plain reader alone.
compiled: Any = pure
if twins.IS_COMPILED:
    from barnabas_raftlog.records.walker.compiled import records as compiled

MODULES = pytest.mark.parametrize("module", [compiled, pure], ids=["compiled", "pure"])
Row = tuple[Any, ...]


class Place(NamedTuple):
    """A plain body, and what its header said."""

    body: bytes
    records: int
    frame: BatchFrame


def made(*fields: object) -> Row:
    return fields


def taken(module: Any, place: Place, size: int, offset: int, headers_max: int = 100) -> tuple[list[Row], str]:
    """Return the records from `offset` on, in slices of `size`, and what was said about damage."""
    rows: list[Row] = []
    body, count, frame = place
    try:
        number, position, delta_min = module.skip_records(count, body, 0, frame, offset)
        while number < count:
            before = len(rows)
            many = min(size, count - number)
            position, found = module.take_records(
                rows, many, headers_max, body, position, frame, number, delta_min, made
            )
            of_rows = [len(row[6]) for row in rows[before:]]
            assert sum(of_rows[:-1]) < headers_max
            assert sum(of_rows) == found
            assert len(of_rows) == many or found >= headers_max
            number += len(of_rows)
            delta_min = rows[-1][2] + 1 - frame.base_offset
    except CorruptBatchError as error:
        return rows, str(error)
    return rows, "" if position == len(body) else f"ends at {position}"


def model(place: Place, offset: int) -> tuple[list[Row], bool]:
    """Return what the plain reader reads, and whether it met damage."""
    frame = place.frame
    header = parse_header(
        build_batch([NewRecord(None, None, 0)], base_offset=frame.base_offset, leader_epoch=frame.epoch)
    )
    append = frame.log_append_timestamp
    header = header._replace(
        attributes=0 if append is None else TIMESTAMP_LOG_APPEND,
        record_count=place.records,
        last_offset_delta=frame.last_delta,
        base_timestamp=frame.base_timestamp,
        max_timestamp=-1 if append is None else append,
    )
    rows: list[Row] = []
    try:
        for record, _ in placed_records(header, place.body):
            if record.offset >= offset:
                rows.append((frame.topic, frame.partition, *record, frame.epoch))
    except CorruptBatchError:
        return rows, True
    return rows, False


@st.composite
def places(draw: st.DrawFn) -> Place:
    records = draw(st.lists(new_records(), min_size=1, max_size=5))
    batch = build_batch(records, base_offset=draw(st.integers(0, 2**62)))
    header = parse_header(batch)
    append = draw(st.none() | st.integers(-1, 2**63 - 1))
    base_timestamp = draw(st.just(header.base_timestamp) | st.sampled_from([2**63 - 1, -(2**63), 0]))
    last_delta = header.last_offset_delta + draw(st.sampled_from([0, 0, 3, -1]))
    frame = BatchFrame("t", 3, header.base_offset, last_delta, base_timestamp, append, 7)
    return Place(bytes(batch_body(header, memoryview(batch), 1 << 20)), len(records), frame)


@st.composite
def damaged_places(draw: st.DrawFn) -> Place:
    place = draw(places())
    body = bytearray(place.body)
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.sampled_from([len(body), len(body), *range(min(len(body), 20))]))
    return place._replace(body=bytes(body[:cut]), records=place.records + draw(st.sampled_from([0, 0, 1, -1])))


@settings(max_examples=150, deadline=None)
@given(
    place=damaged_places(),
    size=st.sampled_from([1, 2, 100]),
    after=st.sampled_from([-1, 0, 0, 1, 3, 100]),
    headers_max=st.sampled_from([1, 2, 3, 100]),
)
def test_both_twins_read_the_same_and_say_the_same_of_damage(
    place: Place, size: int, after: int, headers_max: int
) -> None:
    offset = place.frame.base_offset + after
    found = taken(compiled, place, size, offset, headers_max)
    assert found == taken(pure, place, size, offset, headers_max)
    rows, is_damaged = model(place, offset)
    assert found[0] == rows
    assert bool(found[1]) is is_damaged


@MODULES
@settings(max_examples=40, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=6))
def test_what_aiokafka_builds_is_read(module: Any, records: list[NewRecord]) -> None:
    builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
    for number, (key, value, timestamp, headers) in enumerate(records):
        builder.append(number, timestamp, key, value, list(headers))
    batch = bytes(builder.build())
    header = parse_header(batch)
    frame = BatchFrame("t", 3, 0, header.last_offset_delta, header.base_timestamp, None, 7)
    rows, damage = taken(module, Place(batch[HEADER_BYTES:], len(records), frame), 100, 0)
    assert not damage
    assert rows == [
        ("t", 3, number, timestamp, key, value, tuple(headers), 7)
        for number, (key, value, timestamp, headers) in enumerate(records)
    ]


@settings(max_examples=60, deadline=None)
@given(place=places(), size=st.integers(1, 3))
def test_a_body_may_be_any_buffer(place: Place, size: int) -> None:
    for body in (bytearray(place.body), memoryview(place.body), memoryview(b"--" + place.body)[2:]):
        for module in (compiled, pure):
            assert taken(module, place._replace(body=body), size, 0) == taken(module, place, size, 0)  # type: ignore[arg-type]  # any buffer is the point


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=60), count=st.integers(0, 5))
def test_any_bytes_at_all_are_the_same_to_both(body: bytes, count: int) -> None:
    place = Place(body, count, BatchFrame("t", 3, 0, 10, 0, None, 7))
    assert taken(compiled, place, 2, 0) == taken(pure, place, 2, 0)


@MODULES
def test_the_name_of_a_header_loses_its_odd_bytes(module: Any) -> None:
    record = b"\x00\x00\x00\x01\x01" + varint(1) + varint(3) + b"a\xffb" + varint(-1)
    place = Place(varint(len(record)) + record, 1, BatchFrame("t", 3, 0, 0, 0, None, 7))
    assert taken(module, place, 1, 0)[0][0][6] == (("a\ufffdb", None),)


@MODULES
def test_a_record_has_at_most_65536_headers(module: Any) -> None:
    parts = [b"\x00\x00" + varint(at) + b"\x01\x01" + varint(n) + bytes(2 * n) for at, n in enumerate((65_536, 65_537))]
    body = b"".join(varint(len(part)) + part for part in parts)
    rows, damage = taken(module, Place(body, 2, BatchFrame("t", 3, 0, 1, 0, None, 7)), 1, 0)
    assert [row[6] for row in rows] == [(("", b""),) * HEADERS_MAX]
    assert damage.startswith("record 1 has a negative number of headers, or more than fit or than 65,536, at 131")


@MODULES
def test_an_object_that_cannot_be_made_leaves_those_before_it(module: Any) -> None:
    batch = build_batch([NewRecord(b"k", b"v", 5)] * 3)

    def refuse(*fields: Any) -> Row:
        if fields[2] == 2:
            raise KeyError("no more")
        return fields

    rows: list[Row] = []
    frame = BatchFrame("t", 3, 0, 2, 5, None, 7)
    with pytest.raises(KeyError):
        module.take_records(rows, 3, 100, bytes(batch[HEADER_BYTES:]), 0, frame, 0, 0, refuse)
    assert [row[2] for row in rows] == [0, 1]


@MODULES
def test_nothing_of_the_records_is_held_afterwards(module: Any) -> None:
    batch = build_batch([NewRecord(b"k" * 40, b"v" * 300, 5, [("name", b"x")])] * 20)
    bad = bytearray(batch[HEADER_BYTES:])
    bad[-1] = 9
    topic, append = "orders", 2**40
    frame = BatchFrame(topic, 3, 0, 19, 5, append, 7)
    for body in (bytes(batch[HEADER_BYTES:]), bytes(bad)):
        before = [sys.getrefcount(each) for each in (topic, append, frame, body, made)]
        for _ in range(50):
            taken(module, Place(body, 20, frame), 7, 3)
        assert [sys.getrefcount(each) for each in (topic, append, frame, body, made)] == before


@MODULES
@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (5, 2**63 - 1), (-5, -(2**63))])
def test_a_timestamp_beyond_64_bits_is_damage_also_if_the_broker_set_another(
    module: Any, base: int, delta: int
) -> None:
    records = [b"\x00" + varint(far) + varint(number) + b"\x01\x01\x00" for number, far in enumerate((0, delta))]
    body = b"".join(varint(len(record)) + record for record in records)
    for append in (None, 9):
        rows, damage = taken(module, Place(body, 2, BatchFrame("t", 3, 0, 1, base, append, 7)), 2, 0)
        assert [row[3] for row in rows] == [base if append is None else append]
        assert damage.startswith("record 1 has a timestamp that does not fit 64 bits")
