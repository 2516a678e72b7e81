"""`barnabas-spark backfill`."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from barnabas_spark.jobs.app import app
from barnabas_spark.jobs.errors import UsageError
from barnabas_spark.jobs.options import (
    CODECS,
    FORMATS,
    AsJson,
    Bootstrap,
    Compression,
    FormatThere,
    Master,
    StoreOptions,
    Topic,
    one_of,
    pairs,
)

__all__ = ["backfill"]

PARTITIONS = ("keep", "by-key")

From = Annotated[str, typer.Option("--from", metavar="DIR|URL", help="The table whose rows are written.")]
Partitions = Annotated[
    str, typer.Option("--partitions", help="keep: those of the rows; by-key: as Kafka's own producer chooses.")
]
TopicId = Annotated[str, typer.Option("--topic-id", help="Which topic of the lake, if it has several.")]
FromOffset = Annotated[int | None, typer.Option("--from-offset", min=0, help="Leave out rows before this offset.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", min=1, help="Leave out rows from this offset on.")]
FromTime = Annotated[
    str, typer.Option("--from-time", metavar="TIME", help="Leave out rows before: 2026-11-27T10:00 (UTC), or ms.")
]
ToTime = Annotated[str, typer.Option("--to-time", metavar="TIME", help="Leave out rows from then on.")]
Append = Annotated[bool, typer.Option("--append", help="Write into a topic that is not empty, behind what it has.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a back-fill that was killed or has failed.")]


@app.command()
def backfill(  # noqa: PLR0913, PLR0917 - one for each option
    topic: Topic,
    lake: From,
    kind: FormatThere = "",
    bootstrap: Bootstrap = "localhost:9092",
    master: Master = "",
    partitions: Partitions = "keep",
    topic_id: TopicId = "",
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    from_time: FromTime = "",
    to_time: ToTime = "",
    compression: Compression = "zstd",
    append: Append = False,
    resume: Resume = False,
    store_options: StoreOptions = None,
    as_json: AsJson = False,
) -> int:
    """Write rows of a table into a topic, which must exist and be empty: keys, values, headers, timestamps, partitions.

    Nobody else may write to the topic meanwhile. A back-fill that was killed goes on with --resume.
    """
    one_of("--format", kind, ("", *FORMATS))
    one_of("--partitions", partitions, PARTITIONS)
    one_of("--compression", compression, CODECS)
    if append and resume:
        raise UsageError("--append begins a back-fill and --resume goes on with one; write one of them")
    offsets = (from_offset, to_offset)
    times = (_moment("--from-time", from_time), _moment("--to-time", to_time))
    for name, (first, last) in (("offset", offsets), ("time", times)):
        if first is not None and last is not None and first >= last:
            raise UsageError(f"--from-{name} must be before --to-{name}")
    from barnabas_spark.jobs.backfilling import BackfillJob, run_backfill  # noqa: PLC0415 - loaded when it runs
    from barnabas_spark.lake.store import Location  # noqa: PLC0415 - see above

    job = BackfillJob(
        topic,
        Location(lake, pairs(store_options)),
        bootstrap,
        kind,
        master,
        partitions == "by-key",
        topic_id,
        offsets,
        times,
        compression,
        append,
        resume,
        as_json,
    )
    return run_backfill(job)


def _moment(option: str, text: str) -> int | None:
    """Read a time, in milliseconds since 1970; raises `UsageError`."""
    if not text:
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: '{text}' is not a time; write 2026-11-27T10:00, or milliseconds") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
