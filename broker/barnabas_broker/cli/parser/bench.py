"""The commands of `barnabas bench`: names, options, help."""

from typing import Annotated

import typer

from barnabas_broker.cli.limits import PARTITION_MAX

from .options import DEFAULT, PLAIN, Bootstrap, Json, Timeout

__all__ = ["bench"]

bench = typer.Typer(
    help="Measure a cluster with the clients of this project, on a topic of its own.",
    **PLAIN,
)

Named = Annotated[str | None, typer.Option("--topic", "-t", help="Use this topic, and keep it.", metavar="TOPIC")]
Partitions = Annotated[
    int, typer.Option("--partitions", help="Partitions of a new topic.", metavar="N", min=1, max=PARTITION_MAX)
]
Replicas = Annotated[
    int, typer.Option("--replication-factor", help="Replicas of a new topic; -1: the cluster's default.", metavar="N")
]
Records = Annotated[
    int, typer.Option("--records", "-n", help="How many records.", metavar="N", min=1, max=1_000_000_000)
]
RecordSize = Annotated[str, typer.Option("--record-size", "-s", help="Size of a value: 100, 1KiB.", metavar="SIZE")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate", help="Records a second; without it as fast as it goes.", metavar="N", min=0.01, max=10_000_000
    ),
]
FixedRate = Annotated[float, typer.Option("--rate", help="Records a second.", metavar="N", min=0.01, max=10_000_000)]
Acks = Annotated[str, typer.Option("--acks", help="Replicas that must have a record: all, 1 or 0.", metavar="ACKS")]
Compression = Annotated[
    str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.", metavar="TYPE")
]
BatchSize = Annotated[str, typer.Option("--batch-size", help="Largest batch of the producer.", metavar="SIZE")]
Linger = Annotated[str, typer.Option("--linger", help="How long a batch waits for more records: 5ms.", metavar="D")]


@bench.command("produce")
def bench_produce(  # noqa: PLR0913, PLR0917 - one for each option
    bootstrap: Bootstrap = DEFAULT,
    topic: Named = None,
    partitions: Partitions = 6,
    replication_factor: Replicas = -1,
    records: Records = 100_000,
    record_size: RecordSize = "1KiB",
    rate: Rate = None,
    acks: Acks = "all",
    compression: Compression = "none",
    batch_size: BatchSize = "64KiB",
    linger: Linger = "5ms",
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Measure how fast records are written, and how long each waits for its acknowledgement."""
    from barnabas_broker.cli.commands import bench as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.bench_produce(
        commands.BenchOrder(
            bootstrap=bootstrap,
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            records=records,
            record_size=record_size,
            rate=rate,
            acks=acks,
            compression=compression,
            batch_size=batch_size,
            linger=linger,
            as_json=as_json,
            timeout_s=timeout,
        )
    )


@bench.command("consume")
def bench_consume(
    bootstrap: Bootstrap = DEFAULT,
    topic: Named = None,
    partitions: Partitions = 6,
    replication_factor: Replicas = -1,
    records: Records = 100_000,
    record_size: RecordSize = "1KiB",
    compression: Compression = "none",
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Measure how fast records are read. Without --topic they are written first, which is not measured."""
    from barnabas_broker.cli.commands import bench as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.bench_consume(
        commands.BenchOrder(
            bootstrap=bootstrap,
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            records=records,
            record_size=record_size,
            compression=compression,
            as_json=as_json,
            timeout_s=timeout,
        )
    )


@bench.command("latency")
def bench_latency(  # noqa: PLR0913, PLR0917 - one for each option
    bootstrap: Bootstrap = DEFAULT,
    topic: Named = None,
    partitions: Partitions = 6,
    replication_factor: Replicas = -1,
    records: Records = 5_000,
    record_size: RecordSize = "100",
    rate: FixedRate = 500.0,
    acks: Acks = "all",
    compression: Compression = "none",
    linger: Linger = "0",
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Measure how long records take from their sender to its acknowledgement, and to a reader, at a steady rate."""
    from barnabas_broker.cli.commands import bench as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.bench_latency(
        commands.BenchOrder(
            bootstrap=bootstrap,
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            records=records,
            record_size=record_size,
            rate=rate,
            acks=acks,
            compression=compression,
            linger=linger,
            as_json=as_json,
            timeout_s=timeout,
        )
    )
