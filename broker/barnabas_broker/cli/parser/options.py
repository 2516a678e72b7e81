"""Options that several commands have, and the form of help and command names."""

import re
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from barnabas_broker.config.quantities import parse_duration_ms

__all__ = [
    "DEFAULT",
    "PLAIN",
    "VARIABLE",
    "Bootstrap",
    "Data",
    "Group",
    "Json",
    "Timeout",
    "Topic",
    "context_settings",
]

# Where a cluster is if nobody says so: as rpk, kcat and people's fingers have it.
DEFAULT = "localhost:9092"
VARIABLE = "BARNABAS_BOOTSTRAP_SERVER"

TIMEOUT_MIN_S = 0.1
TIMEOUT_MAX_S = 1_000_000.0
# Narrower lines fall apart, and in wider ones the eye loses its way from a name to its text.
HELP_WIDTH_MIN, HELP_WIDTH_MAX = 80, 160
NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)")


class Commands(TyperGroup):
    """A group of commands whose help tells each of them by a whole sentence, over several lines where it must."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(10_000)) for name, each in found if each is not None and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


# Plain help and plain errors: rich would cost as long to load as everything else together.
PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,  # `barnabas completion` prints the script
    "cls": Commands,
}


def context_settings() -> dict[str, Any]:
    """Return what all commands share: -h, and help at the width of the terminal (COLUMNS, or else the terminal's)."""
    columns = shutil.get_terminal_size((HELP_WIDTH_MIN, 24)).columns
    width = min(max(columns, HELP_WIDTH_MIN), HELP_WIDTH_MAX)
    return {"help_option_names": ["-h", "--help"], "terminal_width": width, "max_content_width": width}


def timeout_s(said: str | float) -> float:
    """Return a time to wait, in s: a number of seconds, or a duration as `30s`, `2m`.

    Raises:
        typer.BadParameter: it is neither, or out of range.
    """
    text = str(said)
    try:
        found = float(text) if NUMBER.fullmatch(text) else parse_duration_ms(text) / 1000
    except ValueError:
        found = 0.0
    if not TIMEOUT_MIN_S <= found <= TIMEOUT_MAX_S:
        raise typer.BadParameter(f"{text!r} is not a valid timeout; write seconds, or 500ms, 30s, 2m; at least 0.1 s")
    return found


Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Group = Annotated[str, typer.Argument(metavar="GROUP")]
Data = Annotated[Path, typer.Option(help="The cluster's directory.", metavar="DIR")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        help="Brokers to start from, comma separated; before the profile's.",
        metavar="HOST:PORT",
        envvar=VARIABLE,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", help="How long to wait before giving up: seconds, or 500ms, 2m.", parser=timeout_s, metavar="S"
    ),
]
