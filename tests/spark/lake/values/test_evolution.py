"""A schema may bring fields and wider types, in any order of runs; whatever else it changes is refused and named."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_spark.lake.ranges import PartitionKey, Span
from barnabas_spark.lake.values.evolution import SchemaChangeError, merged, shown
from barnabas_spark.lake.values.rejects import is_ahead, known_part
from barnabas_spark.lake.values.texts import ValueSchemaError, from_json_schema, read_value_schema

KEY = PartitionKey("c", "t", 0)
# Of each name one chain of types, so that any two schemas fit.
CHAINS = {
    "a": ["byte", "short", "integer", "long"],
    "b": ["float", "double"],
    "c": ["string"],
    "d": ["decimal(9,2)", "decimal(12,2)"],
}


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()],
    }


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


FLAT = st.fixed_dictionaries({}, optional={name: st.sampled_from(kinds) for name, kinds in CHAINS.items()}).map(
    lambda fields: struct(**fields)
)
NESTED = st.builds(lambda outer, inner, many: struct(s=inner, l=array(many)) | outer, st.just({}), FLAT, FLAT)


def types_of(schema: Any, path: str = "") -> dict[str, Any]:
    if isinstance(schema, str):
        return {path: schema}
    if schema["type"] == "array":
        return types_of(schema["elementType"], f"{path}[]")
    return {
        name: kind for one in schema["fields"] for name, kind in types_of(one["type"], f"{path}.{one['name']}").items()
    }


@settings(max_examples=60)
@given(st.lists(FLAT | NESTED, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter_and_a_second_one_changes_nothing(schemas: list[Any], chance: Any) -> None:
    def all_of(given_schemas: list[Any]) -> Any:
        found = struct()
        for one in given_schemas:
            found, _ = merged(found, one)
        return found

    found = all_of(schemas)
    for one in schemas:
        assert merged(found, one) == (found, [])
    chance.shuffle(schemas)
    assert types_of(all_of(schemas)) == types_of(found)
    names = {name for one in schemas for name in types_of(one)}
    assert set(types_of(found)) == names


def test_changes_are_told() -> None:
    before = struct(id="integer", price="float", at=struct(x="string"), tags=array(struct(n="integer")))
    after = struct(id="long", price="double", at=struct(y="string"), tags=array(struct(n="long")), more="date")
    found, changes = merged(before, after)
    assert changes == [
        "'id' becomes bigint (int before)",
        "'price' becomes double (float before)",
        "'at.y' is new (string)",
        "'tags[].n' becomes bigint (int before)",
        "'more' is new (date)",
    ]
    assert shown(found) == (
        "struct<id: bigint, price: double, at: struct<x: string, y: string>, tags: array<struct<n: bigint>>,"
        " more: date>"
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("string", "long", "'f' is string there, and bigint now"),
        ("integer", "double", "'f' is int there, and double now"),
        ("integer", struct(x="integer"), "'f' is int there, and struct<x: int> now"),
        ("decimal(9,2)", "decimal(12,3)", r"'f' is decimal\(9,2\) there, and decimal\(12,3\) now"),
        (array("date"), array("timestamp"), r"'f\[\]' is date there, and timestamp now"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_changed(before: Any, after: Any, said: str) -> None:
    with pytest.raises(SchemaChangeError, match=said):
        merged(struct(f=before), struct(f=after))


def test_all_that_does_not_fit_is_told_at_once_and_case_is_no_difference() -> None:
    with pytest.raises(SchemaChangeError, match=r"'a' is string there.*'B' is called 'b' there"):
        merged(struct(a="string", b="string"), struct(a="date", B="string"))


SPANS = st.lists(st.integers(0, 30), min_size=0, max_size=6, unique=True).map(
    lambda edges: [Span(*pair) for pair in zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False)]
)


@given(st.integers(0, 29), st.integers(1, 12), SPANS)
def test_the_first_part_of_a_range_is_known_as_a_whole_or_not_at_all(start: int, length: int, spans: Any) -> None:
    known = {offset for span in spans for offset in range(span.start_offset, span.end_offset)}
    end, is_known = known_part(start, start + length, spans)
    assert start < end <= start + length
    assert {offset in known for offset in range(start, end)} == {is_known}
    assert end == start + length or (end in known) != is_known or any(span.end_offset == end for span in spans)


def test_rejects_are_ahead_where_the_table_lacks_their_offsets() -> None:
    assert not is_ahead({}, {})
    assert not is_ahead({KEY: [Span(0, 9)]}, {KEY: [Span(0, 4), Span(6, 9)]})
    assert is_ahead({KEY: [Span(0, 9)]}, {KEY: [Span(0, 10)]})
    assert is_ahead({}, {KEY: [Span(3, 4)]})


def test_a_json_schema_says_types() -> None:
    said = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "object", "properties": {"ok": {"type": "boolean"}}}},
            "any": {"type": ["string", "integer"]},
        },
    }
    found = from_json_schema(said)
    assert shown(found) == (
        "struct<id: bigint, price: double, at: timestamp, tags: array<struct<ok: boolean>>, any: string>"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@/nowhere.json", "'/nowhere.json' cannot be read"),
        ("{", "the value schema is no JSON"),
        ('{"type": "object"}', "must be of an object with 'properties'"),
        ('{"type": "struct", "fields": []}', "a struct of the fields to decode"),
        ('{"properties": {"a": {}, "A": {}}}', "has a field twice"),
        ('{"properties": {"_corrupt_record": {}}}', "cannot have '_corrupt_record'"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueSchemaError, match=said):
        read_value_schema(text)
