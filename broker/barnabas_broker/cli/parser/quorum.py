"""The commands of `barnabas quorum`: names, options, help."""

import typer

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout

__all__ = ["quorum"]

quorum = typer.Typer(help="Look at the nodes that agree on the metadata of the cluster.", **PLAIN)


@quorum.callback()
def quorum_callback() -> None:
    """Have `describe` be named although it is the only one."""


@quorum.command("describe")
def quorum_describe(bootstrap: Bootstrap = DEFAULT, as_json: Json = False, timeout: Timeout = 30.0) -> int:
    """Show who leads, who votes, and how far each member has come."""
    from barnabas_broker.cli.commands.cluster import quorum as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.describe(bootstrap, timeout, as_json=as_json)
