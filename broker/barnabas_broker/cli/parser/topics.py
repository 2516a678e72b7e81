"""The commands of `barnabas topic`: names, options, help."""

from pathlib import Path
from typing import Annotated

import typer

from barnabas_broker.cli.limits import OFFSET_MAX, PARTITION_MAX

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout, Topic

__all__ = ["topic"]

topic = typer.Typer(help="Create, list, describe, alter and delete topics.", **PLAIN)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC")]
SomeNames = Annotated[list[str] | None, typer.Argument(metavar="TOPIC")]
Regex = Annotated[
    list[str] | None,
    typer.Option("--regex", "-r", help="Topics whose whole name matches this; may be repeated.", metavar="PATTERN"),
]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", help="A topic configuration, as in retention.ms=7d; may be repeated.", metavar="NAME=VALUE"
    ),
]


@topic.command("create")
def topic_create(
    names: Names,
    bootstrap: Bootstrap = DEFAULT,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            help="Number of partitions; -1: the cluster's default.",
            metavar="N",
            max=PARTITION_MAX,
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option("--replication-factor", "-r", help="Number of replicas; -1: the cluster's default.", metavar="R"),
    ] = -1,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic is there.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Create topics, and return when every partition has a leader."""
    from barnabas_broker.cli.commands.topic import changes  # noqa: PLC0415 - loaded by those who use it

    return changes.create(
        bootstrap,
        names,
        partitions,
        replication_factor,
        config or [],
        timeout,
        if_not_exists=if_not_exists,
        as_json=as_json,
    )


@topic.command("list")
def topic_list(
    names: SomeNames = None,
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only topics with a partition that has a replica too few.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only topics with a partition that has no leader.")
    ] = False,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Only users' topics.")] = False,
    names_only: Annotated[bool, typer.Option("--names-only", help="Only the names, with a single request.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """List topics: partitions, replicas, records, bytes, and what is missing."""
    from barnabas_broker.cli.commands.topic import listing  # noqa: PLC0415 - loaded by those who use it

    return listing.list_(
        bootstrap,
        timeout,
        names or [],
        regex or [],
        as_json=as_json,
        names_only=names_only,
        include_internal=not exclude_internal,
        under_replicated=under_replicated,
        unavailable=unavailable,
    )


@topic.command("describe")
def topic_describe(
    names: SomeNames = None,
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Show topics' partitions (leaders, replicas, offsets, bytes) and their configurations."""
    from barnabas_broker.cli.commands.topic import description  # noqa: PLC0415 - loaded by those who use it

    return description.describe(bootstrap, names or [], regex or [], timeout, as_json=as_json)


@topic.command("alter")
def topic_alter(
    names: SomeNames = None,
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", help="New number of partitions; never fewer than now.", metavar="N", max=PARTITION_MAX
        ),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(help="Take one back to the cluster's default; may be repeated.", metavar="NAME"),
    ] = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Give topics more partitions (keyed records may then go to another one), or configure them differently."""
    from barnabas_broker.cli.commands.topic import changes  # noqa: PLC0415 - loaded by those who use it

    return changes.alter(
        bootstrap,
        names or [],
        regex or [],
        partitions,
        config or [],
        delete_config or [],
        timeout,
        as_json=as_json,
    )


@topic.command("observers")
def topic_observers(
    names: Names,
    bootstrap: Bootstrap = DEFAULT,
    brokers: Annotated[
        str | None, typer.Option(help="Ids of its observers, with commas; '' for none.", metavar="4,5")
    ] = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Set the brokers that keep a copy of a topic for consumers in their rack, and never lead; or show them."""
    from barnabas_broker.cli.commands import reassign as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.observers(bootstrap, names, brokers, timeout, as_json=as_json)


@topic.command("elect")
def topic_elect(
    names: SomeNames = None,
    bootstrap: Bootstrap = DEFAULT,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", help="Only this partition; may be repeated.", metavar="P", min=0, max=PARTITION_MAX
        ),
    ] = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Have partitions led by the first of their replicas: those of these topics, or all."""
    from barnabas_broker.cli.commands.topic import elections  # noqa: PLC0415 - loaded by those who use it

    return elections.elect(bootstrap, names or [], partition or [], timeout, as_json=as_json)


@topic.command("give-up-voter")
def topic_give_up_voter(
    name: Topic,
    partition: Annotated[int, typer.Option(help="The partition.", metavar="P", min=0, max=PARTITION_MAX)],
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
    from barnabas_broker.cli.commands.topic import give_up_voter as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.give_up(name, partition, voter, config, timeout, accepted=accept_data_loss, as_json=as_json)


@topic.command("delete-records")
def topic_delete_records(
    names: Names,
    bootstrap: Bootstrap = DEFAULT,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", help="Only this partition; may be repeated.", metavar="P", min=0, max=PARTITION_MAX
        ),
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option(help="Delete records before this offset.", metavar="N", max=OFFSET_MAX)
    ] = None,
    before_time: Annotated[str | None, typer.Option(help="Delete records older than this.", metavar="T")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Delete records from the beginning of topics' partitions; nothing brings them back."""
    from barnabas_broker.cli.commands.topic import records  # noqa: PLC0415 - loaded by those who use it

    return records.delete_records(
        bootstrap,
        names,
        partition or [],
        before_offset,
        before_time,
        timeout,
        everything=everything,
        dry_run=dry_run,
        as_json=as_json,
    )


@topic.command("delete")
def topic_delete(
    names: SomeNames = None,
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic is not there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Delete topics and everything in them."""
    from barnabas_broker.cli.commands.topic import changes  # noqa: PLC0415 - loaded by those who use it

    return changes.delete(
        bootstrap, names or [], regex or [], timeout, if_exists=if_exists, dry_run=dry_run, as_json=as_json
    )
