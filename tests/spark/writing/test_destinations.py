"""Rows go to the topics and partitions that they name, and a row that cannot go anywhere is named."""

from typing import Any

import pyarrow as pa
import pytest

from barnabas_clients.producer.partitioner import partition_of
from barnabas_spark.options.writes import WriteOptions, parse_write_options
from barnabas_spark.writing.columns import Piece, pieces
from barnabas_spark.writing.destinations import Destination, Destinations, UnsuitableRowError
from barnabas_spark.writing.layout import Layout

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COUNTS = {"a": 3, "b": 5, "c": 1}
LAYOUT = Layout(value=0, key=1, headers=2, topic=3, partition=4)


def options(**given: str) -> WriteOptions:
    return parse_write_options({"kafka.bootstrap.servers": "x:1"} | given)


def piece_of(*rows: dict[str, Any], first_row: int = 0) -> Piece:
    bytes_, text = pa.binary(), pa.string()
    kinds = {"value": bytes_, "key": bytes_, "headers": HEADERS, "topic": text, "partition": pa.int32()}
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()]
    (piece,) = pieces([pa.RecordBatch.from_arrays(columns, names=list(kinds))], LAYOUT)
    return piece._replace(first_row=first_row)


def routed(piece: Piece, write: WriteOptions | None = None, turn: int = 0) -> list[tuple[Destination, list[int]]]:
    """Return the rows of each destination, in their order."""
    found = Destinations(write or options(), COUNTS.__getitem__, turn).route(piece)
    order = list(range(piece.columns.row_count)) if found.order is None else found.order.tolist()
    starts = [0, *found.run_ends[:-1]]
    return [
        (destination, order[start:end])
        for destination, start, end in zip(found.destinations, starts, found.run_ends, strict=True)
    ]


def refusal(piece: Piece, write: WriteOptions | None = None) -> str:
    with pytest.raises(UnsuitableRowError) as caught:
        routed(piece, write)
    return str(caught.value)


def test_rows_are_grouped_by_destination_and_keep_their_order() -> None:
    rows = [{"topic": "ab"[row % 2], "partition": row // 2 % 2, "value": b"v"} for row in range(12)]
    assert routed(piece_of(*rows)) == [
        (Destination("a", 0), [0, 4, 8]),
        (Destination("a", 1), [2, 6, 10]),
        (Destination("b", 0), [1, 5, 9]),
        (Destination("b", 1), [3, 7, 11]),
    ]


def test_keys_choose_partitions_of_their_own_topic() -> None:
    rows = [{"topic": "ab"[row % 3 == 0], "key": b"key %d" % row} for row in range(40)]
    for destination, found in routed(piece_of(*rows)):
        for row in found:
            assert destination.topic == rows[row]["topic"]
            key = rows[row]["key"]
            assert isinstance(key, bytes)
            assert destination.partition == partition_of(key, COUNTS[destination.topic])


def test_the_option_beats_the_column() -> None:
    assert routed(piece_of({"topic": "a"}, {"topic": None}), options(topic="c")) == [(Destination("c", 0), [0, 1])]


def test_keys_can_be_ignored() -> None:
    write = options(topic="b", **{"kafka.partitioner.ignore.keys": "true"})
    assert routed(piece_of({"key": b"x"}, {"key": b"y"}), write, turn=4) == [(Destination("b", 4), [0, 1])]


def test_a_partition_that_the_topic_has_got_meanwhile_is_found() -> None:
    counts = iter([3, 4])
    destinations = Destinations(options(topic="a"), lambda _: next(counts), 0)
    assert destinations.route(piece_of({"partition": 2})).destinations == [Destination("a", 2)]
    assert destinations.route(piece_of({"partition": 3})).destinations == [Destination("a", 3)]


def test_rows_that_cannot_go_anywhere_are_named() -> None:
    good: dict[str, Any] = {"topic": "a", "value": b"v"}
    for bad, words in (
        ({"topic": None}, "it has a null topic. Use the `topic` option for setting a default topic."),
        ({"partition": -2}, "Invalid partition: -2. Partition number should always be non-negative or null."),
        ({"partition": -1}, "Invalid partition: -1. Partition number should always be non-negative or null."),
        ({"partition": 3}, "a has no partition 3; it has 3, from 0 to 2"),
        ({"value": bytes(2 << 20)}, "is larger than 1048576, which is the value of kafka.max.request.size"),
        ({"headers": [{"key": "h", "value": None}, {"key": None, "value": b"x"}]}, "a header without a key"),
        ({"headers": [None]}, "a header without a key"),
    ):
        rows = [good, {**good, "headers": [{"key": "h", "value": b"x"}]}, {**good, **bad}, good]
        found = refusal(piece_of(*rows, first_row=70))
        assert found.startswith("row 72 of the task: ")
        assert words in found
        alone = refusal(piece_of({**good, **bad}))
        assert words in alone


def test_a_partition_of_another_topic_is_named_by_its_own_row() -> None:
    rows = [{"topic": "b", "partition": 4}, {"topic": "a", "partition": 0}, {"topic": "a", "partition": 4}]
    assert refusal(piece_of(*rows)) == "row 2 of the task: a has no partition 4; it has 3, from 0 to 2"
