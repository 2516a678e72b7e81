"""The command `barnabas check`: options and help. Its work is imported when it runs."""

from typing import Annotated

import typer

from .options import Json

__all__ = ["check"]


def check(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help="JSON lines; - reads standard input.")],
    as_json: Json = False,
    limit: Annotated[int, typer.Option(help="Print at most this many violations.", metavar="N", min=1)] = 20,
) -> int:
    """Judge a history of what clients did and saw: was anything lost, doubled, reordered or taken back?

    Exit status: 0 all promises were kept, 1 some were not, 2 the history makes no sense.
    """
    from barnabas_broker.cli.commands import check as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.check(history, limit, as_json=as_json)
