"""Batches decoded into Arrow's buffers, by either twin, against the plain reader, which is the model."""

from array import array
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records import arrow, arrow_numpy
from barnabas_raftlog.records.arrow import read_arrow
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.columns import take_parts
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.reader import Record, read_records
from barnabas_raftlog.records.walker.arrow_parts import TIMESTAMP_MS_MAX, ArrowParts, HeaderParts, StringParts, Wanted
from barnabas_raftlog.records.walker.faults import HEADERS_MAX
from barnabas_raftlog.records.walker.twins import IS_COMPILED

from . import bombs
from .strategies import batch_of_deltas, damaged, new_records

Decoding = Callable[..., ArrowParts]
EVERYTHING = Wanted(headers=True)
WANTED = st.builds(Wanted, *[st.booleans()] * len(Wanted._fields))
# Without a compiler both names are of one function, and the second has nothing to add.
TWINS = pytest.mark.parametrize(
    "decode", [arrow_numpy.arrow_columns, *([arrow.arrow_columns] if IS_COMPILED else [])], ids=lambda f: f.__module__
)


def decoded(
    decode: Decoding, data: bytes, start_offset: int = 0, end_offset: int = 2**63 - 1, wanted: Wanted = EVERYTHING
) -> ArrowParts:
    taken = take_parts(data, start_offset, end_offset, check_crc=False, target_bytes=2**63, limit_bytes=1 << 20)
    return decode(taken.parts, start_offset, end_offset, wanted)


def numbers(kind: str, buffer: bytearray | None) -> list[int]:
    assert buffer is not None
    return array(kind, bytes(buffer)).tolist()


def strings(parts: StringParts | None) -> list[bytes | None]:
    """Return what Arrow would show."""
    assert parts is not None
    ends = numbers("i", parts.offsets)
    assert (ends[0], ends[-1]) == (0, len(parts.data))
    found: list[bytes | None] = [bytes(parts.data[start:end]) for start, end in pairwise(ends)]
    if parts.validity is None:
        assert parts.null_count == 0
        return found
    assert len(parts.validity) == (len(found) + 7) // 8
    is_there = [parts.validity[at >> 3] >> (at & 7) & 1 for at in range(len(found))]
    assert parts.null_count == is_there.count(0)
    assert all(one or not text for one, text in zip(is_there, found, strict=True)), "a null with bytes"
    return [text if one else None for one, text in zip(is_there, found, strict=True)]


def headers(parts: HeaderParts | None) -> list[tuple[tuple[str, bytes | None], ...]]:
    assert parts is not None
    names = [(name or b"").decode(errors="replace") for name in strings(parts.names)]
    pairs = list(zip(names, strings(parts.values), strict=True))
    ends = numbers("i", parts.offsets)
    assert (ends[0], ends[-1]) == (0, len(pairs))
    return [tuple(pairs[start:end]) for start, end in pairwise(ends)]


