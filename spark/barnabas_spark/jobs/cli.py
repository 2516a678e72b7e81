"""Runs the command `barnabas-spark`, with one subcommand a job."""

import sys
from collections.abc import Sequence
from typing import Any

import typer

from .app import app
from .commands import archive, audit, backfill, compact, settle, windows  # noqa: F401 - each adds itself to the command
from .errors import guarded
from .output import complain

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 1 not done, 2 asked wrongly, 130 interrupted."""
    command: Any = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)

    def run() -> int:
        try:
            status = command.main(given or ["--help"], "barnabas-spark", standalone_mode=False)
        except typer.TyperException as error:
            complain(str(error.format_message()).rstrip("."))
            return 2
        return status if isinstance(status, int) else 0

    return guarded(run)
