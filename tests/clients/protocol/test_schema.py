"""The engine handles declarations that Kafka does not have: every kind, nullable, tagged, nested."""

from collections.abc import Sequence
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.encoder import encoder_source
from barnabas_raftlog.wire.primitives import NumberArrays, read_uvarint, uvarint
from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Bool,
    Bytes,
    Float64,
    FrozenStruct,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
    message,
    wire,
)


class Point(FrozenStruct):
    x: Int32 = 0
    label: String = ""


@message(api_key=1, versions=range(3), flexible_since=1)
class Everything(Message):
    flag: Bool = False
    tiny: Int8 = 0
    small: Int16 = 0
    port: UInt16 = 0
    middle: Int32 = 0
    large: Int64 = 0
    ratio: Float64 = 0.0
    identity: Uuid = NO_UUID
    text: String | None = None
    blob: Bytes | None = None
    records: Records | None = None
    point: Point = Point()
    maybe: Point | None = None
    points: list[Point] | None = None
    numbers: Sequence[Int32] | None = None
    flags: Sequence[Bool] = ()
    ids: Sequence[Uuid] = ()
    words: Sequence[String] | None = None
    later: Annotated[Int32, wire(since=2)] = -1
    tagged_ratio: Annotated[Float64, wire(since=1, tag=0)] = 0.5
    tagged_text: Annotated[String, wire(since=1, tag=1)] = "default"
    tagged_id: Annotated[Uuid, wire(since=1, tag=2)] = NO_UUID
    tagged_blob: Annotated[Bytes, wire(since=1, tag=3)] = b""
    tagged_numbers: Annotated[Sequence[Int64] | None, wire(since=1, tag=5)] = None
    tagged_points: Annotated[list[Point] | None, wire(since=1, tag=130)] = field(default_factory=list)
    tagged_point: Annotated[Point, wire(since=1, tag=131)] = Point()


class OldRow(Struct):
    number: Int32 = 0


@message(api_key=2, versions=range(1), flexible_since=0)
class Old(Message):
    rows: list[OldRow] = field(default_factory=list)
    end: Int8 = 0


class NewRow(Struct):
    number: Int32 = 0
    extra: Annotated[String, wire(tag=7)] = ""


@message(api_key=2, versions=range(1), flexible_since=0)
class New(Message):
    rows: list[NewRow] = field(default_factory=list)
    end: Int8 = 0
    points: Annotated[list[Point], wire(tag=300)] = field(default_factory=list)


points = st.builds(Point, x=st.integers(-(2**31), 2**31 - 1), label=st.text(max_size=3))
untagged = {
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "port": st.integers(0, 65535),
    "ratio": st.floats(allow_nan=False),
    "identity": st.binary(min_size=16, max_size=16),
    "text": st.none() | st.text(),
    "blob": st.none() | st.binary(),
    "records": st.none() | st.binary(max_size=300),
    "point": points,
    "maybe": st.none() | points,
    "points": st.none() | st.lists(points, max_size=3),
    "numbers": st.none() | st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40).map(tuple),
    "flags": st.lists(st.booleans()).map(tuple),
    "ids": st.lists(st.binary(min_size=16, max_size=16), max_size=2).map(tuple),
    "words": st.none() | st.lists(st.text(max_size=3)).map(tuple),
}
tagged = {
    "tagged_ratio": st.sampled_from((0.5, 0.0, -1.5)),
    "tagged_text": st.sampled_from(("default", "", "other")),
    "tagged_id": st.sampled_from((NO_UUID, b"i" * 16)),
    "tagged_blob": st.sampled_from((b"", b"b" * 200)),
    "tagged_numbers": st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple),
    "tagged_points": st.none() | st.lists(points, max_size=3),
    "tagged_point": points,
}


@given(st.builds(Everything, **untagged))
def test_every_kind_survives_in_a_fixed_layout(message: Everything) -> None:
    assert Everything.decode(message.to_bytes(0), 0) == message


@given(st.builds(Everything, later=st.integers(-5, 5), **untagged, **tagged))
def test_every_kind_survives_in_a_flexible_layout(message: Everything) -> None:
    decoded = Everything.decode(message.to_bytes(2), 2)
    assert decoded == message
    assert Everything.decode(decoded.to_bytes(2), 2) == message


@given(st.builds(Everything, **untagged), st.integers(0, 60), st.sampled_from((0, 1, 2)))
def test_every_kind_checks_its_bounds(message: Everything, cut: int, version: int) -> None:
    whole = message.to_bytes(version)
    with pytest.raises(MalformedMessageError):
        Everything.decode(whole[: max(len(whole) - 1 - cut, 0)], version)


def test_a_newer_peers_tagged_fields_are_skipped_at_every_depth() -> None:
    rows = [NewRow(number=1, extra="e" * 200), NewRow(number=2)]
    new = New(rows=rows, end=5, points=[Point(x=1, label="p")])
    assert Old.decode(new.to_bytes(0), 0) == Old(rows=[OldRow(number=1), OldRow(number=2)], end=5)
    assert New.decode(new.to_bytes(0), 0) == new
    assert New.decode(Old(end=3).to_bytes(0), 0) == New(end=3)


def test_a_known_tag_must_fill_its_length() -> None:
    right = b"\x01\x00" + b"\x01" + b"\xac\x02" + b"\x06" + b"\x02" + b"\x00\x00\x00\x01" + b"\x01"
    assert len(right) == 12
    with pytest.raises(MalformedMessageError):
        New.decode(right, 0)
    full = b"\x01\x00\x01\xac\x02\x07\x02\x00\x00\x00\x01\x01\x00"
    assert New.decode(full, 0).points == [Point(x=1)]
    with pytest.raises(MalformedMessageError, match="tagged"):
        New.decode(full.replace(b"\xac\x02\x07", b"\xac\x02\x08") + b"\x00", 0)


def test_fields_of_other_versions_read_as_their_defaults() -> None:
    assert Everything.decode(Everything(later=7).to_bytes(1), 1).later == -1
    assert Everything.decode(Everything(later=7).to_bytes(2), 2).later == 7


def test_an_identity_of_the_wrong_size_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        Everything(identity=b"short").encode(0)


def test_neighbouring_fields_are_packed_together() -> None:
    text = encoder_source(Everything, 0, flexible=False).text()
    assert "pack_obhHiqd16sh(" in text, text


def test_sequences_of_numbers_may_be_lists() -> None:
    assert Everything(numbers=[1, 2]).to_bytes(1) == Everything(numbers=(1, 2)).to_bytes(1)


def test_the_memo_of_arrays_is_bounded() -> None:
    arrays = NumberArrays("i", flexible=True)
    for number in range(5000):
        assert arrays[(number,)] == b"\x02" + number.to_bytes(4, "big")
    assert len(arrays) <= 4096
    assert arrays[tuple(range(100))][:1] == b"\x65"
    assert tuple(range(100)) not in arrays


@given(st.integers(0, 2**35 - 1))
def test_varints_survive(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(encoded, 0) == (value, len(encoded))


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="varint"):
        read_uvarint(b"\xff" * 6, 0)
