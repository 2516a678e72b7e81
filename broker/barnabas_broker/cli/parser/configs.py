"""The commands of `barnabas config`: names, options, help."""

from typing import Annotated

import typer

from barnabas_broker.cli.limits import BROKER_ID_MAX

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout

__all__ = ["config"]

config = typer.Typer(help="Show and change the configurations of topics and brokers.", **PLAIN)

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Of this topic; may be repeated.", metavar="TOPIC")
]
Brokers = Annotated[
    list[int] | None,
    typer.Option("--broker", help="Of the broker of this id; may be repeated.", metavar="ID", min=0, max=BROKER_ID_MAX),
]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these configurations.")]
Changed = Annotated[bool, typer.Option("--changed", help="Only what somebody has set.")]


@config.command("list")
def config_list(
    names: Names = None,
    topic: Topics = None,
    broker: Brokers = None,
    changed: Changed = False,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """List configurations, with where each value comes from."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.show(
        bootstrap,
        topic or [],
        broker or [],
        names or [],
        timeout,
        changed_only=changed,
        with_documentation=False,
        as_json=as_json,
    )


@config.command("describe")
def config_describe(
    names: Names = None,
    topic: Topics = None,
    broker: Brokers = None,
    changed: Changed = False,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Explain configurations: the value, where it comes from, the default, and what it is for."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.show(
        bootstrap,
        topic or [],
        broker or [],
        names or [],
        timeout,
        changed_only=changed,
        with_documentation=True,
        as_json=as_json,
    )


@config.command("set")
def config_set(
    assignments: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="As in retention.ms=7d.")],
    topic: Topics = None,
    broker: Brokers = None,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Set configurations of topics. Brokers read theirs when they start."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.change(bootstrap, topic or [], broker or [], assignments, timeout, unset=False, as_json=as_json)


@config.command("unset")
def config_unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME")],
    topic: Topics = None,
    broker: Brokers = None,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Take configurations of topics back to their defaults."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.change(bootstrap, topic or [], broker or [], names, timeout, unset=True, as_json=as_json)
