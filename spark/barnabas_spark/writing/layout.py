"""Finds the columns of a sink in a DataFrame's schema. Pure.

They are those of Spark's Kafka sink, found by their exact names, in any order. Of two columns with one name the first
counts, and other columns are left out. Messages are Spark's, word for word where it has one.

| column | type | |
| --- | --- | --- |
| value | string or binary | required |
| key | string or binary | |
| headers | array<struct<key: string, value: binary>> | |
| topic | string | required if there is no option `topic`, which beats it |
| partition | int | |
"""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["HEADERS_TYPE", "Layout", "UnsuitableSchemaError", "layout_of"]

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TYPES = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
}


class UnsuitableSchemaError(BarnabasError, ValueError):
    """A DataFrame has columns that cannot become records."""


class Layout(NamedTuple):
    """Where the columns of a sink are in a row; None if there is none."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None


def layout_of(fields: Sequence[tuple[str, str]], *, has_topic_option: bool) -> Layout:
    """Return where the columns are among `fields`, which are names and Spark's simple names of types.

    Raises:
        UnsuitableSchemaError: a column is missing or has another type.
    """
    at: dict[str, int] = {}
    for place, (name, _) in enumerate(fields):
        at.setdefault(name, place)
    if has_topic_option:
        at.pop("topic", None)
    elif "topic" not in at:
        raise UnsuitableSchemaError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in at:
        near = next((name for name in at if name.lower() == "value"), None)
        hint = f"; there is {near}, and case matters" if near else ""
        raise UnsuitableSchemaError(f"Required attribute 'value' not found{hint}")
    for name, kinds in _TYPES.items():
        kind = fields[at[name]][1] if name in at else kinds[0]
        if kind not in kinds:
            raise UnsuitableSchemaError(
                f"{name} attribute unsupported type {kind}. {name} must be a(n) {' or '.join(kinds)}"
            )
    return Layout(at["value"], at.get("key"), at.get("headers"), at.get("topic"), at.get("partition"))
