"""Keeps the options of a table in a catalog where they survive: in the comment of its first column. Pure.

`CREATE TABLE t USING barnabas OPTIONS (...)` hands the options to the source once, when it asks for the schema. Spark
repeats each with a prefix then, and adds properties of the table, such as its owner. A later `SELECT` hands over none
of them (4.2 and 4.3), only the schema that was kept. So the source writes the options into that. What
`SELECT ... WITH (...)` says beats them.

A table that was created with columns of the user's never had a chance: its options are lost, and the error says so.
"""

import json
from collections.abc import Mapping, Sequence

from .names import OptionError

__all__ = ["comment_for", "is_table", "with_those_of_table"]

_COPY = "option."
_COMMENT = "reads with "


def is_table(given: Mapping[str, str]) -> bool:
    """Tell whether these are the options of a table that is being created."""
    names = {name.lower() for name in given}
    return any(name.startswith(_COPY) and name.removeprefix(_COPY) in names for name in names)


def comment_for(options: Mapping[str, str]) -> str:
    """Return the comment of the first column of a table with these options, which have no copies any more."""
    return _COMMENT + json.dumps(dict(sorted(options.items())))


def with_those_of_table(given: Mapping[str, str], comments: Sequence[str | None]) -> dict[str, str]:
    """Return options, with those of the table whose columns have these comments beneath them.

    Raises:
        OptionError: no options came at all, as from a table whose columns were written by hand.
    """
    kept = [one.removeprefix(_COMMENT) for one in comments if one is not None and one.startswith(_COMMENT)]
    if kept:
        try:
            return {**json.loads(kept[0]), **{name.lower(): value for name, value in given.items()}}
        except ValueError:
            raise OptionError("schema", "the comment of the table's first column was changed; create it anew") from None
    if not given:
        reason = (
            "is required. Spark does not hand over the options of a table whose columns stand in CREATE TABLE: "
            "leave them out there, and choose columns with the option columns"
        )
        raise OptionError("kafka.bootstrap.servers", reason)
    return dict(given)
