"""`barnabas produce` and `barnabas consume`: names, options, help."""

from pathlib import Path
from typing import Annotated

import typer

from barnabas_broker.cli.limits import PARTITION_MAX, REQUEST_BYTES_MAX

from .options import DEFAULT, Bootstrap, Timeout, Topic

__all__ = ["consume", "produce"]

Null = Annotated[str | None, typer.Option("--null", help="A key or value that reads so is null.", metavar="TEXT")]
Shown = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Say on stderr how far it is; by default on a terminal."),
]


# Of `produce`: what a record is, where it goes and how, what is told of it.

InputForm = Annotated[
    str,
    typer.Option("--format", "-f", help=r"raw (a line is a value), json (a record), or as '%k %v\n'.", metavar="FORM"),
]
FixedKey = Annotated[
    str | None, typer.Option("--key", "-k", help="The key of every record that brings none.", metavar="TEXT")
]
KeyEnd = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", help="Stands between key and value in raw lines.", metavar="TEXT"),
]
Tombstone = Annotated[bool, typer.Option("--tombstone", "-Z", help="An empty value is null.")]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="A header for every record; may be repeated.", metavar="NAME=VALUE"),
]
Target = Annotated[
    int | None,
    typer.Option("--partition", "-p", help="Send everything to this partition.", metavar="P", min=0, max=PARTITION_MAX),
]
KeepPartitions = Annotated[
    bool, typer.Option("--keep-partitions", help="Send records to the partitions that they name.")
]
Acks = Annotated[str, typer.Option(help="Replicas that must have a record: all, 1 (the leader) or 0 (none).")]
Compression = Annotated[
    str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.", metavar="TYPE")
]
InputFile = Annotated[Path | None, typer.Option(help="Read this instead of standard input.", metavar="FILE")]
RequestBytes = Annotated[
    int,
    typer.Option(help="Largest request, and so the largest record.", metavar="BYTES", min=1024, max=REQUEST_BYTES_MAX),
]
Receipts = Annotated[bool, typer.Option("--receipts", help="Print the partition and the offset of every record.")]
ReceiptsAsJson = Annotated[bool, typer.Option("--json", help="Print receipts as JSON.")]


def produce(  # noqa: PLR0913, PLR0917 - one parameter is one option
    topic: Topic,
    bootstrap: Bootstrap = DEFAULT,
    form: InputForm = "raw",
    key: FixedKey = None,
    key_separator: KeyEnd = None,
    null: Null = None,
    tombstone: Tombstone = False,
    header: Header = None,
    partition: Target = None,
    keep_partitions: KeepPartitions = False,
    acks: Acks = "all",
    compression: Compression = "none",
    file: InputFile = None,
    max_request_size: RequestBytes = 1_048_576,
    receipts: Receipts = False,
    as_json: ReceiptsAsJson = False,
    progress: Shown = None,
    timeout: Timeout = 30.0,
) -> int:
    """Write records to a topic: one for each line of standard input. It ends with the input, or at Ctrl-C.

    Key, value and headers in JSON are strings, null, or {"base64": "..."}: {"key": "k", "value": "v"}.
    """
    from barnabas_broker.cli.commands import produce as commands  # noqa: PLC0415 - loaded by those who use it

    return commands.produce(
        commands.ProduceOrder(
            topic=topic,
            bootstrap=bootstrap,
            form=form,
            key=key,
            key_separator=key_separator,
            null=null,
            tombstone=tombstone,
            headers=header or [],
            partition=partition,
            keep_partitions=keep_partitions,
            acks=acks,
            compression=compression,
            file=file,
            request_bytes_max=max_request_size,
            receipts=receipts,
            as_json=as_json,
            progress=progress,
            timeout_s=timeout,
        )
    )


# Of `consume`: where it begins and with whom, what it writes, when it ends.

