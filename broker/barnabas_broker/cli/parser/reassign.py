"""The command `barnabas reassign`: options and help. Its work is imported when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from barnabas_broker.cli.errors import UsageError

from .options import DEFAULT, Bootstrap, Json, Timeout

__all__ = ["reassign"]


def reassign(  # noqa: PLR0913, PLR0917 - one parameter is one option
    bootstrap: Bootstrap = DEFAULT,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC[:P,...]", help="Topics, or some of their partitions.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(help="Ids of the brokers that the partitions shall be on.", metavar="4,5,6")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(help="Replicas of each partition (as many as now).", metavar="R", min=1)
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="A plan as --json prints it, or Kafka's tool; - reads stdin.", metavar="FILE")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this the plan is only shown.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show the moves under way.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call moves off: of these topics, or all.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Come back when it is done.")] = True,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Move partitions to other brokers, while they are in use."""
    from barnabas_broker.cli.commands import reassign as commands  # noqa: PLC0415 - loaded by those who use it

    if execute + status + cancel > 1:
        raise UsageError("--execute, --status and --cancel exclude each other")
    if (status or cancel) and (brokers or plan or replication_factor):
        raise UsageError("--status and --cancel take topics and nothing else")
    if status:
        return commands.status(bootstrap, topics or [], timeout, as_json=as_json)
    if cancel:
        return commands.cancel(bootstrap, topics or [], timeout, wait=wait, as_json=as_json)
    return commands.move(
        bootstrap,
        topics or [],
        brokers,
        replication_factor,
        plan,
        timeout,
        execute=execute,
        wait=wait,
        as_json=as_json,
    )
