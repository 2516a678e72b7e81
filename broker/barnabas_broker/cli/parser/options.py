"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DEFAULT", "PLAIN", "Bootstrap", "Data", "Group", "Json", "Timeout", "Topic"]

# Plain help and plain errors: rich would cost as long to load as everything else together.
PLAIN = {"rich_markup_mode": None, "pretty_exceptions_enable": False}

# Where a cluster is if nobody says so: as rpk, kcat and people's fingers have it.
DEFAULT = "localhost:9092"

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Group = Annotated[str, typer.Argument(metavar="GROUP")]
Data = Annotated[Path, typer.Option(help="The cluster's directory.", metavar="DIR")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        help="Brokers to start from, comma separated.",
        metavar="HOST:PORT",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait before giving up.", min=0.1, max=1_000_000, metavar="S")
]
