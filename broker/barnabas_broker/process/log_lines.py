"""Formats the lines of the log, so that no quoted text can forge one, and puts them where they belong.

As text, a message is one line whatever it quotes (`printable`), and no longer than `LINE_CHARACTERS_MAX`. The lines of
a traceback behind it begin with `MARGIN`, so that the words of an exception cannot look like a line of their own. As
JSON each message is one object on one line, in ASCII, its traceback included: `time` (UTC), `level`, `logger`,
`message`, and the fields that its origin gave it (events: `event`, `subject`, `cause`).

Lines go to standard error, or to a file that is put aside when it has grown to a size: `broker.log` becomes
`broker.log.1`, that one `broker.log.2`, and so on. If standard error is that file, it moves along, so that what the
interpreter itself says in its last moment is in the newest. The file that nobody keeps any more is freed by a thread: a
large one takes tens of milliseconds, and whoever logs may be the loop.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from barnabas_raftlog.printable import printable

__all__ = ["MARGIN", "JsonFormatter", "LineFormatter", "RotatingFile", "log_as_configured", "log_to_stderr"]

LINE_CHARACTERS_MAX = 4_000
TRACEBACK_CHARACTERS_MAX = 16_000  # as JSON; its end says most
MARGIN = "  | "
FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
STDERR = 2


class LineFormatter(logging.Formatter):
    """Formats as its base does, and then sees to it that lines are lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record), LINE_CHARACTERS_MAX)

    def format(self, record: logging.LogRecord) -> str:
        message, *traceback = super().format(record).split("\n")
        return "\n".join([message, *(MARGIN + printable(line, LINE_CHARACTERS_MAX) for line in traceback)])


class JsonFormatter(logging.Formatter):
    """Formats as JSON lines; `extra={"fields": {...}}` of a call adds fields, which replace none of ours."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        values: dict[str, object] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage()[:LINE_CHARACTERS_MAX],
        }
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)[-TRACEBACK_CHARACTERS_MAX:]
        fields: dict[str, object] = getattr(record, "fields", {})
        return json.dumps(values | {name: value for name, value in fields.items() if name not in values}, default=str)


class RotatingFile(logging.StreamHandler[TextIO]):
    """Appends to a file, and begins a new one behind `bytes_max`; `count` older ones are kept.

    A file that cannot be put aside is written on, and put aside when it has grown as much again, if that is possible by
    then. A line that cannot be written is lost, and nobody is told.
    """

    def __init__(self, path: Path, bytes_max: int, count: int) -> None:
        """Raises OSError if the file cannot be opened."""
        self._path = path
        self._bytes_max = self._rotated_at_bytes = bytes_max
        self._count = count
        super().__init__(_opened(path))

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        # Standard error may write there as well, so nobody counts.
        with contextlib.suppress(OSError):
            size_bytes = os.fstat(self.stream.fileno()).st_size
            if size_bytes > self._rotated_at_bytes:
                # Not at the next line again: what half succeeds moves the older files, and the last one out.
                self._rotated_at_bytes = size_bytes + self._bytes_max
                self._rotate()
                self._rotated_at_bytes = self._bytes_max

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Do without a traceback on standard error if the disk is full: that is where this writes."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def close(self) -> None:
        super().close()
        self.stream.close()

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, self._count + 1))]
        next_path = Path(f"{self._path}.next")
        fresh = _opened(next_path)  # If there is no room for it, all stays where it is.
        doomed = _held(names[-1])
        try:
            for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
                with contextlib.suppress(FileNotFoundError):
                    newer.replace(older)
            next_path.replace(self._path)
        except OSError:
            fresh.close()
            next_path.unlink(missing_ok=True)
            raise
        finally:
            if doomed is not None:
                _close_elsewhere(doomed)
        before, self.stream = self.stream, fresh
        if os.path.sameopenfile(before.fileno(), STDERR):
            os.dup2(self.stream.fileno(), STDERR)
        before.close()


def _opened(path: Path) -> TextIO:
    return path.open("a", encoding="utf-8", errors="backslashreplace")


def _held(path: Path) -> int | None:
    """Open a file that is about to go, so that it is freed when this is closed; None if there is none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None


def _close_elsewhere(descriptor: int) -> None:
    try:
        threading.Thread(target=os.close, args=(descriptor,), name="old log", daemon=True).start()
    except RuntimeError:  # There can be no more threads.
        os.close(descriptor)


def log_to_stderr(level: int | str, form: str) -> None:
    """Let this process log to its standard error, in `form`, unless somebody else has decided where it logs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


def log_as_configured(level: str, form: str, file: str, file_bytes_max: int, file_count: int) -> None:
    """Let a broker log as its `log.*` settings say.

    Raises:
        OSError: its file cannot be written.
    """
    handler = RotatingFile(Path(file), file_bytes_max, file_count) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter(FORM))
    logging.basicConfig(level=level, handlers=[handler])
