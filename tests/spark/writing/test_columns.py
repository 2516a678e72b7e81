"""Rows pass through in order, in pieces of a bounded size, whatever sizes Spark's batches have."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.writing import columns as subject
from barnabas_spark.writing.columns import Piece, pieces
from barnabas_spark.writing.layout import Layout

LAYOUT = Layout(value=2, key=0, headers=4, topic=1, partition=3)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(values: list[Any], kind: Any = None) -> Any:
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([f"k{number}" for number in range(count)], pa.string()),
            pa.array(["t"] * count, pa.string()),
            pa.array(values, kind or pa.binary()),
            pa.array(range(count), pa.int32()),
            pa.array([[{"key": "h", "value": b"x"}] if number % 2 else None for number in range(count)], HEADERS),
            pa.array([1.5] * count),
        ],
        names=["key", "topic", "value", "partition", "headers", "other"],
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "PIECE_BYTES", 1_000)


def values_of(found: list[Piece]) -> Iterator[Any]:
    for piece in found:
        yield from piece.columns.values.to_pylist() if piece.columns.values is not None else [None] * len(piece.sizes)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@given(st.lists(st.lists(st.none() | st.integers(0, 1_500).map(bytes), max_size=12), max_size=5))
def test_rows_stay_in_order_and_pieces_are_bounded(batches: list[list[bytes | None]]) -> None:
    found = list(pieces([batch(values) for values in batches], LAYOUT))
    assert list(values_of(found)) == [value for values in batches for value in values]
    first_row = 0
    for piece in found:
        assert piece.first_row == first_row
        count = piece.columns.row_count
        assert len(piece.topics) == len(piece.partitions) == len(piece.sizes) == count > 0
        assert sum(piece.sizes) <= 1_000 or count == 1
        first_row += count


def test_small_batches_are_gathered() -> None:
    found = list(pieces([batch([b"a"]), batch([]), batch([b"b", b"c"])], LAYOUT))
    assert [piece.columns.row_count for piece in found] == [3]
    assert list(values_of(found)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_every_kind_of_text_becomes_bytes(kind: Any) -> None:
    texts = ["grün", None, ""]
    values = [None if text is None else text.encode() for text in texts]
    given = texts if kind in {pa.string(), pa.large_string()} else values
    (piece,) = pieces([batch(given, kind)], LAYOUT)
    assert piece.columns.values.to_pylist() == values
    assert piece.columns.headers.to_pylist() == [None, [{"key": b"h", "value": b"x"}], None]


def test_a_column_of_nulls_is_none() -> None:
    (piece,) = pieces([batch([None, None])], LAYOUT)
    assert piece.columns.values is None


def test_columns_that_are_not_there_are_none() -> None:
    (piece,) = pieces([batch([b"v"])], Layout(value=2))
    assert piece.columns.keys is piece.columns.headers is piece.topics is piece.partitions is None
