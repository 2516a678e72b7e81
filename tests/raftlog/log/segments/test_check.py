"""A check finds every flipped bit of a sealed segment, however it is read."""

from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.log.frames import data_frame

from barnabas_raftlog.log.segments.check import SegmentCheck, SegmentPlace
from barnabas_raftlog.records.header import ControlKind, control_frame, next_offset, stamp

EPOCHS = [(2, 1, 0), (3, 12, 9)]


def segment(sizes: list[int]) -> tuple[SegmentPlace, bytes]:
    """Return a segment that begins with entry 10, and has a control frame in the middle."""
    data = b""
    offset = 7
    first = 10
    for number, size in enumerate(sizes):
        term = 2 if first + number < 12 else 3
        if number == 1:
            frame: bytes | bytearray = control_frame(offset, term, ControlKind.NO_OP)
        else:
            frame = data_frame(1, size, 1000)
            stamp(frame, offset, term)
        data += frame
        offset = next_offset(frame)
    place = SegmentPlace(
        base_offset=7,
        first_index=first,
        size_bytes=len(data),
        end_offset=offset,
        end_index=first + len(sizes),
    )
    return place, data


def check(place: SegmentPlace, data: bytes, chunk: int, epochs: list[tuple[int, int, int]] = EPOCHS) -> SegmentCheck:
    found = SegmentCheck(place, epochs)
    while not found.is_done:
        found.feed(memoryview(data)[found.position : found.position + max(chunk, found.needs)])
    return found


sizes = st.lists(st.integers(0, 300), min_size=1, max_size=6)


@given(sizes, st.integers(1, 2_000))
def test_an_intact_segment_passes_however_it_is_read(sizes: list[int], chunk: int) -> None:
    place, data = segment(sizes)
    assert check(place, data, chunk).cause == ""


@settings(max_examples=300)
@given(sizes, st.integers(1, 2_000), st.data())
def test_every_flipped_bit_is_found(sizes: list[int], chunk: int, choice: st.DataObject) -> None:
    place, data = segment(sizes)
    bit = choice.draw(st.integers(0, len(data) * 8 - 1))
    bad = bytearray(data)
    bad[bit // 8] ^= 1 << bit % 8
    assert check(place, bytes(bad), chunk).cause


@given(sizes, st.integers(1, 2_000), st.data())
def test_a_file_that_is_too_short_is_found(sizes: list[int], chunk: int, choice: st.DataObject) -> None:
    place, data = segment(sizes)
    assert check(place, data[: choice.draw(st.integers(0, len(data) - 1))], chunk).cause


@given(sizes, st.integers(1, 2_000))
def test_another_segment_of_the_same_size_is_found(sizes: list[int], chunk: int) -> None:
    place, data = segment(sizes)
    assert check(place._replace(end_index=place.end_index + 1), data, chunk).cause
    assert check(place._replace(end_offset=place.end_offset + 1), data, chunk).cause
    assert check(place, data, chunk, [(1, 1, 0), (3, 12, 9)]).cause
