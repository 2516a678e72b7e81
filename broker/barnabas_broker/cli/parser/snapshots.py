"""The commands of `barnabas snapshot`: names, options, help."""

from typing import Annotated

import typer

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout

__all__ = ["snapshot"]

snapshot = typer.Typer(help="Name the offsets that topics have now, list, show and delete such names.", **PLAIN)


@snapshot.command("create")
def snapshot_create(
    new_name: Annotated[str, typer.Argument(metavar="NAME")],
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC")],
    bootstrap: Bootstrap = DEFAULT,
    best_effort: Annotated[
        bool, typer.Option("--best-effort", help="Also of compacted topics, which may lose records unnoticed.")
    ] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Keep under a name which records topics have now, to be read again by it; the records are not kept by that."""
    from barnabas_broker.cli.commands import snapshot as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.create(bootstrap, new_name, topics, timeout, best_effort=best_effort, as_json=as_json)


@snapshot.command("list")
def snapshot_list(bootstrap: Bootstrap = DEFAULT, as_json: Json = False, timeout: Timeout = 30.0) -> int:
    """List the snapshots: when they were made, and of which topics."""
    from barnabas_broker.cli.commands import snapshot as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.list_(bootstrap, timeout, as_json=as_json)


@snapshot.command("show")
def snapshot_show(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Show the offsets in a snapshot, and what is left of them."""
    from barnabas_broker.cli.commands import snapshot as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.show(bootstrap, name, timeout, as_json=as_json)


@snapshot.command("delete")
def snapshot_delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME")],
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Delete snapshots; no record is deleted by that."""
    from barnabas_broker.cli.commands import snapshot as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.delete(bootstrap, names, timeout, as_json=as_json)