Sharing = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Share the topics with the members of this group.", metavar="GROUP"),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--group-protocol", help="classic, or consumer: the coordinator divides the topics (KIP-848).", metavar="NAME"
    ),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the first record; a group, where it has no position.")
]
FromTime = Annotated[
    str | None, typer.Option(help="Start at the first record at or after a time, or 15m ago.", metavar="T")
]
FromOffset = Annotated[
    str | None,
    typer.Option(
        "--offset", "-o", help="Where to start, and to end: 5, -10, +5, start, 5:10, @15m, @T:T.", metavar="O"
    ),
]
Only = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", help="Only this partition; may be repeated.", metavar="P", min=0, max=PARTITION_MAX
    ),
]
Regex = Annotated[bool, typer.Option("--regex", "-r", help="TOPICs are patterns that match anywhere in a name.")]

Form = Annotated[
    str,
    typer.Option(
        "--format", "-f", help=r"raw (values), json, '%k %v\n', or '{offset} {key}: {value}'.", metavar="FORM"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
KeysToo = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="Write keys too, and this behind them.", metavar="TEXT")
]
HeadersToo = Annotated[bool, typer.Option("--headers", help="Write headers too: name:value,... and a tab.")]
ForNull = Annotated[str, typer.Option(help="Written for null.", metavar="TEXT")]
Escape = Annotated[
    bool | None,
    typer.Option("--escape/--no-escape", help="Show control characters as escapes; by default on a terminal."),
]

MaxRecords = Annotated[
    int | None,
    typer.Option("--max-records", "-n", "-c", help="End after so many records.", metavar="N", min=1),
]
AtEnd = Annotated[
    bool, typer.Option("--exit-at-end", "-e", help="End with the last record that was there at the start.")
]
IdleExit = Annotated[str | None, typer.Option(help="End when nothing has come for so long: 5s.", metavar="D")]
Committed = Annotated[
    bool, typer.Option("--read-committed", help="Leave out records of transactions that are not committed.")
]
SkipCorrupt = Annotated[
    bool, typer.Option("--skip-corrupt", help="Leave out batches that cannot be read, and tell of them.")
]


def consume(  # noqa: PLR0913, PLR0917 - one parameter is one option
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC")],
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = False,
    group: Sharing = None,
    group_protocol: Protocol = None,
    from_beginning: FromBeginning = False,
    from_time: FromTime = None,
    offset: FromOffset = None,
    partition: Only = None,
    form: Form = "",
    as_json: AsJson = False,
    key_separator: KeysToo = None,
    headers: HeadersToo = False,
    null: ForNull = "",
    escape: Escape = None,
    max_records: MaxRecords = None,
    exit_at_end: AtEnd = False,
    idle_exit: IdleExit = None,
    read_committed: Committed = False,
    skip_corrupt: SkipCorrupt = False,
    progress: Shown = None,
    timeout: Timeout = 30.0,
) -> int:
    """Read topics and write their records to standard output, from now on, until Ctrl-C.

    In a group, the positions of written records are committed every five seconds and at the end.
    """
    from barnabas_broker.cli.commands import consume as commands  # noqa: PLC0415 - loaded by those who use it
    from barnabas_broker.cli.streams.options import chosen_form  # noqa: PLC0415 - see above

    return commands.consume(
        commands.ConsumeOrder(
            topics=topics,
            regex=regex,
            bootstrap=bootstrap,
            group_id=group,
            group_protocol=group_protocol,
            from_beginning=from_beginning,
            from_time=from_time,
            offset=offset,
            partitions=partition or [],
            form=chosen_form(form, as_json=as_json),
            key_separator=key_separator,
            headers=headers,
            null=null,
            escape=escape,
            max_records=max_records,
            exit_at_end=exit_at_end,
            idle_exit=idle_exit,
            read_committed=read_committed,
            skip_corrupt=skip_corrupt,
            progress=progress,
            timeout_s=timeout,
        )
    )
