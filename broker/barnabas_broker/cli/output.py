"""Prints for commands, to people and to programs: the only module that does.

A line for people is one line whatever it quotes (`printable`), also where a terminal would obey what a client has
chosen for a name; nothing is cut, because a name that is cut is a name that cannot be copied. JSON has all text as it
is, in ASCII.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

from barnabas_raftlog.printable import printable

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["complain", "print_table", "say", "say_json", "say_json_lines"]

# Wider than any row.
TABLE_WIDTH = 10_000


def say(*lines: str, to_stderr: bool = False) -> None:
    """Print lines; none begins another, by any of its contents."""
    text = "\n".join([printable(line, None) for line in lines])
    print(text, file=sys.stderr if to_stderr else sys.stdout, flush=True)


def complain(text: str) -> None:
    """Print one line on standard error, with this command's name before it."""
    say(f"barnabas: {text}", to_stderr=True)


def say_json(value: Any) -> None:
    """Print a value for programs, on one line."""
    say_json_lines([value])


def say_json_lines(values: Iterable[Any]) -> None:
    """Print values for programs, one a line (JSON lines); nothing if there are none."""
    for value in values:
        print(json.dumps(value, separators=(",", ":")))
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], header: "Sequence[str | Text]" = ()) -> None:
    """Print rows under their columns; None is a dash. Nothing is taken for markup, and nothing is cut to fit.

    Cells with colours (`rich.text.Text`) are printed with rich, which takes as long to load as a short command runs.
    """
    table = [tuple(row) for row in rows]
    # Whoever has made such a text has loaded what it takes.
    text_type = getattr(sys.modules.get("rich.text"), "Text", None)
    if text_type and any(isinstance(cell, text_type) for row in [header, *table] for cell in row):
        _print_coloured(columns, table, header)
        return
    lines = [[printable(name, None) for name in columns]]
    lines += [["-" if cell is None else printable(str(cell), None) for cell in row] for row in table]
    widths = [max(map(_cells, column)) for column in zip(*lines, strict=True)]
    shown = [printable(str(line), None) for line in header]
    for line in lines:
        padded = [text + " " * (width - _cells(text)) for text, width in zip(line, widths, strict=True)]
        shown.append("  ".join(padded).rstrip())
    if _is_terminal():
        shown[len(header)] = f"\x1b[1m{shown[len(header)]}\x1b[0m"
    print(*shown, sep="\n", flush=True)


def _cells(text: str) -> int:
    """Return how many cells a terminal takes for a text: two for wide characters, none for marks on the one before."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _print_coloured(columns: Sequence[str], rows: Sequence[Sequence[object]], header: "Sequence[str | Text]") -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to load, and only needed here
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    def shown(cell: object) -> Text:
        if not isinstance(cell, Text):
            return Text("-" if cell is None else printable(str(cell), None))
        cell.plain = printable(cell.plain, None)
        return cell

    console = Console(highlight=False, soft_wrap=True, width=TABLE_WIDTH)
    for line in header:
        console.print(shown(line))
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(shown, row))
    console.print(table)
