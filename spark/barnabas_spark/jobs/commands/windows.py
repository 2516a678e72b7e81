"""`barnabas-spark windows`."""

import re
from typing import Annotated

import typer

from barnabas_spark.jobs.app import app
from barnabas_spark.jobs.errors import UsageError
from barnabas_spark.jobs.options import AsJson, Bootstrap, Master, Topic, duration_ms, one_of

__all__ = ["windows"]

Window = Annotated[str, typer.Option("--window", help="How long a window is: 30s, 1m, 1h.")]
Slide = Annotated[str, typer.Option("--slide", help="How far windows begin apart; the length of one if not given.")]
Watermark = Annotated[str, typer.Option("--watermark", help="How long windows wait for records that come late.")]
TimeField = Annotated[
    str, typer.Option("--time-field", metavar="FIELD", help="Of the JSON value, with the time; else the timestamp.")
]
By = Annotated[str, typer.Option("--by", metavar="key|FIELD", help="Count for each key, or value of a JSON field.")]
Sum = Annotated[str, typer.Option("--sum", metavar="FIELD", help="Also sum a JSON field.")]
To = Annotated[str, typer.Option("--to", metavar="DIR|URL", help="Write closed windows here; else print them.")]
Checkpoint = Annotated[
    str, typer.Option("--checkpoint", metavar="DIR|URL", help="Where a restart goes on; by default in --to.")
]
Start = Annotated[
    str, typer.Option("--from", help="Where a new checkpoint begins: earliest, or latest (with --group).")
]
Group = Annotated[str, typer.Option("--group", help="A consumer group that shows the lag of this query.")]
Continuous = Annotated[bool, typer.Option("--continuous", help="Go on until SIGTERM.")]
Interval = Annotated[str, typer.Option("--interval", help="The time between batches of --continuous.")]
Limit = Annotated[
    int, typer.Option("--limit", min=0, help="Print at most so many windows (of each batch, if --continuous).")
]
StatePartitions = Annotated[
    int,
    typer.Option("--state-partitions", min=0, help="Of the open windows; as many as cores if 0. Never changes later."),
]


@app.command()
def windows(  # noqa: PLR0913, PLR0917 - one for each option
    topic: Topic,
    window: Window = "1m",
    slide: Slide = "",
    watermark: Watermark = "10m",
    time_field: TimeField = "",
    by: By = "",
    sum_field: Sum = "",
    to: To = "",
    checkpoint: Checkpoint = "",
    bootstrap: Bootstrap = "localhost:9092",
    start: Start = "earliest",
    group: Group = "",
    continuous: Continuous = False,
    interval: Interval = "10s",
    limit: Limit = 1000,
    state_partitions: StatePartitions = 0,
    master: Master = "",
    as_json: AsJson = False,
) -> int:
    """Count and sum records in windows of their own time, and say how many came too late.

    Reads what is there now, unless --continuous. Windows that the watermark has not passed stay open, for the next run.
    """
    from barnabas_spark.jobs.windowing import WindowsJob, run_windows  # noqa: PLC0415 - loaded when it runs
    from barnabas_spark.windows.query import WindowSettings  # noqa: PLC0415 - see above

    one_of("--from", start, ("earliest", "latest"))
    if start == "latest" and not group:
        raise UsageError("--from latest needs --group: what 'latest' was is kept there until the first batch is done")
    for option, field in (("--time-field", time_field), ("--by", by), ("--sum", sum_field)):
        if field and not re.fullmatch(r"[\w-]+(\.[\w-]+)*", field):
            raise UsageError(f"{option}: '{field}' is not a field; write name, or outer.inner")
    window_ms = duration_ms("--window", window)
    slide_ms = duration_ms("--slide", slide) if slide else window_ms
    if slide_ms > window_ms:
        raise UsageError(f"--slide {slide} is longer than --window {window}: records between two windows would be lost")
    query = WindowSettings(
        topic,
        bootstrap,
        window_ms,
        slide_ms,
        duration_ms("--watermark", watermark, least_ms=0),
        time_field,
        by,
        sum_field,
        start,
        group,
    )
    interval_s = duration_ms("--interval", interval) / 1000 if continuous else None
    return run_windows(WindowsJob(query, to, checkpoint, interval_s, limit, state_partitions, master, as_json))
