"""The commands of `barnabas cluster`: names, options, help."""

from pathlib import Path
from typing import Annotated

import typer

from .options import PLAIN, Data, Json, Timeout

__all__ = ["cluster"]

cluster = typer.Typer(help="Run a cluster on this machine.", **PLAIN)


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
