"""The commands of `barnabas cluster`: names, options, help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT, PLAIN, Bootstrap, Data, Json, Timeout

__all__ = ["cluster"]

Directory = Annotated[
    Path | None, typer.Option("--data", help="The cluster's directory on this machine.", metavar="DIR")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Or a broker's configuration, a TOML file.", metavar="FILE")
]
Brokers = Annotated[list[int] | None, typer.Option("--broker", help="Only this one; may be repeated.", metavar="N")]

cluster = typer.Typer(help="Run a cluster on this machine; look at one from any.", **PLAIN)


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
    as_json: Json = False,
    timeout: Timeout = 60.0,
) -> int:
    """Start a cluster, or those of its brokers that are down. Ctrl-C stops those that were started."""
    from barnabas_broker.cli.commands.cluster import start as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.start(
        data,
        brokers,
        port,
        peer_port,
        host,
        settings or [],
        timeout,
        detach=detach,
        as_json=as_json,
        brokers_per_host=brokers_per_host,
        hosts=hosts,
        cluster_id=cluster_id,
        token=token,
    )


@cluster.command("token")
def cluster_token(
    data: Directory = None,
    config: ConfigFile = None,
    valid_for: Annotated[
        int, typer.Option("--valid-for", help="Seconds until it is worthless.", min=1, max=86_400, metavar="S")
    ] = 600,
    as_json: Json = False,
) -> int:
    """Print a one-time token: with it another machine of the cluster gets the secret from a broker of this one."""
    from barnabas_broker.cli.commands.cluster import token as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.issue(data, config, valid_for, as_json=as_json)


@cluster.command("stop")
def cluster_stop(data: Data, brokers: Brokers = None, as_json: Json = False, timeout: Timeout = 15.0) -> int:
    """Stop the brokers of a cluster on this machine; one that does not end within the timeout is killed."""
    from barnabas_broker.cli.commands.cluster import stop as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.stop(data, brokers or [], timeout, as_json=as_json)


@cluster.command("restart")
def cluster_restart(data: Data, brokers: Brokers = None, as_json: Json = False, timeout: Timeout = 60.0) -> int:
    """Restart the brokers of a cluster on this machine, one after the other, each when the cluster is healthy."""
    from barnabas_broker.cli.commands.cluster import restart as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.restart(data, brokers or [], timeout, as_json=as_json)


@cluster.command("status")
def cluster_status(
    data: Directory = None,
    config: ConfigFile = None,
    as_json: Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show fetches, recent events, the loop and counters.")
    ] = False,
) -> int:
    """Show what a cluster's brokers are doing; works when some are down."""
    from barnabas_broker.cli.commands.watch import status as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.status(data, config, as_json=as_json, verbose=verbose)


class Accepted(StrEnum):
    """What `--accept` takes."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"


@cluster.command("unregister")
def cluster_unregister(
    broker: Annotated[int, typer.Argument(help="Its node id.", metavar="BROKER")],
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Have the cluster forget a broker that is away for good and holds nothing."""
    from barnabas_broker.cli.commands.cluster import quorum as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.unregister(bootstrap, broker, timeout, as_json=as_json)


@cluster.command("health")
def cluster_health(
    bootstrap: Bootstrap = DEFAULT,
    accept: Annotated[
        Accepted, typer.Option(help="The worst that exits with 0: `degraded` is for probes that only want service.")
    ] = Accepted.HEALTHY,
    as_json: Json = False,
    timeout: Timeout = 5.0,
) -> int:
    """Judge a cluster, from any machine: healthy, degraded (everything is served, something is lacking), or down.

    Exit status: 0 healthy, 1 degraded or down, 2 the command line makes no sense.
    """
    from barnabas_broker.cli.commands.watch import health as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.health(bootstrap, timeout, accept, as_json=as_json)


@cluster.command("events")
def cluster_events(  # noqa: PLR0913, PLR0917 - one for each option
    context: typer.Context,
    bootstrap: Bootstrap = DEFAULT,
    data: Directory = None,
    config: ConfigFile = None,
    topic: Annotated[str | None, typer.Option(help="Of this topic's partitions.", metavar="TOPIC")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Of kinds that begin so, such as leader, or 'broker fenced'.", metavar="KIND")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Not older: 15m, or a time such as 2026-11-21T10:00.", metavar="WHEN")
    ] = None,
    limit: Annotated[int, typer.Option(help="The newest so many.", metavar="N", min=1)] = 1_000,
    as_json: Json = False,
    timeout: Timeout = 5.0,
) -> int:
    """Tell what happened on all brokers of a cluster, and why, in order of time; from any machine that has its secret.

    The secret comes from --data or --config, and so does the address, unless --bootstrap-server is given.
    """
    from barnabas_broker.cli.commands.watch import events as commands  # noqa: PLC0415 - loaded by those who use it

    source = context.get_parameter_source("bootstrap")
    is_given = source is not None and source.name in {"COMMANDLINE", "ENVIRONMENT"}
    wanted = commands.Wanted(topic, kind, since, limit)
    return commands.events(bootstrap if is_given else None, data, config, wanted, timeout, as_json=as_json)
