"""Schemas of tables as JSON that people and Spark read: the JSON of Spark's `StructType`."""

from typing import Any

__all__ = ["schema_from_json", "schema_to_json", "spark_schema"]


def schema_to_json(schema: Any) -> Any:
    """Return an Arrow schema as plain values for JSON."""
    return spark_schema(schema).jsonValue()


def schema_from_json(said: Any) -> Any:
    """Return the Arrow schema of such values."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only who has a table needs it
    from pyspark.sql.types import StructType  # noqa: PLC0415 - see above

    return to_arrow_schema(StructType.fromJson(said), timezone="UTC")


def spark_schema(schema: Any) -> Any:
    """Return an Arrow schema as Spark's `StructType`."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - see above

    return from_arrow_schema(schema)
