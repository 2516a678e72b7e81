"""Reads the schema of values: Spark's DDL or JSON, or a JSON Schema."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas_spark.lake.table import TableError
from barnabas_spark.options.names import OptionError
from barnabas_spark.reading.json_records import CORRUPT
from barnabas_spark.schemas import json_type

__all__ = ["ValueSchemaError", "from_json_schema", "read_value_schema"]

# Words of JSON Schema, and Spark's types as JSON. Others are kept as text, as the JSON that they are.
_PLAIN = {"integer": "long", "number": "double", "boolean": "boolean"}
_FORMATS = {"date-time": "timestamp", "date": "date"}


class ValueSchemaError(TableError):
    """A text that is no schema of values: the command line makes no sense (exit status 2)."""

    status = 2


def read_value_schema(text: str) -> dict[str, Any]:
    """Return the schema as plain values of Spark's JSON. `@PATH` is a file that has it. DDL needs a session of Spark.

    Raises:
        ValueSchemaError: it is none, or has types that are not decoded from JSON.
    """
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ValueSchemaError(f"'{text[1:]}' cannot be read: {error}") from error
    found = _from_json(text) if text.lstrip().startswith("{") else _from_ddl(text)
    _check(found)
    return found


def from_json_schema(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a JSON Schema of an object says, as Spark's struct. All fields may be null, as in any record.

    Raises:
        ValueSchemaError: it is not about an object with `properties`.
    """
    properties = said.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise ValueSchemaError("a JSON Schema must be of an object with 'properties'")
    fields = [
        {"name": name, "type": _type(one if isinstance(one, Mapping) else {}), "nullable": True, "metadata": {}}
        for name, one in properties.items()
    ]
    return {"type": "struct", "fields": fields}


def _type(said: Mapping[str, Any]) -> Any:
    kinds = said.get("type")
    words = [one for one in (kinds if isinstance(kinds, list) else [kinds]) if one != "null"]
    word = words[0] if len(words) == 1 else None
    if word == "object" and said.get("properties"):
        return from_json_schema(said)
    if word == "array" and isinstance(said.get("items"), Mapping):
        return {"type": "array", "elementType": _type(said["items"]), "containsNull": True}
    if word == "string":
        return _FORMATS.get(str(said.get("format")), "string")
    return _PLAIN.get(str(word), "string")


def _from_json(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError as error:
        raise ValueSchemaError(f"the value schema is no JSON: {error}") from error
    if said.get("type") != "struct":
        return from_json_schema(said)
    return _as_struct(lambda kind: kind.fromJson(said))


def _from_ddl(text: str) -> dict[str, Any]:
    return _as_struct(lambda kind: kind.fromDDL(text))


def _as_struct(read: Any) -> dict[str, Any]:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only who has a table needs it
    from pyspark.sql.types import StructType  # noqa: PLC0415 - see above

    try:
        found = read(StructType)
        json_type(found)
        said: dict[str, Any] = found.jsonValue()
    except OptionError as error:
        raise ValueSchemaError(str(error)) from error
    except (PySparkException, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split("\n\n", 1)[0].split())
        raise ValueSchemaError(
            f"the value schema cannot be read: {reason}; write 'id bigint, name string', or @FILE with a JSON schema"
        ) from error
    return said


def _check(said: Mapping[str, Any]) -> None:
    names = [one["name"] for one in said["fields"]]
    if len({name.lower() for name in names}) != len(names):
        raise ValueSchemaError("the value schema has a field twice; Spark does not tell upper and lower case apart")
    if CORRUPT in names:
        raise ValueSchemaError(f"the value schema cannot have '{CORRUPT}': see the table of rejects")
