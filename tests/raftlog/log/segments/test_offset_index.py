"""The sparse indexes against a list of frames: no lookup begins too late."""

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import OpenFiles
from barnabas_raftlog.log.segments.cold_reads import ROWS_ON_LOOP_MAX, ColdReads, NotCachedError
from barnabas_raftlog.log.segments.offset_index import INTERVAL_BYTES, OffsetIndex, TimeIndex, parse_index, parse_times
from barnabas_raftlog.log.segments.segment import Segment, index_files_from, parse_stem

FRAMES = st.lists(st.tuples(st.integers(61, 3000), st.integers(0, 3), st.integers(0, 50)), max_size=40)


def built(frames: list[tuple[int, int, int]]) -> tuple[Segment, list[tuple[int, int, int, int]]]:
    """Return a segment, and (index, base offset, position, timestamp) of each of its frames."""
    segment = Segment("d", 100, 11)
    places = []
    offset = 100
    for index, (size, records, timestamp) in enumerate(frames, 11):
        places.append((index, offset, segment.size_bytes, timestamp if records else -1))
        segment.add(index, offset, size, timestamp if records else -1)
        offset += records
    return segment, places


def reloaded(segment: Segment) -> None:
    """Store the indexes, and read them back."""
    stored = {handle.path: rows for handle, _, rows, _ in segment.index_writes()}
    index = segment.index
    times = segment.time_index
    segment.index = OffsetIndex(len(index))
    segment.time_index = TimeIndex(len(times))
    segment.index.load(parse_index(stored.get(segment.index_handle.path, b"")), segment.size_bytes)
    segment.time_index.load(parse_times(stored.get(segment.time_handle.path, b"")))
    assert (len(segment.index), len(segment.time_index)) == (len(index), len(times))


@given(FRAMES, st.booleans(), st.integers(0, 160))
@settings(max_examples=100, deadline=None)
def test_rows_are_true_and_not_far_apart(frames: list[tuple[int, int, int]], through_file: bool, asked: int) -> None:
    segment, places = built(frames)
    if through_file:
        reloaded(segment)
    row = segment.index.before_offset(asked)
    before = [place for place in places if place[1] <= asked]
    if row is not None:
        assert row in [place[:3] for place in before]
    if before:
        assert before[-1][2] - (row[2] if row else 0) < INTERVAL_BYTES + 3000
    for index, _, position, _ in places:
        row = segment.index.before_index(index)
        assert (row[0] if row else 11) <= index
        assert position - (row[2] if row else 0) < INTERVAL_BYTES + 3000


@given(FRAMES, st.booleans(), st.integers(0, 52))
@settings(max_examples=100, deadline=None)
def test_a_search_by_time_begins_before_the_first_late_batch(
    frames: list[tuple[int, int, int]], through_file: bool, timestamp: int
) -> None:
    segment, places = built(frames)
    if through_file:
        reloaded(segment)
    late = [place for place in places if place[3] >= timestamp]
    before = segment.time_index.before(timestamp)
    hint = segment.index.before_offset(before or 0)
    if late:
        assert (before or 0) <= late[0][1]
        assert (hint[2] if hint else 0) <= late[0][2]
    assert segment.max_timestamp == max((place[3] for place in places), default=-1)


@given(FRAMES, st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_truncation_leaves_what_a_shorter_segment_would_have(frames: list[tuple[int, int, int]], share: float) -> None:
    segment, places = built(frames)
    keep = int(share * len(frames))
    if keep == len(frames):
        return
    shorter, _ = built(frames[:keep])
    segment.truncate_to(places[keep][2], places[keep][1])
    row = segment.index.before_index(1 << 60)
    for index, offset, _, timestamp in places[:keep]:
        if index >= (row[0] if row else 0):
            segment.renew_max(timestamp, offset)
    assert segment.row().size_bytes == shorter.size_bytes
    assert segment.max_timestamp == shorter.max_timestamp
    assert list(segment.index._positions) == list(shorter.index._positions)


def test_rows_that_make_no_sense_are_left_out() -> None:
    segment, _ = built([(3000, 1, 5)] * 10)
    rows = bytearray(segment.index.unstored())
    rows[48:56] = bytes(8)
    index = OffsetIndex(len(segment.index))
    index.load(parse_index(rows), segment.size_bytes)
    assert len(index) == 2
    assert index.stored == 2


def test_rows_beside_those_in_memory_are_left_out() -> None:
    segment, _ = built([(3000, 1, time) for time in range(10)])
    rows, times = segment.index.unstored(), segment.time_index.unstored()
    index, time_index = OffsetIndex(9), TimeIndex(9)
    # What is in memory begins where the third row of the file is.
    index.add(15, 104, 3_000 * 4)
    time_index.add(3, 103)
    index.load(parse_index(rows), segment.size_bytes)
    time_index.load(parse_times(times))
    assert [index.before_index(at) for at in (13, 15)] == [(13, 102, 6_000), (15, 104, 12_000)]
    assert (index.stored, index.missing, len(index)) == (1, 0, 2)
    assert (time_index.stored, len(time_index)) == (1, 2)


def test_many_rows_are_not_parsed_on_the_loop() -> None:
    segment, _ = built([])
    cold = ColdReads(cast("Files", None), cast("OpenFiles", None), None)  # It decides before it reads.
    segment.index.missing = ROWS_ON_LOOP_MAX + 1
    with pytest.raises(NotCachedError):
        cold.rows(segment, blocking=False)


def test_a_small_segment_gets_index_files_when_it_has_grown() -> None:
    segment, _ = built([(3000, 1, time) for time in range(5)])  # rows at 6,000 and 12,000
    assert segment.index_writes(15_001) == []
    assert (segment.row().index_rows, segment.row().time_rows) == (0, 0)
    first = segment.index_writes(15_000)
    assert [(handle, position) for handle, position, _, _ in first] == [
        (segment.index_handle, 0),
        (segment.time_handle, 0),
    ]
    # From then on they are kept complete, also when a truncation has made it small again.
    segment.truncate_to(12_000, 104)
    segment.add(15, 104, 3_000, 9)
    handle, position, rows, size = segment.index_writes(1 << 20)[0]
    assert (handle, position, len(rows), size) == (segment.index_handle, 24, 24, 48)
    # A log whose segments are small has index files, too.
    assert [index_files_from(size) for size in (64 << 10, 1 << 20, 1 << 30)] == [32 << 10, 512 << 10, 1 << 20]


def test_only_segment_names_are_segment_names() -> None:
    assert parse_stem(Segment("d", 7, 9).log.path[2:]) == (7, 9)
    assert parse_stem("00000000000000000007.00000000000000000009.index") is None
    assert parse_stem("state") is None
