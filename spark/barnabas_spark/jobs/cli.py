"""The command `barnabas-spark`: one subcommand a job. Each loads what it needs when it runs."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from .errors import UsageError, guarded
from .output import complain

__all__ = ["app", "main"]

FORMATS = ("parquet", "delta", "iceberg")
PARTITIONINGS = ("day", "hour")
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

app = typer.Typer(
    help="Jobs over topics and tables of a lake, on Spark.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
To = Annotated[str, typer.Option("--to", metavar="DIR|URL", help="Where the table is: a directory, s3://..., gs://...")]
Format = Annotated[str, typer.Option("--format", help="parquet, delta or iceberg.")]
Bootstrap = Annotated[
    str, typer.Option("--bootstrap-server", "-b", envvar="BARNABAS_BOOTSTRAP_SERVER", help="Brokers, as host:port,...")
]
Master = Annotated[str, typer.Option("--master", help="The Spark master; local[*] if nothing else is configured.")]
PartitionBy = Annotated[str, typer.Option("--partition-by", help="day or hour, of the timestamp in UTC.")]
Compression = Annotated[str, typer.Option("--compression", help="zstd, snappy, gzip, lz4 or none.")]
Level = Annotated[int | None, typer.Option("--compression-level", help="Of zstd or gzip.")]
FileSize = Annotated[str, typer.Option("--file-size", help="Finish a file at this size.")]
RowGroup = Annotated[str, typer.Option("--row-group-size", help="Plain bytes of a row group.")]
RoundSize = Annotated[str, typer.Option("--round-size", help="Plain bytes of a commit, over all partitions.")]
AcceptGap = Annotated[bool, typer.Option("--accept-gap", help="Go on where the log lost offsets.")]
RestartTopic = Annotated[
    bool, typer.Option("--restart-topic", help="Archive a topic that was created again into the same table.")
]
Adopt = Annotated[bool, typer.Option("--adopt", help="Take over a table whose marks are incomplete.")]
Continuous = Annotated[bool, typer.Option("--continuous", help="Go on until SIGTERM.")]
Interval = Annotated[float, typer.Option("--interval", help="Seconds between runs of --continuous.")]
BackfillFrom = Annotated[
    int | None, typer.Option("--from-offset", min=0, help="Fill holes from this offset on, and archive nothing else.")
]
BackfillTo = Annotated[int | None, typer.Option("--to-offset", min=1, help="Fill holes up to this offset, exclusive.")]
Holes = Annotated[bool, typer.Option("--holes", help="List what the table lacks between its ranges, and do no more.")]
Compact = Annotated[bool, typer.Option("--compact", help="Then replace small files by larger ones.")]
RemoveOrphans = Annotated[
    float | None,
    typer.Option("--remove-orphans", metavar="HOURS", help="Then delete files older than so, in no version."),
]
StoreOptions = Annotated[
    list[str] | None, typer.Option("--store-option", metavar="NAME=VALUE", help="Of the object store; repeatable.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


@app.callback()
def barnabas_spark() -> None:
    """Jobs over topics and tables of a lake, on Spark."""


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
    backfill_from: BackfillFrom = None,
    backfill_to: BackfillTo = None,
    holes: Holes = False,
    compact: Compact = False,
    remove_orphans: RemoveOrphans = None,
    store_options: StoreOptions = None,
    as_json: AsJson = False,
) -> int:
    """Land a topic in a table, exactly once: files and offsets are one commit.

    The table ends where the topic ended when the run began. A run that failed, or was killed, is simply run again.
    """
    from barnabas_spark.lake.store import Location  # noqa: PLC0415 - see the module's first paragraph
    from barnabas_spark.lake.writing import FileSettings  # noqa: PLC0415 - see above

    from .archiving import ArchiveJob, run_archive, show_holes  # noqa: PLC0415 - see above

    _one_of("--format", kind, FORMATS)
    _one_of("--compression", compression, CODECS)
    _one_of("--partition-by", partition_by, ("", *PARTITIONINGS))
    sizes = (_size("--row-group-size", row_group), _size("--file-size", file_size))
    job = ArchiveJob(
        topic,
        Location(to, _pairs(store_options)),
        kind,
        bootstrap,
        master,
        FileSettings(compression, level, *sizes, partition_by),
        _size("--round-size", round_size),
        accept_gap,
        restart_topic,
        adopt,
        interval if continuous else None,
        as_json,
        _backfill(backfill_from, backfill_to),
        compact,
        None if remove_orphans is None else remove_orphans * 3600,
    )
    return show_holes(job) if holes else run_archive(job)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 1 not done, 2 asked wrongly, 130 interrupted."""
    command: Any = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)

    def run() -> int:
        try:
            status = command.main(given or ["--help"], "barnabas-spark", standalone_mode=False)
        except typer.TyperException as error:
            complain(str(error.format_message()).rstrip("."))
            return 2
        return status if isinstance(status, int) else 0

    return guarded(run)


def _one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{option}: '{value}' is not known; write one of {', '.join(filter(None, allowed))}")


def _backfill(start_offset: int | None, end_offset: int | None) -> tuple[int, int] | None:
    if start_offset is None and end_offset is None:
        return None
    between = (start_offset or 0, 2**63 - 1 if end_offset is None else end_offset)
    if between[0] >= between[1]:
        raise UsageError(f"--from-offset {between[0]} is not before --to-offset {between[1]}")
    return between


def _size(option: str, text: str) -> int:
    """Read a size such as 64m."""
    plain = text.strip().lower().removesuffix("ib").removesuffix("b")
    unit = plain[-1:] if plain[-1:] in "kmg" else ""
    digits = plain.removesuffix(unit) if unit else plain
    if not (digits.isascii() and digits.isdecimal() and int(digits)):
        raise UsageError(f"{option}: '{text}' is not a size; write 64m, 1g or a number of bytes")
    return int(digits) * _SIZES[unit]


def _pairs(given: Sequence[str] | None) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--store-option: '{text}' is not NAME=VALUE")
        pairs[name] = value
    return pairs
