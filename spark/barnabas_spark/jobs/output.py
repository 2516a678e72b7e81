"""Prints for jobs: results on standard output, all else on standard error. The only module that prints."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from barnabas_raftlog.printable import printable

__all__ = ["commits", "complain", "print_table", "say", "say_json", "say_progress", "shown_bytes"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def say(line: str) -> None:
    """Print progress: one line on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def say_progress(rounds: int, done: str, plain_bytes: int, began: float, rest: str) -> None:
    """Print how far a job is that began at `began` (`time.monotonic`): what is done, how fast, and what is left."""
    rate = plain_bytes / max(time.monotonic() - began, 1e-3)
    say(f"{commits(rounds)}: {done}, {shown_bytes(plain_bytes)} ({shown_bytes(rate)}/s), {rest}")


def commits(count: int) -> str:
    """Return a number of commits in words."""
    return "1 commit" if count == 1 else f"{count} commits"


def complain(text: str) -> None:
    """Print what is wrong in one line, with this command's name before it."""
    say(f"barnabas-spark: {printable(' '.join(text.split()), None)}")


def say_json(values: Iterable[Any]) -> None:
    """Print values for programs, one a line."""
    for value in values:
        sys.stdout.write(f"{json.dumps(value, separators=(',', ':'))}\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their columns; None is a dash. Columns of numbers are right-aligned."""
    table = [list(row) for row in rows]
    numbers = [all(isinstance(row[at], int | None) for row in table) and bool(table) for at in range(len(columns))]
    lines = [list(columns), *(["-" if cell is None else _shown(cell) for cell in row] for row in table)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, numbers, strict=True)
        ]
        sys.stdout.write(f"{'  '.join(cells).rstrip()}\n")
    sys.stdout.flush()


def shown_bytes(size_bytes: float) -> str:
    """Return a size as people write it: 3.4 MiB."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 or size_bytes >= 100 else f"{size_bytes:.1f} {_UNITS[unit]}"


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
