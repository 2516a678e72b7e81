"""A value becomes columns as a whole or not at all, and what does not fit is told with its reason."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_spark.lake.layout import RECORD_SCHEMA, Layout
from barnabas_spark.lake.values.columns import widened, with_columns
from barnabas_spark.lake.values.decoding import REJECT_SCHEMA, ValueColumns
from barnabas_spark.lake.values.evolution import SchemaChangeError
from barnabas_spark.lake.values.evolving import evolved
from barnabas_spark.lake.values.texts import from_json_schema

SAID: Any = {"properties": {"id": {"type": "integer"}, "name": {}, "at": {"properties": {"x": {"type": "number"}}}}}
GIVEN = from_json_schema({"properties": {**SAID["properties"], "at": {"type": "object", **SAID["properties"]["at"]}}})
LAYOUT, _ = evolved(Layout(), GIVEN)
GOOD = st.fixed_dictionaries(
    {}, optional={"id": st.integers(-9, 9), "name": st.text(max_size=4), "at": st.just({"x": 1.5}) | st.none()}
).map(lambda value: json.dumps(value).encode())
BAD = st.sampled_from([b"", b" ", b"{", b"[]", b"7", b'{"id": "x"}', b'{"at": 7}', b'{"at": {"x": []}}', b"\xff"])


def batch_of(values: list[bytes | None]) -> Any:
    rows = [{"topic": "t", "partition": 0, "offset": at, "value": value} for at, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


@settings(max_examples=25)
@given(st.lists(GOOD.map(lambda value: (value, True)) | BAD.map(lambda value: (value, False)), max_size=12))
def test_a_row_is_decoded_as_a_whole_or_rejected(values: list[tuple[bytes, bool]]) -> None:
    batch = batch_of([None, *(value for value, _ in values)])
    decoded = ValueColumns(LAYOUT).decode(batch)
    assert decoded.rows.select(RECORD_SCHEMA.names).equals(batch)
    rows = decoded.rows.select(["id", "name", "at"]).to_pylist()
    assert rows[0] == {"id": None, "name": None, "at": None}  # a value that is null is no reject
    bad = [at for at, (_, is_good) in enumerate(values, 1) if not is_good]
    for at, (value, is_good) in enumerate(values, 1):
        found = json.loads(value) if is_good else {}
        assert rows[at] == {name: found.get(name) for name in ("id", "name", "at")}
    assert ([] if decoded.rejects is None else decoded.rejects.column("offset").to_pylist()) == bad
    assert decoded.rejects is None or decoded.rejects.column("reason").null_count == 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\t", "it is empty"),
        (b"a\xff", "it is not UTF-8 at byte 1"),
        (b'{"id": 1', "it is not JSON: Expecting ',' delimiter: line 1 column 9 (char 8)"),
        (b"[1]", "it is JSON, but not an object"),
        (b'{"id": 1, "at": {"x": "far"}}', 'field \'at\' is not struct<x: double>: {"x": "far"}'),
        (b'{"id": 9223372036854775808}', "field 'id' is not int64: 9223372036854775808"),
    ],
)
def test_a_reject_has_its_reason_and_its_record(value: bytes, reason: str) -> None:
    rejects = ValueColumns(LAYOUT).decode(batch_of([b"{}", value])).rejects
    assert rejects.schema == REJECT_SCHEMA
    assert [(row["offset"], row["value"], row["reason"]) for row in rejects.to_pylist()] == [(1, value, reason)]


def test_columns_are_called_as_fields_unless_the_table_has_them_for_something_else() -> None:
    with pytest.raises(SchemaChangeError, match=r"'offset' would be the column 'offset'.*--value-prefix"):
        evolved(Layout(), from_json_schema({"properties": {"offset": {}}}))
    first, _ = evolved(Layout(), from_json_schema({"properties": {"offset": {}}}), "value_")
    again, changes = evolved(first, from_json_schema({"properties": {"offset": {}, "id": {}}}))
    assert again.values == (("value_offset", "offset"), ("id", "id"))
    assert changes == ["'id' is new (string)"]
    assert evolved(again, None) == (again, [])


def test_columns_of_others_stay_null() -> None:
    theirs = LAYOUT._replace(schema=pa.schema([*LAYOUT.schema, pa.field("theirs", pa.int32())]))
    assert theirs.archived_schema == LAYOUT.schema
    rows = ValueColumns(theirs).decode(batch_of([b'{"id": 1, "theirs": 2}'])).rows
    assert (rows.column("id").to_pylist(), rows.column("theirs").to_pylist()) == ([1], [None])


def test_rows_of_an_older_schema_get_the_columns_of_now() -> None:
    old = pa.struct([("n", pa.int32())])
    new = pa.struct([("n", pa.int64()), ("more", pa.string())])
    rows = [None, [], [None, {"n": None}], [{"n": 7}]]
    array = pa.array([[{"n": 1}], *rows], pa.list_(old)).slice(1)
    expected = [None, [], [None, {"n": None, "more": None}], [{"n": 7, "more": None}]]
    assert widened(array, pa.list_(new)).to_pylist() == expected
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, None], pa.int32())})
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(new))])
    assert with_columns(batch, schema).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": None}]
