"""Schemas of tables as JSON that people and Spark read: the JSON of Spark's `StructType`.

A column that is decoded from the JSON of the value says so in its metadata: `barnabas.field` is the field's name there.
"""

from collections.abc import Mapping
from typing import Any

from .layout import FIELD, PARTITIONINGS, Layout
from .table import TableError

__all__ = ["layout_from_json", "layout_to_json", "plain_schema", "schema_from_json", "spark_schema"]


def layout_to_json(layout: Layout) -> dict[str, Any]:
    """Return the columns of files as plain values for JSON."""
    said: dict[str, Any] = spark_schema(layout.schema).jsonValue()
    fields = dict(layout.values)
    for one in said["fields"]:
        if one["name"] in fields:
            one["metadata"] = {FIELD: fields[one["name"]]}
    return said


def layout_from_json(said: Mapping[str, Any], partition_columns: tuple[str, ...]) -> Layout:
    """Return the layout of a table with the columns of such values, those by which it is partitioned among them or not.

    Raises:
        TableError: it is partitioned in a way that archives do not know.
    """
    found = [name for name, columns in PARTITIONINGS.items() if columns == partition_columns]
    if not found:
        raise TableError(f"the table is partitioned by {', '.join(partition_columns)}; only date and hour are known")
    kept = [one for one in said["fields"] if one["name"] not in partition_columns]
    marked = ((one["name"], (one.get("metadata") or {}).get(FIELD)) for one in kept)
    values = tuple((name, field) for name, field in marked if field is not None)
    return Layout(schema_from_json({"type": "struct", "fields": kept}), found[0], values)


def schema_from_json(said: Any) -> Any:
    """Return the Arrow schema of such values."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only who has a table needs it
    from pyspark.sql.types import StructType  # noqa: PLC0415 - see above

    return to_arrow_schema(StructType.fromJson(said), timezone="UTC")


def spark_schema(schema: Any) -> Any:
    """Return an Arrow schema as Spark's `StructType`."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - see above

    return from_arrow_schema(schema)


def plain_schema(schema: Any) -> Any:
    """Return an Arrow schema as Spark reads it: without what is about memory, and without metadata."""
    return schema_from_json(spark_schema(schema).jsonValue())
