"""The commands of `barnabas`: names, options, help. Each imports its work, from `commands/`, when it runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from barnabas_broker.cli import errors

from .groups import group
from .options import PLAIN, Bootstrap, Data, Json, Timeout, Topic
from .reassign import reassign
from .streams import consume, produce

__all__ = ["app", "run"]

app = typer.Typer(help="An event-streaming broker that speaks the Kafka protocol.", **PLAIN)  # type: ignore[arg-type]
cluster = typer.Typer(help="Run a cluster on this machine.", **PLAIN)  # type: ignore[arg-type]
broker = typer.Typer(help="Run one broker.", **PLAIN)  # type: ignore[arg-type]
log = typer.Typer(help="Mend the data of a stopped broker.", **PLAIN)  # type: ignore[arg-type]
topic = typer.Typer(help="Create, list, describe, alter and delete topics.", **PLAIN)  # type: ignore[arg-type]
app.add_typer(cluster, name="cluster")
app.add_typer(broker, name="broker")
app.add_typer(log, name="log")
app.add_typer(topic, name="topic")
app.add_typer(group, name="group")
app.command("produce")(produce)
app.command("consume")(consume)
app.command("reassign")(reassign)


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


@cluster.command("start")
def cluster_start(  # noqa: PLR0913, PLR0917 - one for each option
    data: Data,
    brokers: Annotated[int | None, typer.Option(help="Number of brokers of a new cluster (3).", metavar="N")] = None,
    port: Annotated[
        int | None, typer.Option(help="Broker 1 serves clients here (9092), broker 2 on the next.", metavar="P")
    ] = None,
    peer_port: Annotated[
        int | None, typer.Option(help="The same for traffic between brokers, TCP and UDP (P + 1000).", metavar="P")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on (127.0.0.1).", metavar="H")] = None,
    brokers_per_host: Annotated[
        str | None, typer.Option(help="Number of brokers on each host; auto: one for each core.", metavar="N|auto")
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(help="All machines of the cluster, the same on each; --host is one.", metavar="H,H")
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option(help="The cluster's id, which several hosts must agree on.", metavar="ID")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="The token that `cluster token` has printed on a machine with the secret.", metavar="T"),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A broker setting; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when the cluster is ready.")] = False,
    timeout: Timeout = 60.0,
) -> int:
    """Start a cluster, or those of its brokers that are down. Ctrl-C stops those that were started."""
    from barnabas_broker.cli.commands import cluster as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.start(
        data,
        brokers,
        port,
        peer_port,
        host,
        settings or [],
        timeout,
        detach=detach,
        brokers_per_host=brokers_per_host,
        hosts=hosts,
        cluster_id=cluster_id,
        token=token,
    )


@cluster.command("token")
def cluster_token(
    data: Annotated[Path | None, typer.Option(help="The cluster's directory on this machine.", metavar="DIR")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Or a broker's configuration, a TOML file.", metavar="FILE")
    ] = None,
    valid_for: Annotated[
        int, typer.Option("--valid-for", help="Seconds until it is worthless.", min=1, max=86_400, metavar="S")
    ] = 600,
) -> int:
    """Print a one-time token: with it another machine of the cluster gets the secret from a broker of this one."""
    from barnabas_broker.cli.commands import token as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.issue(data, config, valid_for)


@cluster.command("stop")
def cluster_stop(data: Data, timeout: Timeout = 15.0) -> int:
    """Stop every broker of a cluster on this machine; one that does not end within the timeout is killed."""
    from barnabas_broker.cli.commands import cluster as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.stop(data, timeout)


@cluster.command("status")
def cluster_status(
    data: Data,
    as_json: Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show fetches, recent events, the loop and counters.")
    ] = False,
) -> int:
    """Show what a cluster's brokers are doing; works when some are down."""
    from barnabas_broker.cli.commands import cluster as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.status(data, as_json=as_json, verbose=verbose)


@broker.command("run")
def broker_run(
    config: Annotated[Path, typer.Option(help="The broker's configuration, a TOML file.", metavar="FILE")],
    token: Annotated[
        str | None,
        typer.Option(help="Get the cluster's secret, if the file has none, and write it there.", metavar="T"),
    ] = None,
) -> int:
    """Run one broker in the foreground until SIGTERM or Ctrl-C."""
    # cli.main does this without typer; here it stands for --help, and for callers of `run`.
    from barnabas_broker.main import main  # noqa: PLC0415 - loaded by those who use it

    return main(["--config", str(config), *(["--token", token] if token is not None else [])])


@log.callback()
def log_commands() -> None:
    """Keep `mend` a word of its own while there is no other."""


@log.command("mend")
def log_mend(
    directory: Annotated[
        list[Path], typer.Option(help="A broker's data directory (log.dir); may be repeated.", metavar="D")
    ],
) -> int:
    """Take terms and indexes that no honest cluster reaches out of the data of stopped brokers; loses no record.

    Stop all brokers of the cluster first, mend every directory that does not start, then start all.
    """
    from barnabas_broker.cli.commands import log as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.mend(directory)


@app.command("check")
def check(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help="JSON lines; - reads standard input.")],
    as_json: Json = False,
    limit: Annotated[int, typer.Option(help="Print at most this many violations.", metavar="N", min=1)] = 20,
) -> int:
    """Judge a history of what clients did and saw: was anything lost, doubled, reordered or taken back?

    Exit status: 0 all promises were kept, 1 some were not, 2 the history makes no sense.
    """
    from barnabas_broker.cli.commands import check as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.check(history, limit, as_json=as_json)


@topic.command("create")
def topic_create(
    name: Topic,
    bootstrap: Bootstrap,
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
    bootstrap: Bootstrap,
    as_json: Json = False,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Only users' topics.")] = False,
    timeout: Timeout = 30.0,
) -> int:
    """List the topics by name."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.list_(bootstrap, timeout, as_json=as_json, include_internal=not exclude_internal)


@topic.command("describe")
def topic_describe(name: Topic, bootstrap: Bootstrap, as_json: Json = False, timeout: Timeout = 30.0) -> int:
    """Show a topic's partitions (leaders, replicas, offsets) and its configurations."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.describe(bootstrap, name, timeout, as_json=as_json)


@topic.command("alter")
def topic_alter(
    name: Topic,
    bootstrap: Bootstrap,
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
    bootstrap: Bootstrap,
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
    bootstrap: Bootstrap,
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
    bootstrap: Bootstrap,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic is not there.")] = False,
    timeout: Timeout = 30.0,
) -> int:
    """Delete a topic and everything in it."""
    from barnabas_broker.cli.commands import topic as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.delete(bootstrap, name, timeout, if_exists=if_exists)
