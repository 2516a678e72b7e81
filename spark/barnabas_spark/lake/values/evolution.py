"""Decides whether a schema may follow another one, and what a table has then. Pure.

Schemas are the plain values of Spark's JSON for a `StructType`. A table keeps all fields that it has. A schema may
bring fields that are new, and wider types for those that are there; where its own type is narrower, the table's stays.
So whoever runs an older schema later changes nothing. All else is refused: rows that are there would not fit.
"""

import re
from collections.abc import Mapping
from typing import Any

from barnabas_spark.lake.table import TableError

__all__ = ["SchemaChangeError", "merged", "shown"]

# What a type may become: every reader of Parquet and Iceberg reads the narrower one as the wider.
WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
}
_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


class SchemaChangeError(TableError):
    """A schema that does not fit the table's."""


def merged(stored: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a struct with all fields of both, and what it changes of `stored`, one text a change.

    Raises:
        SchemaChangeError: they do not fit; the message has all of what does not.
    """
    changes: list[str] = []
    refused: list[str] = []
    found = _struct(stored, given, "", changes, refused)
    if refused:
        raise SchemaChangeError(
            f"the value schema does not fit the table: {'; '.join(refused)}; new fields and wider types (int to bigint,"
            " float to double) are possible, anything else needs another field, or another table"
        )
    return found, changes


def shown(kind: Any) -> str:
    """Return a type as it is written in DDL."""
    if isinstance(kind, str):
        return _NAMES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{shown(kind['elementType'])}>"
    inner = ", ".join(f"{one['name']}: {shown(one['type'])}" for one in kind["fields"])
    return f"struct<{inner}>"


def _struct(
    stored: Mapping[str, Any], given: Mapping[str, Any], path: str, changes: list[str], refused: list[str]
) -> dict[str, Any]:
    fields = {one["name"]: dict(one) for one in stored["fields"]}
    lowered = {name.lower(): name for name in fields}
    for one in given["fields"]:
        name, kind = one["name"], one["type"]
        where = f"{path}{name}"
        same = lowered.setdefault(name.lower(), name)
        if same != name:
            refused.append(f"'{where}' is called '{path}{same}' there, and Spark does not tell them apart")
        elif name in fields:
            fields[name]["type"] = _type(fields[name]["type"], kind, where, changes, refused)
        else:
            fields[name] = {"name": name, "type": kind, "nullable": True, "metadata": {}}
            changes.append(f"'{where}' is new ({shown(kind)})")
    return {"type": "struct", "fields": list(fields.values())}


def _type(stored: Any, given: Any, path: str, changes: list[str], refused: list[str]) -> Any:
    if stored == given or _is_wider(given, stored):
        return stored
    if _is_wider(stored, given):
        changes.append(f"'{path}' becomes {shown(given)} ({shown(stored)} before)")
        return given
    kinds = {one if isinstance(one, str) else one["type"] for one in (stored, given)}
    if kinds == {"struct"}:
        return _struct(stored, given, f"{path}.", changes, refused)
    if kinds == {"array"}:
        element = _type(stored["elementType"], given["elementType"], f"{path}[]", changes, refused)
        return {"type": "array", "elementType": element, "containsNull": True}
    refused.append(f"'{path}' is {shown(stored)} there, and {shown(given)} now")
    return stored


def _is_wider(narrow: Any, wide: Any) -> bool:
    """Tell whether `wide` has every value of `narrow`, and is another type."""
    if not isinstance(narrow, str) or not isinstance(wide, str):
        return False
    before, after = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    if before and after:
        return before[2] == after[2] and int(before[1]) < int(after[1])
    return wide in WIDER.get(narrow, ())
