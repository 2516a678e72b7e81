"""Prints for commands, to people and to programs: the only module that does.

A line for people is one line whatever it quotes (`printable`), also where a terminal would obey what a client has
chosen for a name; nothing is cut, because a name that is cut is a name that cannot be copied. JSON has all text as it
is, in ASCII.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
    """Print rows under their columns; None is a dash. Nothing is taken for markup, and nothing is cut to fit."""
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
