"""The commands of `barnabas features`: names, options, help."""

from typing import Annotated

import typer

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout

__all__ = ["features"]

features = typer.Typer(help="Show and change what the whole cluster speaks on which level.", **PLAIN)

Levels = Annotated[list[str], typer.Argument(metavar="FEATURE=LEVEL")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say whether it could be done.")]


@features.command("describe")
def features_describe(bootstrap: Bootstrap = DEFAULT, as_json: Json = False, timeout: Timeout = 30.0) -> int:
    """Show the level of each feature, and those that the brokers know."""
    from barnabas_broker.cli.commands import features as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.describe(bootstrap, timeout, as_json=as_json)


@features.command("upgrade")
def features_upgrade(
    levels: Levels, bootstrap: Bootstrap = DEFAULT, dry_run: DryRun = False, timeout: Timeout = 30.0
) -> int:
    """Raise levels, all or none; every broker must know them."""
    from barnabas_broker.cli.commands import features as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.upgrade(bootstrap, levels, timeout, dry_run=dry_run)


@features.command("downgrade")
def features_downgrade(
    levels: Levels,
    bootstrap: Bootstrap = DEFAULT,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Also where data is lost by it.")] = False,
    dry_run: DryRun = False,
    timeout: Timeout = 30.0,
) -> int:
    """Lower levels, all or none; 0 switches a feature off."""
    from barnabas_broker.cli.commands import features as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.downgrade(bootstrap, levels, timeout, unsafe=unsafe, dry_run=dry_run)
