"""The commands of `barnabas`, gathered. Each imports its work, from `commands/`, when it runs."""

from collections.abc import Sequence

import typer

from barnabas_broker.cli import errors

from .bench import bench
from .brokers import broker, log
from .check import check
from .clusters import cluster
from .configs import config
from .groups import group
from .options import PLAIN
from .reassign import reassign
from .streams import consume, produce
from .topics import topic

__all__ = ["app", "run"]

app = typer.Typer(help="An event-streaming broker that speaks the Kafka protocol.", **PLAIN)  # type: ignore[arg-type]
app.add_typer(cluster, name="cluster")
app.add_typer(broker, name="broker")
app.add_typer(log, name="log")
app.add_typer(topic, name="topic")
app.add_typer(config, name="config")
app.add_typer(group, name="group")
app.add_typer(bench, name="bench")
app.command("produce")(produce)
app.command("consume")(consume)
app.command("reassign")(reassign)
app.command("check")(check)


def run(arguments: Sequence[str]) -> int:
    """Parse and run one command; a command line that makes no sense becomes one line on stderr."""
    if len(arguments) < 2 and not (arguments and arguments[0].startswith("-")):
        # `barnabas`, `barnabas topic`: half a command asks what the other half may be.
        arguments = [*arguments, "--help"]
    try:
        # Without standalone mode typer hands its exceptions over instead of printing several lines for each.
        status = typer.main.get_command(app).main(list(arguments), "barnabas", standalone_mode=False)
    except typer.Abort:
        return 130
    except typer.TyperException as error:
        return errors.report(error.format_message(), 2)
    return status if isinstance(status, int) else 0
