"""Frames are cut out of a stream as the stupid way would do it."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_clients.cluster.framing import SCRATCH_BYTES, FrameReader
from barnabas_raftlog.errors import MalformedMessageError

SIZES = st.one_of(st.integers(0, 50), st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8), st.just(3 * SCRATCH_BYTES))


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@settings(max_examples=60)
@given(st.lists(SIZES, max_size=8), st.lists(st.integers(1, 2 * SCRATCH_BYTES), min_size=1, max_size=10))
def test_frames_come_out_whole_however_the_bytes_arrive(sizes: list[int], chunks: list[int]) -> None:
    bodies = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    reader = FrameReader()
    found = []
    position = 0
    turn = 0
    while position < len(stream):
        lent = reader.buffer()
        assert len(lent) > 0
        count = min(chunks[turn % len(chunks)], len(lent), len(stream) - position)
        lent[:count] = stream[position : position + count]
        found += reader.received(count)
        position = position + count
        turn = turn + 1
    assert [bytes(frame) for frame in found] == bodies


def test_a_frame_keeps_its_bytes_when_more_arrives() -> None:
    reader = FrameReader()
    for body in (b"first", b"x" * (SCRATCH_BYTES * 2), b"third"):
        stream = framed(body)
        frames: list[memoryview] = []
        while stream:
            lent = reader.buffer()
            count = min(len(lent), len(stream))
            lent[:count] = stream[:count]
            stream = stream[count:]
            frames += reader.received(count)
        reader.buffer()[:] = b"!" * len(reader.buffer())
        assert bytes(frames[0]) == body


def received(reader: FrameReader, stream: bytes) -> list[memoryview]:
    frames: list[memoryview] = []
    while stream:
        lent = reader.buffer()
        count = min(len(lent), len(stream))
        lent[:count] = stream[:count]
        stream = stream[count:]
        frames += reader.received(count)
    return frames


@pytest.mark.parametrize("size", [2 * SCRATCH_BYTES, 4 * SCRATCH_BYTES, 3 * SCRATCH_BYTES])
def test_memory_of_a_large_frame_is_used_again_when_nobody_looks_at_it(size: int) -> None:
    reader = FrameReader()
    (first,) = received(reader, framed(b"1" * 3 * SCRATCH_BYTES))
    memory = first.obj
    part = first[5:10]
    first.release()
    (second,) = received(reader, framed(b"2" * size))
    assert second.obj is not memory
    assert bytes(part) == b"11111"
    memory = second.obj
    second.release()
    (third,) = received(reader, framed(b"3" * size))
    assert third.obj is memory
    assert bytes(third) == b"3" * size


def test_memory_of_a_large_frame_is_given_back_after_a_small_one() -> None:
    reader = FrameReader()
    (first,) = received(reader, framed(b"1" * 3 * SCRATCH_BYTES))
    before = sys.getrefcount(first.obj)
    received(reader, framed(b"small"))
    after = sys.getrefcount(first.obj)
    assert after == before - 1


@pytest.mark.parametrize("length", [-1, 11, 2**31 - 1])
def test_a_length_outside_the_limits_is_refused(length: int) -> None:
    reader = FrameReader(frame_bytes_max=10)
    reader.buffer()[:4] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedMessageError, match=str(length)):
        reader.received(4)
