"""The commands of `barnabas profile`: names, options, help."""

from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT, PLAIN, VARIABLE, Json, timeout_s

__all__ = ["profile"]

profile = typer.Typer(help="Keep clusters' addresses under names.", **PLAIN)

Name = Annotated[str, typer.Argument(metavar="NAME")]
MaybeName = Annotated[str | None, typer.Argument(metavar="NAME")]


def _checked(said: str | None) -> str | None:
    if said is not None:
        timeout_s(said)
    return said


@profile.command("set")
def profile_set(
    name: Name,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-server", "-b", help="Brokers to start from.", metavar="HOST:PORT")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(help="How long commands wait before giving up.", metavar="S", callback=_checked)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The directory of a cluster on this machine.", metavar="DIR")
    ] = None,
    as_json: Json = False,
) -> int:
    """Create a profile, or change one. The first one is in use at once."""
    from barnabas_broker.cli.commands import profile as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.set_(name, bootstrap, timeout, data, as_json=as_json)


@profile.command("use")
def profile_use(
    name: MaybeName = None,
    nothing: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
    as_json: Json = False,
) -> int:
    """Take the address from this profile, where no option and no variable gives one."""
    from barnabas_broker.cli.commands import profile as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.use(name, nothing=nothing, as_json=as_json)


@profile.command("list")
def profile_list(as_json: Json = False) -> int:
    """List the profiles; a star marks the one in use."""
    from barnabas_broker.cli.commands import profile as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.list_(as_json=as_json)


@profile.command("show")
def profile_show(name: MaybeName = None, as_json: Json = False) -> int:
    """Show a profile; or what commands take now, and whether a variable, the profile or nobody says so."""
    from barnabas_broker.cli.commands import profile as commands  # noqa: PLC0415 - loaded by those who use it

    defaults = {"bootstrap-server": DEFAULT, "timeout": "30s"}
    return commands.show(name, defaults, {"bootstrap-server": VARIABLE}, as_json=as_json)


@profile.command("delete")
def profile_delete(name: Name, as_json: Json = False) -> int:
    """Forget a profile. Its cluster stays as it is."""
    from barnabas_broker.cli.commands import profile as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.delete(name, as_json=as_json)
