"""The commands for one broker and its data, `barnabas broker` and `barnabas log`: names, options, help."""

from pathlib import Path
from typing import Annotated

import typer

from .options import PLAIN, Json

__all__ = ["broker", "log"]

broker = typer.Typer(help="Run one broker.", **PLAIN)
log = typer.Typer(help="Mend the data of a stopped broker.", **PLAIN)


@broker.command("run")
def broker_run(
    config: Annotated[
        Path | None, typer.Option(help="The broker's configuration, a TOML file.", metavar="FILE")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting (barnabas broker settings); may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Get the cluster's secret, if there is none, and write it into the file.", metavar="T"),
    ] = None,
) -> int:
    """Run one broker in the foreground until SIGTERM or Ctrl-C.

    Each setting can also be given in the environment, as BARNABAS_LOG_DIR gives log.dir. What --set says counts most,
    then the environment, then the file. All settings: barnabas broker settings.
    """
    # `entry` does this without typer; here it stands for --help, and for callers of `run`.
    from barnabas_broker.main import main  # noqa: PLC0415 - loaded by those who use it

    words = [word for one in settings or [] for word in ("--set", one)]
    words += ["--config", str(config)] if config is not None else []
    return main([*words, *(["--token", token] if token is not None else [])])


@broker.command("settings")
def broker_settings(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]")] = None, as_json: Json = False
) -> int:
    """Show what can be set for a broker: names, types, defaults, ranges, and what each is for.

    Without names, all settings; a part of a name (log.retention) shows all that have it.
    """
    from barnabas_broker.cli.commands import settings as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.show(names or [], as_json=as_json)


@log.callback()
def log_commands() -> None:
    """Keep `mend` a word of its own while there is no other."""


@log.command("mend")
def log_mend(
    directory: Annotated[
        list[Path], typer.Option(help="A broker's data directory (log.dir); may be repeated.", metavar="D")
    ],
    as_json: Json = False,
) -> int:
    """Take terms and indexes that no honest cluster reaches out of the data of stopped brokers; loses no record.

    Stop all brokers of the cluster first, mend every directory that does not start, then start all.
    """
    from barnabas_broker.cli.commands import log as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.mend(directory, as_json=as_json)