def records(parts: ArrowParts) -> list[Record]:
    times = [timestamp // 1000 for timestamp in numbers("q", parts.timestamps)]
    columns = (numbers("q", parts.offsets), times, strings(parts.keys), strings(parts.values), headers(parts.headers))
    found = [Record(*row) for row in zip(*columns, strict=True)]
    assert parts.rows == len(found)
    return found


def outcome(read: Callable[[], list[Record]]) -> list[Record] | type[CorruptBatchError]:
    try:
        return read()
    except CorruptBatchError:
        return CorruptBatchError


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Return concatenated batches with gaps between, and their end offset."""
    offset = draw(st.integers(0, 2**40))
    data = b""
    for _ in range(draw(st.integers(0, 4))):
        some = draw(st.lists(new_records(), min_size=1, max_size=12))
        data += build_batch(some, compression=draw(st.sampled_from(Compression)), base_offset=offset)
        offset += len(some) + draw(st.integers(0, 2))
    return data, offset


@TWINS
@settings(max_examples=60, deadline=None)
@given(log=logs(), choice=st.data())
def test_the_buffers_hold_what_the_reader_yields(
    decode: Decoding, log: tuple[bytes, int], choice: st.DataObject
) -> None:
    data, end = log
    every = list(read_records(data))
    start_offset = choice.draw(st.integers(0, end) | st.sampled_from([one.offset for one in every] or [0]))
    end_offset = choice.draw(st.integers(start_offset, end + 5))
    expected = [one for one in every if start_offset <= one.offset < end_offset]
    whole = decoded(decode, data, start_offset, end_offset)
    assert records(whole) == expected
    wanted = choice.draw(WANTED)
    some = decoded(decode, data, start_offset, end_offset, wanted)
    columns = (column if is_wanted else None for column, is_wanted in zip(whole[1:], wanted, strict=True))
    assert some == ArrowParts(len(expected), *columns)  # type: ignore[arg-type]


@TWINS
@settings(max_examples=150, deadline=None)
@given(data=damaged(), wanted=WANTED)
def test_damage_is_seen_whatever_is_wanted(decode: Decoding, data: bytes, wanted: Wanted) -> None:
    expected = outcome(lambda: list(read_records(data, check_crc=False, limit_bytes=1 << 20)))
    if expected is not CorruptBatchError:
        assert isinstance(expected, list)
        top = TIMESTAMP_MS_MAX
        expected = [one._replace(timestamp=min(max(one.timestamp, -top), top)) for one in expected]
    assert outcome(lambda: records(decoded(decode, data))) == expected
    some = outcome(lambda: [Record(decoded(decode, data, wanted=wanted).rows, 0, None, None)])
    assert (some is CorruptBatchError) == (expected is CorruptBatchError)


@TWINS
@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(st.integers(0, 6), max_size=6), min_size=1, max_size=3))
def test_offsets_that_do_not_rise_are_damage(decode: Decoding, batches: list[list[int]]) -> None:
    data = b"".join(batch_of_deltas(deltas, last_delta=6) for deltas in batches)
    read = outcome(lambda: records(decoded(decode, data)))
    assert read == outcome(lambda: list(read_records(data)))


@TWINS
def test_a_record_of_very_many_headers_is_read_like_any_other(decode: Decoding) -> None:
    some = [
        NewRecord(b"a", b"b", 1, [(f"name {number}", None if number % 3 else b"x" * number) for number in range(count)])
        for count in (1, 300, 0, 64, 65)
    ]
    data = bytes(build_batch(some))
    assert records(decoded(decode, data)) == list(read_records(data))


@TWINS
def test_of_log_append_batches_the_timestamp_and_its_type_are_those_of_the_batch(decode: Decoding) -> None:
    appended, created = (
        build_batch([NewRecord(b"k", b"v", 5), NewRecord(None, b"w", 9)], base_offset=at) for at in (0, 2)
    )
    appended[22] |= 0x08
    parts = decoded(decode, bytes(appended + created))
    assert [one.timestamp for one in records(parts)] == [9, 9, 5, 9]
    assert numbers("i", parts.timestamp_types) == [1, 1, 0, 0]


@TWINS
@pytest.mark.parametrize("timestamp", [2**62, -(2**62), TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX + 1, -1, 0])
def test_times_that_microseconds_cannot_say_are_cut(decode: Decoding, timestamp: int) -> None:
    parts = decoded(decode, bytes(build_batch([NewRecord(None, None, timestamp)])))
    assert numbers("q", parts.timestamps) == [min(max(timestamp, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX) * 1000]


def test_steps_of_a_target_size_add_up() -> None:
    data = b"".join(bytes(build_batch([NewRecord(None, b"x" * 90, 1)], base_offset=at)) for at in range(7))
    found: list[Record] = []
    rest = memoryview(data)
    position = 0
    while rest:
        read = read_arrow(rest, position, wanted=EVERYTHING, target_bytes=250)
        found += records(read.columns)
        rest, position = read.rest, read.next_offset
    assert found == list(read_records(data))
    assert position == 7


def test_an_error_names_the_batch_and_the_record() -> None:
    """As far as the twin says it: that of numpy looks at all records at once."""
    if not IS_COMPILED:
        return
    sound, hurt = (bytes(build_batch([NewRecord(None, b"abc", 1)] * 3, base_offset=at)) for at in (5, 8))
    hurt = hurt[:-1] + b"\x7f"
    with pytest.raises(CorruptBatchError, match="the batch at offset 8: record 2 has a negative number of headers"):
        decoded(arrow.arrow_columns, sound + hurt)


def test_nothing_is_read_of_nothing() -> None:
    read = read_arrow(b"", 3, wanted=EVERYTHING)
    assert (read.columns.rows, read.next_offset, records(read.columns)) == (0, 3, [])


@TWINS
def test_a_record_has_at_most_65536_headers(decode: Decoding) -> None:
    most = bombs.framed(Compression.NONE, bombs.headers(HEADERS_MAX).plain)
    parts = decoded(decode, most)
    assert parts.headers is not None
    assert numbers("i", parts.headers.offsets) == [0, HEADERS_MAX]
    with pytest.raises(CorruptBatchError, match="headers"):
        decoded(decode, bombs.framed(Compression.NONE, bombs.headers(HEADERS_MAX + 1).plain))
