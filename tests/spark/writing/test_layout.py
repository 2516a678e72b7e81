"""The columns of a sink are found as Spark's Kafka sink finds them, with its messages."""

import pytest

from barnabas_spark.writing.layout import HEADERS_TYPE, Layout, UnsuitableSchemaError, layout_of

ALL = [
    ("partition", "int"),
    ("other", "map<string,int>"),
    ("headers", HEADERS_TYPE),
    ("value", "binary"),
    ("topic", "string"),
    ("key", "string"),
]


def test_columns_are_found_by_their_names_and_others_are_left_out() -> None:
    assert layout_of(ALL, has_topic_option=False) == Layout(value=3, key=5, headers=2, topic=4, partition=0)


def test_the_option_beats_the_column_whatever_its_type() -> None:
    assert layout_of([("topic", "date"), ("value", "string")], has_topic_option=True) == Layout(1)


def test_of_two_columns_with_one_name_the_first_counts() -> None:
    assert layout_of([("value", "string"), ("value", "int")], has_topic_option=True) == Layout(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            [("value", "int")],
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
        ),
        ([("topic", "string"), ("key", "string")], "Required attribute 'value' not found"),
        ([("topic", "string"), ("VALUE", "string")], "Required attribute 'value' not found; there is VALUE, and"),
        ([("topic", "int"), ("value", "string")], "topic attribute unsupported type int. topic must be a(n) string"),
        (
            [("topic", "string"), ("value", "int")],
            "value attribute unsupported type int. value must be a(n) string or binary",
        ),
        (
            [("topic", "string"), ("value", "string"), ("key", "bigint")],
            "key attribute unsupported type bigint. key must be a(n) string or binary",
        ),
        (
            [("topic", "string"), ("value", "string"), ("partition", "bigint")],
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (
            [("topic", "string"), ("value", "string"), ("headers", "array<int>")],
            f"headers attribute unsupported type array<int>. headers must be a(n) {HEADERS_TYPE}",
        ),
    ],
)
def test_a_schema_that_is_wrong_is_refused_in_sparks_words(fields: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UnsuitableSchemaError) as caught:
        layout_of(fields, has_topic_option=False)
    assert str(caught.value).startswith(message)
