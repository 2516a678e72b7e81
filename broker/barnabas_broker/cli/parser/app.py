"""The commands of `barnabas`, gathered. Each imports its work, from `commands/`, when it runs."""

import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from barnabas_broker.cli import errors, profiles
from barnabas_raftlog.version import __version__

from .bench import bench
from .brokers import broker, log
from .check import check
from .clusters import cluster
from .completion import complete, completion, is_wanted
from .configs import config
from .conversions import convert_plainly
from .features import features
from .groups import group
from .options import PLAIN, context_settings
from .profile_defaults import defaults_of
from .profiles import profile
from .quorum import quorum
from .reassign import reassign
from .snapshots import snapshot
from .streams import consume, produce
from .topics import topic
from .transactions import txn

__all__ = ["app", "run"]

app = typer.Typer(help="An event-streaming broker that speaks the Kafka protocol.", **PLAIN)
app.add_typer(cluster, name="cluster")
app.add_typer(broker, name="broker")
app.add_typer(log, name="log")
app.add_typer(topic, name="topic")
app.add_typer(config, name="config")
app.add_typer(group, name="group")
app.add_typer(snapshot, name="snapshot")
app.add_typer(txn, name="txn")
app.add_typer(features, name="features")
app.add_typer(quorum, name="quorum")
app.add_typer(bench, name="bench")
app.command("produce")(produce)
app.command("consume")(consume)
app.command("reassign")(reassign)
app.add_typer(profile, name="profile")
app.command("completion")(completion)
app.command("check")(check)

HELP = {"-h", "--help"}


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"barnabas {__version__}")
        raise typer.Exit


@app.callback()
def barnabas(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """An event-streaming broker that speaks the Kafka protocol."""


def run(arguments: Sequence[str]) -> int:
    """Parse and run one command; a command line that makes no sense becomes one line on stderr."""
    if len(arguments) < 2 and not (arguments and arguments[0].startswith("-")):
        # `barnabas`, `barnabas topic`: half a command asks what the other half may be.
        arguments = [*arguments, "--help"]
    command = typer.main.get_command(app)
    settings = context_settings()
    convert_plainly(command, settings["help_option_names"])
    if (is_wanted() or not HELP & set(arguments)) and (
        os.environ.get(profiles.PROFILE_VARIABLE) or profiles.file_path().exists()
    ):
        settings["default_map"] = defaults_of(command, cache(lambda: profiles.in_use()[1]))
    if is_wanted():
        return complete(command, settings)
    try:
        # Without standalone mode typer hands its exceptions over instead of printing several lines for each.
        status = command.main(list(arguments), "barnabas", standalone_mode=False, **settings)
    except typer.Abort:
        return 130
    except typer.TyperException as error:
        return errors.report(_advised(error), 2)
    return status if isinstance(status, int) else 0


def _advised(error: Any) -> str:
    """Return what is wrong with a command line, and where to look if the parser does not say what is right."""
    text = str(error.format_message()).rstrip(".").replace("Value error, ", "")
    says_it = text.startswith("Invalid value") or "Did you mean" in text or "Possible options" in text
    context = getattr(error, "ctx", None)
    if says_it or context is None:
        return text
    # The parser compares whole names, and does not see that `reset` is the beginning of `reset-offsets`.
    wrong = re.match(r"No such command '(.+)'", text)
    begun = [name for name in getattr(context.command, "commands", ()) if wrong and name.startswith(wrong[1])]
    if begun:
        return f"{text}. Did you mean {begun[0]!r}?"
    needs = _needs(context.command.params) if text.startswith("Missing") else ""
    example = f"write {context.command_path} {needs}, or " if needs else ""
    return f"{text}; {example}see {context.command_path} -h"


def _needs(parameters: Sequence[Any]) -> str:
    """Return what a command cannot do without, as its help writes it."""
    words = []
    for each in parameters:
        if not each.required:
            continue
        value = str(each.metavar or each.name).upper()
        if each.param_type_name == "argument":
            words.append(value + ("..." if each.nargs == -1 and not value.endswith("...") else ""))
        else:
            words.append(f"{each.opts[0]} {value}")
    return " ".join(words)
