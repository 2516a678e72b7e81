"""Gives a table the columns of a schema of values, whoever else writes it, and whatever fails on the way.

To change columns is to ask for what the table should have, so it may be asked again: a commit whose outcome is not
known is followed by a look at the columns. Ranges of offsets are not touched.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from barnabas_spark.lake.committing import ROUNDS_MAX, NotCommittedError, pause
from barnabas_spark.lake.layout import PARTITION_TYPES, RECORD_COLUMNS, Layout
from barnabas_spark.lake.schemas import schema_from_json, spark_schema
from barnabas_spark.lake.store import StoreError
from barnabas_spark.lake.table import ConflictError, TableError, UnknownOutcomeError

from .evolution import SchemaChangeError, merged

__all__ = ["evolve_table", "evolved"]

logger = logging.getLogger(__name__)

NOTHING: Mapping[str, Any] = {"type": "struct", "fields": []}
_TAKEN = {name.lower() for name in (*RECORD_COLUMNS, *PARTITION_TYPES)}


def evolved(stored: Layout, given: Mapping[str, Any] | None, prefix: str = "") -> tuple[Layout, list[str]]:
    """Return a layout that has the fields of a schema, too, and what that changes, one text a change.

    New columns are called as their fields, with `prefix` before. None: no schema is given, and nothing changes.

    Raises:
        SchemaChangeError: the schema does not fit, or a column would be called as another one.
    """
    if given is None:
        return stored, []
    columns = {field: name for name, field in stored.values}
    before = pa.schema([(field, stored.schema.field(name).type) for name, field in stored.values])
    found, changes = merged(spark_schema(before).jsonValue() if columns else NOTHING, given)
    types = schema_from_json(found)
    schema = {one.name: one for one in stored.schema}
    there = {name.lower() for name in schema}
    for one in types:
        name = columns.get(one.name, f"{prefix}{one.name}")
        if one.name not in columns and name.lower() in _TAKEN | there:
            raise SchemaChangeError(
                f"the field '{one.name}' would be the column '{name}', which the table has for something else; give the"
                " columns of new fields another name with --value-prefix value_"
            )
        schema[name] = pa.field(name, one.type)
        columns[one.name] = name
    values = tuple((columns[one.name], one.name) for one in types)
    return stored._replace(schema=pa.schema(list(schema.values())), values=values), changes


def evolve_table(
    table: Any, base: Layout, given: Mapping[str, Any] | None, prefix: str, *, wait: Callable[[int], None] = pause
) -> Layout:
    """Give a table the columns of a schema, or make it from `base` with them; return its layout.

    Raises:
        SchemaChangeError: the schema does not fit.
        NotCommittedError: no round succeeded.
        TableError: the format does not take the change.
    """
    last: TableError | OSError | None = None
    is_unknown = False
    for rounds in range(ROUNDS_MAX):
        if rounds:
            wait(rounds)
        try:
            state = table.load()
            stored: Layout | None = table.layout_of(state)
            wanted, changes = evolved(stored or base, given, prefix)
            if stored is not None and wanted == stored:
                return stored
            table.evolve(state, wanted)
        except (ConflictError, StoreError, OSError) as error:
            last = error
        except UnknownOutcomeError as error:
            last, is_unknown = error, True
        else:
            for one in changes:
                logger.warning("the table has new columns: %s", one)
            return wanted
    text = f"new columns were given up after {ROUNDS_MAX} rounds: {last}"
    raise NotCommittedError(text, is_unknown=is_unknown) from last
