"""Errors that the formats share."""

from barnabas_spark.lake.table import TableError

__all__ = ["UnreadableError"]


class UnreadableError(TableError, OSError):
    """A table could not be looked at; nothing was committed. As with any `OSError`, trying again may help."""
