"""Counts and sums records of a topic in windows of their own time: the query, and what its options are.

A window closes when the watermark, the newest time that was seen less a delay, has passed its end. It has its one row
then, and never another: what comes later for it is dropped by Spark.
"""

from typing import Any, NamedTuple

from .progress import OBSERVED

__all__ = ["WindowSettings", "closed_windows"]

# Spark's own range of dates; a number beyond it is no time, and must not stop the query.
_MS_MIN, _MS_MAX = -62_135_596_800_000, 253_402_300_799_999


class WindowSettings(NamedTuple):
    """What is counted. `by` is "key", a field of the JSON value, or "" for no groups. Fields may be `outer.inner`.

    `start` is "earliest" or "latest", which needs a consumer `group`.
    """

    topic: str
    bootstrap: str
    window_ms: int
    slide_ms: int
    watermark_ms: int
    time_field: str = ""
    by: str = ""
    sum_field: str = ""
    start: str = "earliest"
    group: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows."""
        return ("start", "end", *(["group"] if self.by else []), "records", *(["sum"] if self.sum_field else []))


def closed_windows(spark: Any, settings: WindowSettings) -> Any:
    """Return the query: one row for each window and group that is closed."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who has a session needs it

    options = {
        "kafka.bootstrap.servers": settings.bootstrap,
        "subscribe": settings.topic,
        "startingOffsets": settings.start,
    }
    if settings.group:
        options["consumerGroup"] = settings.group
    records = spark.readStream.format("barnabas").options(**options).load()
    text = f.col("value").cast("string")

    def field(name: str) -> Any:
        return f.get_json_object(text, f"$.{name}")

    columns = [_time_of(field(settings.time_field)) if settings.time_field else f.col("timestamp")]
    columns = [columns[0].alias("time")]
    groups, sums = [], []
    if settings.by:
        columns.append((f.col("key").cast("string") if settings.by == "key" else field(settings.by)).alias("group"))
        groups = [f.col("group")]
    if settings.sum_field:
        columns.append(field(settings.sum_field).try_cast("double").alias("number"))
        sums = [f.sum("number").alias("sum")]
    counts = (f.count(f.lit(1)).alias("records"), f.count_if(f.col("time").isNull()).alias("without_time"))
    timed = records.select(*columns).observe(OBSERVED, *counts).where("time is not null")
    window = f.window("time", f"{settings.window_ms} milliseconds", f"{settings.slide_ms} milliseconds")
    counted = (
        timed.withWatermark("time", f"{settings.watermark_ms} milliseconds")
        .groupBy(window, *groups)
        .agg(f.count(f.lit(1)).alias("records"), *sums)
    )
    return counted.select("window.start", "window.end", *settings.columns[2:])


def _time_of(text: Any) -> Any:
    """Return the time in a field: milliseconds since 1970, or text in ISO 8601 (in UTC if it names no zone).

    Anything else is null.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - see above

    number = text.try_cast("bigint")
    return f.coalesce(f.when(number.between(_MS_MIN, _MS_MAX), f.timestamp_millis(number)), f.try_to_timestamp(text))
