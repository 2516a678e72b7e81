"""Says which columns a read has, of which types, and checks a schema of the user's.

PySpark's types are objects here, because text (DDL) is parsed by the JVM, which a planning process does not have. Only
the schema of JSON values is text, and is handed to PySpark as a part of text.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas_spark.options.names import OptionError, without_copies
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.options.tables import comment_for, is_table

__all__ = ["HEADER_TYPE", "Projection", "comments_of", "declared", "json_type", "projection"]

HEADER_TYPE = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER_TYPE),
}
# As they are written in DDL.
_NAMES = {BinaryType(): "BINARY", StringType(): "STRING", IntegerType(): "INT", LongType(): "BIGINT"} | {
    TimestampType(): "TIMESTAMP",
    ArrayType(HEADER_TYPE): "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
# What a field of JSON can be. Others can be read as strings, and cast.
_IN_JSON = (BooleanType, DateType, DecimalType, FractionalType, IntegralType, TimestampNTZType, TimestampType)


class Projection(NamedTuple):
    """The columns to build, in order, and the Arrow type of `value` if it is not just bytes."""

    names: tuple[str, ...]
    value_type: Any = None


def declared(options: ReadOptions, given: Mapping[str, str] | None = None) -> StructType | str:
    """Return the schema of a read for which the user gave none: all columns, or those of the option `columns`.

    `given` are the options as they came. Those of a table that is being created are kept in it (options/tables.py).
    """
    comment = comment_for(without_copies(given)) if given is not None and is_table(given) else ""
    types = _types(options)
    names = options.columns or tuple(types)
    if options.value_format != "json":
        kept = [{"comment": comment} if comment else None] + [None] * len(names)
        fields = zip(names, kept, strict=False)
        return StructType([StructField(name, types[name], metadata=metadata) for name, metadata in fields])
    if "value" in names and not options.value_schema:
        raise OptionError("valueFormat", "json needs a schema; set valueSchema to 'id long, name string', or such")
    value = f"STRUCT<{options.value_schema}>"
    columns = [f"{name} {value if name == 'value' else _NAMES[types[name]]}" for name in names]
    if comment:
        columns[0] += " COMMENT '" + comment.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return ", ".join(columns)


def comments_of(schema: StructType) -> list[str | None]:
    """Return the comment of each column."""
    return [field.metadata.get("comment") for field in schema.fields]


def projection(schema: StructType, options: ReadOptions) -> Projection:
    """Return what to build for a schema: the declared one, or the user's, which must be a choice of its columns.

    Spark cannot tell a Python source which columns a query uses: so a user's schema is a projection.

    Raises:
        OptionError: an unknown column, or another type than it has.
    """
    types = _types(options)
    value_type = None
    for field in schema.fields:
        if field.name not in types:
            hint = "; set includeHeaders" if field.name == "headers" else ""
            raise OptionError("schema", f"unknown column {field.name}; the columns are {', '.join(types)}{hint}")
        if options.columns and field.name not in options.columns:
            raise OptionError("schema", f"column {field.name} is not among those of the option columns")
        if field.name == "value" and options.value_format == "json":
            _check_json(field)
            value_type = _arrow_type(field)
        elif (field.dataType, field.nullable) != (types[field.name], True):
            expected = types[field.name].simpleString()
            hint = "; set valueFormat to json to decode it" if isinstance(field.dataType, StructType) else ""
            raise OptionError("schema", f"column {field.name} is {expected} and nullable; cast it in a select{hint}")
        elif field.name == "value" and options.value_format == "string":
            value_type = _arrow_type(field)
    return Projection(tuple(field.name for field in schema.fields), value_type)


def json_type(fields: StructType) -> Any:
    """Return the Arrow type of values whose JSON has these fields.

    Raises:
        OptionError: a field has a type that is not decoded from JSON, or must not be null.
    """
    value = StructField("value", fields)
    _check_json(value)
    return _arrow_type(value)


def _types(options: ReadOptions) -> dict[str, DataType]:
    types: dict[str, DataType] = dict(_TYPES)
    if not options.include_headers:
        del types["headers"]
    if options.value_format == "string":
        types["value"] = StringType()
    for name in options.columns:
        if name not in types:
            hint = "; set includeHeaders" if name == "headers" else ""
            raise OptionError("columns", f"unknown column {name}; the columns are {', '.join(types)}{hint}")
    return types


def _check_json(field: StructField) -> None:
    if not isinstance(field.dataType, StructType) or not field.dataType.fields:
        raise OptionError("schema", "with valueFormat json, the column value is a struct of the fields to decode")
    _check_type("value", field.dataType, nullable=field.nullable)


def _check_type(name: str, kind: DataType, *, nullable: bool) -> None:
    if not nullable:
        raise OptionError("schema", f"{name} must be nullable: a record that does not have it would fail the query")
    if isinstance(kind, ArrayType):
        _check_type(f"an element of {name}", kind.elementType, nullable=kind.containsNull)
    elif isinstance(kind, StructType):
        names = [one.name for one in kind.fields]
        if len(set(names)) != len(names):
            raise OptionError("schema", f"{name} has a field twice")
        for one in kind.fields:
            _check_type(f"{name}.{one.name}", one.dataType, nullable=one.nullable)
    elif not isinstance(kind, _IN_JSON) and kind != StringType():
        what = kind.simpleString()
        raise OptionError(
            "schema", f"{name}: {what} is not decoded from JSON; set valueFormat to string and use from_json"
        )


def _arrow_type(field: StructField) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - imports pyarrow

    return to_arrow_schema(StructType([field]), timezone="UTC").field(0).type
