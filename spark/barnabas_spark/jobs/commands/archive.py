"""`barnabas-spark archive`."""

from typing import Annotated

import typer

from barnabas_spark.jobs.app import app
from barnabas_spark.jobs.errors import UsageError
from barnabas_spark.jobs.options import (
    CODECS,
    FORMATS,
    ISOLATION_LEVELS,
    PARTITIONINGS,
    AcceptGap,
    Adopt,
    AsJson,
    Bootstrap,
    Compression,
    FileSize,
    Format,
    Isolation,
    Level,
    Master,
    PartitionBy,
    RoundSize,
    RowGroup,
    StoreOptions,
    To,
    Topic,
    one_of,
    pairs,
    size,
)

__all__ = ["archive"]

RestartTopic = Annotated[
    bool, typer.Option("--restart-topic", help="Archive a topic that was created again into the same table.")
]
Continuous = Annotated[bool, typer.Option("--continuous", help="Go on until SIGTERM.")]
Group = Annotated[
    str, typer.Option("--group", help="Store how far the table is in this consumer group, for tools that show lag.")
]
Interval = Annotated[float, typer.Option("--interval", help="Seconds between runs of --continuous.")]
BackfillFrom = Annotated[
    int | None, typer.Option("--from-offset", min=0, help="Fill holes from this offset on, and archive nothing else.")
]
BackfillTo = Annotated[int | None, typer.Option("--to-offset", min=1, help="Fill holes up to this offset, exclusive.")]
Holes = Annotated[bool, typer.Option("--holes", help="List what the table lacks between its ranges, and do no more.")]
Compact = Annotated[bool, typer.Option("--compact", help="Then replace small files by larger ones.")]
ValueSchema = Annotated[
    str,
    typer.Option(
        "--value-schema",
        metavar="DDL|@FILE",
        help="Decode JSON values: 'id bigint, name string', or a JSON schema's file.",
    ),
]
ValuePrefix = Annotated[str, typer.Option("--value-prefix", help="Before the names of new columns of the value.")]
Rejects = Annotated[
    str,
    typer.Option(
        "--rejects", metavar="DIR|URL", help="The table of values that do not fit; <to>_rejects if not given."
    ),
]
RemoveOrphans = Annotated[
    float | None,
    typer.Option("--remove-orphans", metavar="HOURS", help="Then delete files older than so, in no version."),
]


@app.command()
def archive(  # noqa: PLR0913, PLR0917 - one for each option
    topic: Topic,
    to: To,
    kind: Format = "parquet",
    bootstrap: Bootstrap = "localhost:9092",
    master: Master = "",
    partition_by: PartitionBy = "",
    compression: Compression = "zstd",
    level: Level = None,
    file_size: FileSize = "256m",
    row_group: RowGroup = "32m",
    round_size: RoundSize = "1g",
    accept_gap: AcceptGap = False,
    restart_topic: RestartTopic = False,
    adopt: Adopt = False,
    continuous: Continuous = False,
    interval: Interval = 10.0,
    group: Group = "",
    backfill_from: BackfillFrom = None,
    backfill_to: BackfillTo = None,
    holes: Holes = False,
    compact: Compact = False,
    remove_orphans: RemoveOrphans = None,
    value_schema: ValueSchema = "",
    value_prefix: ValuePrefix = "",
    rejects: Rejects = "",
    store_options: StoreOptions = None,
    isolation_level: Isolation = "read_committed",
    as_json: AsJson = False,
) -> int:
    """Land a topic in a table, exactly once: files and offsets are one commit.

    The table ends where the topic ended when the run began. A run that failed, or was killed, is simply run again.
    """
    from barnabas_spark.jobs import archiving  # noqa: PLC0415 - loaded when it runs
    from barnabas_spark.lake.store import Location  # noqa: PLC0415 - loaded when it runs
    from barnabas_spark.lake.writing import FileSettings  # noqa: PLC0415 - see above

    _check((kind, compression, partition_by, isolation_level), value_schema, value_prefix)
    job = archiving.ArchiveJob(
        topic,
        Location(to, pairs(store_options)),
        kind,
        bootstrap,
        master,
        FileSettings(compression, level, *_sizes(row_group, file_size), partition_by),
        size("--round-size", round_size),
        accept_gap,
        restart_topic,
        adopt,
        interval if continuous else None,
        as_json,
        _backfill(backfill_from, backfill_to, group),
        compact,
        None if remove_orphans is None else remove_orphans * 3600,
        archiving.ValueOptions(value_schema, value_prefix, rejects),
        group,
        isolation_level,
    )
    return archiving.show_holes(job) if holes else archiving.run_archive(job)


def _sizes(row_group: str, file_size: str) -> tuple[int, int]:
    return size("--row-group-size", row_group), size("--file-size", file_size)


def _check(words: tuple[str, str, str, str], value_schema: str, value_prefix: str) -> None:
    kind, compression, partition_by, isolation_level = words
    one_of("--isolation-level", isolation_level, ISOLATION_LEVELS)
    one_of("--format", kind, FORMATS)
    one_of("--compression", compression, CODECS)
    one_of("--partition-by", partition_by, ("", *PARTITIONINGS))
    if value_prefix and not value_schema:
        raise UsageError("--value-prefix is for new columns: it needs --value-schema")


def _backfill(start_offset: int | None, end_offset: int | None, group: str) -> tuple[int, int] | None:
    if start_offset is None and end_offset is None:
        return None
    if group:
        raise UsageError("--group shows the end of the table, which --from-offset and --to-offset do not move")
    between = (start_offset or 0, 2**63 - 1 if end_offset is None else end_offset)
    if between[0] >= between[1]:
        raise UsageError(f"--from-offset {between[0]} is not before --to-offset {between[1]}")
    return between
