"""Formats the lines of the log, so that no quoted text can forge one.

A message is one line whatever it quotes (`printable`), and no longer than `LINE_CHARACTERS_MAX`. The lines of a
traceback behind it begin with `MARGIN`, so that the words of an exception cannot look like a line of their own.
"""

import logging
import sys

from barnabas_raftlog.printable import printable

__all__ = ["MARGIN", "LineFormatter", "log_to_stderr"]

LINE_CHARACTERS_MAX = 4_000
MARGIN = "  | "


class LineFormatter(logging.Formatter):
    """Formats as its base does, and then sees to it that lines are lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record), LINE_CHARACTERS_MAX)

    def format(self, record: logging.LogRecord) -> str:
        message, *traceback = super().format(record).split("\n")
        return "\n".join([message, *(MARGIN + printable(line, LINE_CHARACTERS_MAX) for line in traceback)])


def log_to_stderr(level: int | str, form: str) -> None:
    """Let this process log to its standard error, in `form`, unless somebody else has decided where it logs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
