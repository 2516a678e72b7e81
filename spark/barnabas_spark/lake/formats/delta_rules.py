"""Finds rules of a Delta table that every row must keep, and that nobody checks when finished files are added.

A file is added by its name: neither deltalake nor anybody else looks into it. So a table with constraints, with columns
that are computed from others, or with a column that must not be null and that the files lack, takes no files.
"""

import json
from collections.abc import Collection
from typing import Any

__all__ = ["broken_rule"]

CONSTRAINT = "delta.constraints."
RULES = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated from others",
    "delta.identity.start": "is an identity",
}


def broken_rule(table: Any, columns: Collection[str]) -> str:
    """Return the rule that files with these columns may break, as the end of a sentence, or ""."""
    for name, value in table.metadata().configuration.items():
        if name.startswith(CONSTRAINT):
            return f"has the constraint '{name.removeprefix(CONSTRAINT)}' ({value}), which nobody checks in added files"
    for field in table.schema().fields:
        said = json.loads(field.to_json())
        for rule, text in RULES.items():
            if rule in said.get("metadata", {}):
                return f"has the column '{field.name}', which {text}: nobody checks that in added files"
        if field.name not in columns and not field.nullable:
            return f"has the column '{field.name}', which must not be null, and which the files lack"
    return ""
