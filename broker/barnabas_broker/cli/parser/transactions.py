"""The commands of `barnabas txn`: names, options, help."""

from typing import Annotated

import typer

from barnabas_broker.cli.limits import BROKER_ID_MAX, OFFSET_MAX, PARTITION_MAX

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout, Topic

__all__ = ["txn"]

txn = typer.Typer(help="Look at transactions, find those that hang, and abort them.", **PLAIN)

Partition = Annotated[int, typer.Argument(metavar="PARTITION", min=0, max=PARTITION_MAX)]


@txn.command("list")
def txn_list(
    bootstrap: Bootstrap = DEFAULT,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only ids in this state (Ongoing, PrepareCommit, ...); may be repeated.", metavar="STATE"),
    ] = None,
    producer: Annotated[
        list[int] | None,
        typer.Option(help="Only the id of this producer; may be repeated.", metavar="ID", min=0, max=OFFSET_MAX),
    ] = None,
    regex: Annotated[
        list[str] | None,
        typer.Option(help="Ids that match this as a whole; may be repeated.", metavar="PATTERN"),
    ] = None,
    longer_than: Annotated[
        str | None, typer.Option(help="Only transactions that began longer ago, as 90s, 15m.", metavar="DURATION")
    ] = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """List the transactional ids: their producers, states and coordinators."""
    from barnabas_broker.cli.commands.txn import listing  # noqa: PLC0415 - loaded by those who use it

    return listing.list_(bootstrap, timeout, state or [], producer or [], regex or [], longer_than, as_json=as_json)


@txn.command("describe")
def txn_describe(
    names: Annotated[list[str], typer.Argument(metavar="ID")],
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Show transactional ids: state, producer, timeout, how long the transaction is open, and its partitions."""
    from barnabas_broker.cli.commands.txn import description  # noqa: PLC0415 - loaded by those who use it

    return description.describe(bootstrap, names, timeout, as_json=as_json)


@txn.command("producers")
def txn_producers(
    topic: Topic, partition: Partition, bootstrap: Bootstrap = DEFAULT, as_json: Json = False, timeout: Timeout = 30.0
) -> int:
    """Show the producers that a partition remembers, and since which offset each has a transaction open."""
    from barnabas_broker.cli.commands.txn import description  # noqa: PLC0415 - loaded by those who use it

    return description.producers(bootstrap, topic, partition, timeout, as_json=as_json)


@txn.command("why")
def txn_why(
    topic: Topic, partition: Partition, bootstrap: Bootstrap = DEFAULT, as_json: Json = False, timeout: Timeout = 30.0
) -> int:
    """Say which transaction holds readers of committed records back in a partition, since when and until when."""
    from barnabas_broker.cli.commands.txn import holding  # noqa: PLC0415 - loaded by those who use it

    return holding.why(bootstrap, topic, partition, timeout, as_json=as_json)


@txn.command("find-hanging")
def txn_find_hanging(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC[:P,...]")] = None,
    bootstrap: Bootstrap = DEFAULT,
    broker: Annotated[
        int | None,
        typer.Option(help="Only partitions that this broker leads.", metavar="ID", min=0, max=BROKER_ID_MAX),
    ] = None,
    longer_than: Annotated[
        str, typer.Option(help="Only where the producer's last batch is older.", metavar="DURATION")
    ] = "15m",
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Find transactions that are open in a partition and that no coordinator is going to end, in all topics or some."""
    from barnabas_broker.cli.commands.txn import hanging  # noqa: PLC0415 - loaded by those who use it

    return hanging.find(bootstrap, topics or [], broker, longer_than, timeout, as_json=as_json)


@txn.command("abort")
def txn_abort(
    topic: Topic,
    partition: Partition,
    bootstrap: Bootstrap = DEFAULT,
    start_offset: Annotated[
        int | None,
        typer.Option(help="The transaction that begins at this offset.", metavar="N", min=0, max=OFFSET_MAX),
    ] = None,
    producer: Annotated[
        int | None, typer.Option(help="The transaction of this producer.", metavar="ID", min=0, max=OFFSET_MAX)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if a coordinator knows it, which may commit the rest of it.")
    ] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Abort a transaction that hangs, in one partition."""
    from barnabas_broker.cli.commands.txn import aborting  # noqa: PLC0415 - loaded by those who use it

    return aborting.abort(bootstrap, topic, partition, start_offset, producer, timeout, force=force, as_json=as_json)
