"""A check that is fed pieces: the same answers as of the whole, wherever it is cut, and of its twin."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas_raftlog.records.builder import varint
from barnabas_raftlog.records.walker import twins
from barnabas_raftlog.records.walker.faults import HEADERS_MAX, Fault, Walked
from barnabas_raftlog.records.walker.pure.check import check
from barnabas_raftlog.records.walker.pure.stream import StreamCheck as PureStreamCheck

from .bombs import headers
from .strategies import CONTENT, HEADERS

TWINS = {"pure": PureStreamCheck, "chosen": twins.StreamCheck}


class Body(NamedTuple):
    """A body, sound or not, and what its header says of it."""

    plain: bytes
    records: int
    base_timestamp: int = 1_000
    last_offset_delta: int = 2**31 - 1
    is_dense: bool = True

    def checked(self) -> Walked:
        return check(self.plain, self.records, self.base_timestamp, self.last_offset_delta, is_dense=self.is_dense)

    def streamed(self, kind: type[PureStreamCheck], cuts: list[int]) -> Walked:
        stream = kind(self.records, self.base_timestamp, self.last_offset_delta, is_dense=self.is_dense)
        for piece in pieces(self.plain, cuts):
            stream.feed(piece)
        return stream.end()


def pieces(plain: bytes, cuts: list[int]) -> Iterator[bytes]:
    ends = [*sorted(cut for cut in cuts if cut < len(plain)), len(plain)]
    start = 0
    for end in ends:
        yield plain[start:end]
        start = end


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


@st.composite
def records(draw: st.DrawFn, delta: int) -> bytes:
    fields = [
        b"\x00",
        varint(draw(st.integers(-1_500, 2**33) | st.sampled_from([2**63 - 1, 2**63 - 1_001]))),
        varint(delta if draw(st.integers(0, 9)) else draw(st.integers(-3, 300))),
        sized(draw(CONTENT)),
        sized(draw(CONTENT)),
    ]
    headers = draw(HEADERS)
    fields.append(varint(len(headers)))
    for name, content in headers:
        fields += [sized(name.encode()), sized(content)]
    record = b"".join(fields)
    return varint(len(record) + (draw(st.integers(-3, 3)) if not draw(st.integers(0, 9)) else 0)) + record


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    """Return a body of which half are damaged: bytes changed, cut off, a length or a delta or a count wrong."""
    count = draw(st.integers(0, 5))
    plain = bytearray(b"".join(draw(records(delta)) for delta in range(count)))
    if plain and draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            plain[draw(st.integers(0, len(plain) - 1))] = draw(st.integers(0, 255))
    if draw(st.integers(0, 4)) == 0:
        del plain[draw(st.integers(0, len(plain))) :]
    declared = count + (draw(st.integers(-1, 1)) if not draw(st.integers(0, 4)) else 0)
    last_delta = draw(st.sampled_from([count - 1, 2**31 - 1]))
    return Body(bytes(plain), max(declared, 0), 1_000, last_delta, draw(st.booleans()))


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
@given(body=bodies(), cuts=st.lists(st.integers(0, 200) | st.integers(0, 20_000), max_size=8))
def test_pieces_are_judged_like_the_whole(kind: type[PureStreamCheck], body: Body, cuts: list[int]) -> None:
    assert body.streamed(kind, cuts) == body.checked()


SMALL = st.binary(max_size=24).map(lambda plain: Body(plain, 3)) | bodies().map(
    lambda body: body._replace(plain=body.plain[:60])
)


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
@given(body=SMALL)
@example(Body(b"", 0))
@example(Body(b"\x00", 1))
@example(Body(b"\x0e\x00\x00\x00\x01\x01\x01\x00" + b"\xff\xff\xff\xff\x7f", 2))
def test_no_cut_is_special(kind: type[PureStreamCheck], body: Body) -> None:
    answer = body.checked()
    for cut in range(len(body.plain) + 1):
        assert body.streamed(kind, [cut]) == answer
    assert body.streamed(kind, list(range(len(body.plain)))) == answer


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
@given(body=bodies(), size=st.integers(1, 40))
def test_a_fault_is_told_at_once_and_a_sound_body_has_none(kind: type[PureStreamCheck], body: Body, size: int) -> None:
    """The piece after which it is False is the first in which anybody could know."""
    stream = kind(body.records, body.base_timestamp, body.last_offset_delta, is_dense=body.is_dense)
    told = [stream.feed(body.plain[at : at + size]) for at in range(0, len(body.plain), size)]
    assert told == sorted(told, reverse=True)
    walked = stream.end()
    if all(told) and walked.fault:
        assert walked.fault in {Fault.VARINT, Fault.LENGTH}  # it ends too early
    if walked.fault and walked.fault not in {Fault.VARINT, Fault.LENGTH}:
        assert told.index(False) <= walked.position // size


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
def test_a_walk_that_was_cut_short_names_the_fault_that_it_saw(kind: type[PureStreamCheck]) -> None:
    record = varint(100) + b"\x00\x00\x00" + varint(-2)  # a key of a negative size
    stream = kind(1, 0, 0, is_dense=True)
    assert not stream.feed(record)
    assert stream.end(is_cut_short=True).fault is Fault.KEY
    assert stream.end().fault is Fault.LENGTH


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
def test_the_length_of_a_record_says_how_much_must_come(kind: type[PureStreamCheck]) -> None:
    stream = kind(2, 0, 1, is_dense=True)
    assert stream.bytes_due == 0
    stream.feed(b"\x0c\x00\x00\x00\x01\x01\x00" + varint(1_000_000)[:2])
    assert stream.bytes_due == 9
    stream.feed(varint(1_000_000)[2:])
    assert stream.bytes_due == 7 + len(varint(1_000_000)) + 1_000_000


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
def test_a_value_is_passed_over_and_not_kept(kind: type[PureStreamCheck]) -> None:
    size = 40 << 20
    start = b"\x00\x00\x00\x01" + varint(size)
    stream = kind(1, 5, 0, is_dense=True)
    stream.feed(varint(len(start) + size + 1) + start)
    piece = bytes(1 << 20)
    assert all(stream.feed(piece) for _ in range(40))
    assert stream.feed(b"\x00")
    assert stream.end() == Walked(Fault.NONE, 1, 5 + len(start) + size, 5, 5, 1)


def body_of_deltas(*deltas: int) -> bytes:
    return b"".join(b"\x0c\x00\x00" + varint(delta) + b"\x01\x01\x00" for delta in deltas)


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
@pytest.mark.parametrize(
    ("deltas", "is_dense", "faulty"),
    [
        *[((0, 1, 2), True, None), ((0, 2), True, 1), ((1, 2), True, 0), ((3, 9), False, None), ((5, 3), False, 1)],
        *[((4, 4), False, 1), ((5, 10), False, 1), ((-1, 2), False, 0)],
    ],
)
def test_offsets_must_follow_each_other(
    kind: type[PureStreamCheck], deltas: tuple[int, ...], is_dense: bool, faulty: int | None
) -> None:
    body = Body(body_of_deltas(*deltas), len(deltas), 0, 9, is_dense)
    for cuts in ([], [3], [10], list(range(30))):
        walked = body.streamed(kind, cuts)
        assert walked == body.checked()
        assert walked.fault is (Fault.NONE if faulty is None else Fault.OFFSET)
        assert faulty is None or walked.record == faulty


@pytest.mark.parametrize("kind", TWINS.values(), ids=TWINS)
@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        (b"\x02a\x00", Fault.NONE),
        (b"\x02a\x01", Fault.NONE),
        (b"\x00\x01", Fault.NONE),
        (b"\x01\x00", Fault.HEADER_NAME),
        (b"\x02a\x03v", Fault.HEADER_VALUE),
        (b"\x00\x03", Fault.HEADER_VALUE),
        (b"\x02a\x04v", Fault.HEADER_VALUE),
        (b"\x06a\x00", Fault.HEADER_NAME),
        (b"\x04ab", Fault.VARINT),
        (b"\x02a\x02vw", Fault.LONGER),
    ],
)
def test_headers_are_judged_alike_wherever_they_are_cut(
    kind: type[PureStreamCheck], headers: bytes, fault: Fault
) -> None:
    record = b"\x00\x00\x00\x01\x01\x02" + headers
    body = Body(varint(len(record)) + record + body_of_deltas(1), 2, 0, 1)
    for cuts in ([], *([cut] for cut in range(len(body.plain))), list(range(len(body.plain)))):
        walked = body.streamed(kind, cuts)
        assert walked == body.checked()
        assert walked.fault is fault


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("cuts", [[], [1], [11], [12], [100]])
def test_a_record_has_at_most_65536_headers_wherever_it_is_cut(twin: str, cuts: list[int]) -> None:
    most = headers(HEADERS_MAX).plain
    assert Body(most, 1).streamed(TWINS[twin], cuts) == Walked(Fault.NONE, 1, len(most), 1_000, 1_000, 1)
    more = Body(headers(HEADERS_MAX + 1).plain, 1)
    assert more.streamed(TWINS[twin], cuts) == more.checked() == Walked(Fault.HEADER_COUNT, 0, 11, -1, -1, 0)
