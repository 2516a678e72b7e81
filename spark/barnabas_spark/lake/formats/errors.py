"""Errors that the formats share, and the words of those that their libraries raise."""

import re

from barnabas_spark.lake.table import TableError

__all__ = ["UnreadableError", "line_of"]

# deltalake paints its messages.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class UnreadableError(TableError, OSError):
    """A table could not be looked at; nothing was committed. As with any `OSError`, trying again may help."""


def line_of(error: BaseException) -> str:
    """Return what an error says, in one line; what it is, if it says nothing."""
    return " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
