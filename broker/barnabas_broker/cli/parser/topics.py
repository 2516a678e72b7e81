"""The commands of `barnabas topic`: names, options, help."""

from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout, Topic

__all__ = ["topic"]

topic = typer.Typer(help="Create, list, describe, alter and delete topics.", **PLAIN)


@topic.command("create")
def topic_create(
    name: Topic,
    bootstrap: Bootstrap = DEFAULT,
    partitions: Annotated[int, typer.Option(help="Number of partitions; -1: the cluster's default.", metavar="N")] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Number of replicas; -1: the cluster's default.", metavar="R")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option(help="A topic configuration; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic is there.")] = False,
    timeout: Timeout = 30.0,
) -> int:
    """Create a topic, and return when every partition has a leader."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.create(
        bootstrap, name, partitions, replication_factor, config or [], timeout, if_not_exists=if_not_exists
    )


@topic.command("list")
def topic_list(
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Only users' topics.")] = False,
    timeout: Timeout = 30.0,
) -> int:
    """List the topics by name."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.list_(bootstrap, timeout, as_json=as_json, include_internal=not exclude_internal)


@topic.command("describe")
def topic_describe(name: Topic, bootstrap: Bootstrap = DEFAULT, as_json: Json = False, timeout: Timeout = 30.0) -> int:
    """Show a topic's partitions (leaders, replicas, offsets) and its configurations."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.describe(bootstrap, name, timeout, as_json=as_json)


@topic.command("alter")
def topic_alter(
    name: Topic,
    bootstrap: Bootstrap = DEFAULT,
    partitions: Annotated[
        int | None, typer.Option(help="New number of partitions; never fewer than now.", metavar="N")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(help="A topic configuration; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(help="Take one back to the cluster's default; may be repeated.", metavar="NAME"),
    ] = None,
    timeout: Timeout = 30.0,
) -> int:
    """Give a topic more partitions (keyed records may then go to another one), or configure it differently."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.alter(bootstrap, name, partitions, config or [], delete_config or [], timeout)


@topic.command("observers")
def topic_observers(
    name: Topic,
    bootstrap: Bootstrap = DEFAULT,
    brokers: Annotated[
        str | None, typer.Option(help="Ids of its observers, with commas; '' for none.", metavar="4,5")
    ] = None,
    timeout: Timeout = 30.0,
) -> int:
    """Set the brokers that keep a copy of a topic for consumers in their rack, and never lead; or show them."""
    from barnabas_broker.cli.commands import reassign as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.observers(bootstrap, name, brokers, timeout)


@topic.command("give-up-voter")
def topic_give_up_voter(
    name: Topic,
    partition: Annotated[int, typer.Option(help="The partition.", metavar="P", min=0)],
    voter: Annotated[int, typer.Option(help="The broker that never comes back.", metavar="ID")],
    config: Annotated[
        Path, typer.Option(help="Any broker's configuration: it has all addresses, and the secret.", metavar="FILE")
    ],
    accept_data_loss: Annotated[
        bool, typer.Option("--accept-data-loss", help="Do it; without this the command only says what would be lost.")
    ] = False,
    as_json: Json = False,
    timeout: Timeout = 15.0,
) -> int:
    """Let a page-cache partition elect a leader without a replica that is gone for good; may lose records."""
    from barnabas_broker.cli.commands import give_up_voter as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.give_up(name, partition, voter, config, timeout, accepted=accept_data_loss, as_json=as_json)


@topic.command("delete-records")
def topic_delete_records(
    name: Topic,
    bootstrap: Bootstrap = DEFAULT,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="P", min=0)
    ] = None,
    before_offset: Annotated[int | None, typer.Option(help="Delete records before this offset.", metavar="N")] = None,
    before_time: Annotated[str | None, typer.Option(help="Delete records older than this.", metavar="T")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    timeout: Timeout = 30.0,
) -> int:
    """Delete records from the beginning of a topic's partitions; nothing brings them back."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.delete_records(
        bootstrap, name, partition or [], before_offset, before_time, timeout, everything=everything
    )


@topic.command("delete")
def topic_delete(
    name: Topic,
    bootstrap: Bootstrap = DEFAULT,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic is not there.")] = False,
    timeout: Timeout = 30.0,
) -> int:
    """Delete a topic and everything in it."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.delete(bootstrap, name, timeout, if_exists=if_exists)
