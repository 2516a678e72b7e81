"""Digests of many groups, as bytes and back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.messages import peer_digest

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links.digests import DIGESTS_PER_FRAME, decode_digests, encode_digests
from barnabas_raftlog.links.framing import FrameKind, frame_of, read_header
from barnabas_raftlog.raft.messages import TERM_MAX, GroupId, PeerDigest

NUMBERS = st.integers(0, (1 << 62) - 1)
PREFIXES = st.sampled_from([bytes(16), b"t" * 16, bytes(range(16))])
GROUPS = st.builds(lambda prefix, suffix: GroupId(prefix + suffix), PREFIXES, st.binary(min_size=4, max_size=4))


@st.composite
def digests(draw: st.DrawFn) -> PeerDigest:
    term = draw(st.integers(0, TERM_MAX))
    leader = draw(st.none() | st.integers(0, (1 << 31) - 1))
    last_term = draw(st.integers(0, term))
    return peer_digest(
        peer=7,
        term=term,
        leader_id=leader,
        last_index=draw(NUMBERS),
        last_term=last_term,
        round=draw(NUMBERS),
        at_rest=draw(st.booleans()),
    )


def decoded(frames: list[Any]) -> list[tuple[GroupId, PeerDigest]]:
    found: list[tuple[GroupId, PeerDigest]] = []
    for buffers in frames:
        frame = frame_of(memoryview(b"".join(buffers))[4:], owned=True)
        found += decode_digests(read_header(frame.header), 7)
    return found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(GROUPS, digests()), max_size=20))
def test_what_is_encoded_is_decoded(said: list[tuple[GroupId, PeerDigest]]) -> None:
    assert decoded(encode_digests(said, wants_answer=False)) == said


def test_ten_thousand_groups_of_a_hundred_topics_take_less_than_nine_bytes_each_in_bounded_frames() -> None:
    said = [
        (
            GroupId(topic.to_bytes(16, "big") + partition.to_bytes(4, "big")),
            peer_digest(peer=7, term=3, leader_id=1, last_index=9, last_term=3, round=40),
        )
        for topic in range(100)
        for partition in range(100)
    ]
    frames = encode_digests(said, wants_answer=False)
    assert len(frames) == len(said) // DIGESTS_PER_FRAME
    assert sum(len(buffer) for frame in frames for buffer in frame) < 9 * len(said)
    assert decoded(frames) == said


def test_whoever_wants_an_answer_says_so() -> None:
    said = [(GroupId(bytes(20)), peer_digest(peer=7, term=0, leader_id=None))]
    assert decoded(encode_digests(said, wants_answer=True))[0][1].wants_answer


@pytest.mark.parametrize(
    "columns",
    [
        7,
        (bytes(16),),
        (bytes(15), ()),
        (bytes(16), 7),
        (bytes(16), (0, 1, 0, 1, 1)),
        (bytes(16), (0, 1, 0, 1, 2, 0)),
        (bytes(16), (1 << 32, 1, 0, 1, 1, 0)),
        (bytes(16), (0, -1, 0, 1, 0, 0)),
        (bytes(16), (0, 1, 0, 1 << 63, 1, 0)),
        (bytes(16), (0, 1, 0, 1.5, 1, 0)),
    ],
)
def test_anything_else_is_refused(columns: object) -> None:
    with pytest.raises(MalformedMessageError):
        decode_digests((int(FrameKind.DIGEST), 0, columns, bytes(16)), 7)


def test_a_frame_without_columns_is_refused() -> None:
    with pytest.raises(MalformedMessageError):
        decode_digests((int(FrameKind.DIGEST), 0), 7)
    with pytest.raises(MalformedMessageError, match="not 16 bytes"):
        decode_digests((int(FrameKind.DIGEST), 0, (), b"short"), 7)
