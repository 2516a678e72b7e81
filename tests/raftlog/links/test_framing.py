"""The frame splitter against the stupid version, and everything a stream can do wrong."""

from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links.framing import (
    ENTRY_HEADER_BYTES_MAX,
    FRAME_BYTES_MAX,
    FrameSplitter,
    encode_frame,
    frame_of,
    read_header,
)


def feed(splitter: FrameSplitter, data: bytes, cuts: list[int]) -> list[tuple[bytes, bytes]]:
    """Write `data` as a socket would, `cuts` bytes at a time, and copy out what comes."""
    got: list[tuple[bytes, bytes]] = []
    position = 0
    turn = 0
    while position < len(data):
        room = splitter.buffer()
        assert len(room) > 0
        count = min(len(room), len(data) - position, cuts[turn % len(cuts)])
        turn += 1
        room[:count] = data[position : position + count]
        position += count
        got += [(bytes(frame.header), bytes(frame.payload)) for frame in splitter.received(count)]
    return got


@settings(deadline=None, max_examples=70)
@given(
    frames=st.lists(st.lists(st.binary(max_size=200), max_size=3), max_size=8),
    cuts=st.lists(st.integers(1, 300), min_size=1, max_size=5),
)
def test_frames_arrive_whole_however_the_stream_is_cut(frames: list[list[bytes]], cuts: list[int]) -> None:
    scratch = memoryview(bytearray(64))
    stream = b"".join(b"".join(encode_frame((1, n), p, sum(map(len, p)))) for n, p in enumerate(frames))
    got = feed(FrameSplitter(scratch, 10_000), stream, cuts)
    assert [read_header(memoryview(header)) for header, _ in got] == [(1, n) for n in range(len(frames))]
    assert [payload for _, payload in got] == [b"".join(payloads) for payloads in frames]


def test_two_splitters_share_a_scratch() -> None:
    scratch = memoryview(bytearray(64))
    first = FrameSplitter(scratch, 1000)
    second = FrameSplitter(scratch, 1000)
    stream = b"".join(encode_frame((7, b"abc"), [b"payload"], 7))
    got_first: list[tuple[bytes, bytes]] = []
    for cut in range(0, len(stream), 3):
        got_first += feed(first, stream[cut : cut + 3], [1])
        feed(second, stream[cut : cut + 3], [2])
    assert [payload for _, payload in got_first] == [b"payload"]


@pytest.mark.parametrize(
    ("prefix", "complaint"),
    [
        (b"\x00\x00\x00\x00", "frame of 0 bytes"),
        (b"\x00\x00\x00\x03", "frame of 3 bytes"),
        (b"\x00\x00\x27\x11", "frame of 10001 bytes"),
        (b"GET /", "it speaks HTTP"),
        (b"HTTP/", "it speaks HTTP"),
        (b"\x16\x03\x01\x00\x99", "it speaks TLS"),
        (b"\x15\x03\x01\x00\x02", "it speaks TLS"),
    ],
)
def test_impossible_length_is_refused(prefix: bytes, complaint: str) -> None:
    with pytest.raises(MalformedMessageError, match=complaint):
        feed(FrameSplitter(memoryview(bytearray(64)), 10_000), prefix, [64])


def test_a_frame_that_is_larger_than_others_has_a_small_header() -> None:
    for header_bytes, is_allowed in ((ENTRY_HEADER_BYTES_MAX, True), (ENTRY_HEADER_BYTES_MAX + 1, False)):
        body = memoryview(bytearray(FRAME_BYTES_MAX + 1))
        body[:4] = header_bytes.to_bytes(4, "big")
        with nullcontext() if is_allowed else pytest.raises(MalformedMessageError):
            assert len(frame_of(body, owned=True).header) == header_bytes


def test_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="header of 9 bytes"):
        frame_of(memoryview(b"\0\0\0\x09abc"), owned=True)


@settings(deadline=None, max_examples=150)
@given(data=st.binary(max_size=60))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    try:
        items = read_header(memoryview(data))
    except MalformedMessageError:
        return
    assert type(items[0]) is int


def test_frame_layout_is_pinned() -> None:
    """A codec that is wrong both ways still round-trips."""
    assert b"".join(encode_frame((8, 3, None, ""), [b"xy"], 2)).hex() == "0000000b" + "00000005" + "940803c0a0" + "7879"
