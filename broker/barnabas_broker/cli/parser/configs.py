"""The commands of `barnabas config`: names, options, help."""

from typing import Annotated

import typer

from barnabas_broker.cli.limits import BROKER_ID_MAX

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout

__all__ = ["config"]

config = typer.Typer(help="Show and change the configurations of topics, brokers and groups.", **PLAIN)

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Of this topic; may be repeated.", metavar="TOPIC")
]
Brokers = Annotated[
    list[int] | None,
    typer.Option("--broker", help="Of the broker of this id; may be repeated.", metavar="ID", min=0, max=BROKER_ID_MAX),
]
AllBrokers = Annotated[
    bool, typer.Option("--all-brokers", help="What is set for all brokers while they run; --broker comes before it.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="Of this group; may be repeated.", metavar="GROUP")
]
ClientMetrics = Annotated[
    list[str] | None,
    typer.Option("--client-metrics", help="Of this subscription to clients' metrics; may be repeated.", metavar="NAME"),
]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these configurations.")]
Changed = Annotated[bool, typer.Option("--changed", help="Only what somebody has set.")]


@config.command("list")
def config_list(  # noqa: PLR0913, PLR0917 - one for each option
    names: Names = None,
    topic: Topics = None,
    broker: Brokers = None,
    all_brokers: AllBrokers = False,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    changed: Changed = False,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """List configurations, with where each value comes from."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.show(
        bootstrap,
        commands.Whose(topic or [], broker or [], group or [], all_brokers, client_metrics or []),
        names or [],
        timeout,
        changed_only=changed,
        with_documentation=False,
        as_json=as_json,
    )


@config.command("describe")
def config_describe(  # noqa: PLR0913, PLR0917 - one for each option
    names: Names = None,
    topic: Topics = None,
    broker: Brokers = None,
    all_brokers: AllBrokers = False,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    changed: Changed = False,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Explain configurations: the value, where it comes from, the default, and what it is for."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.show(
        bootstrap,
        commands.Whose(topic or [], broker or [], group or [], all_brokers, client_metrics or []),
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
    all_brokers: AllBrokers = False,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Set configurations. Of brokers those can be set that they do not read when they start."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    whose = commands.Whose(topic or [], broker or [], group or [], all_brokers, client_metrics or [])
    return commands.change(bootstrap, whose, assignments, timeout, unset=False, as_json=as_json)


@config.command("unset")
def config_unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME")],
    topic: Topics = None,
    broker: Brokers = None,
    all_brokers: AllBrokers = False,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Take configurations back to their defaults."""
    from barnabas_broker.cli.commands import config as commands  # noqa: PLC0415 - loaded by those who use it

    whose = commands.Whose(topic or [], broker or [], group or [], all_brokers, client_metrics or [])
    return commands.change(bootstrap, whose, names, timeout, unset=True, as_json=as_json)
