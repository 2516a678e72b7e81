"""Reads a piece of a log and measures it: what a task does. Offsets that cannot be read are a result, too."""

import contextlib
from typing import NamedTuple

from barnabas_clients.consumer.decoder import CorruptRecordsError
from barnabas_spark.lake.checksums import CHECKED_COLUMNS
from barnabas_spark.options.reads import IsolationLevel, ReadOptions
from barnabas_spark.planning.plan import DataLossError, Split
from barnabas_spark.reading.reader import read_split

from .fragments import Fragment, Measuring, times_us
from .timeline import Timeline

__all__ = ["LogFound", "LogPiece", "pieces_of", "scan_log"]

OFFSETS_MAX = 1_000_000


class LogPiece(NamedTuple):
    """Offsets of one unit, as a split, and which of its records the commit has taken."""

    unit: int
    split: Split
    isolation_level: IsolationLevel = "read_uncommitted"


class LogFound(NamedTuple):
    """What a log has of a piece; `trouble` says why the rest could not be read."""

    piece: LogPiece
    fragment: Fragment | None = None
    timeline: Timeline = Timeline()
    trouble: str = ""


def pieces_of(unit: int, split: Split, isolation_level: IsolationLevel) -> list[LogPiece]:
    """Return a split as pieces for several tasks."""
    starts = range(split.start_offset, split.end_offset, OFFSETS_MAX)
    return [
        LogPiece(
            unit,
            split._replace(start_offset=at, end_offset=min(at + OFFSETS_MAX, split.end_offset)),
            isolation_level,
        )
        for at in starts
    ]


def scan_log(piece: LogPiece, options: ReadOptions) -> LogFound:
    """Read a piece and measure it.

    Raises:
        ClientError, KafkaError: another attempt may succeed.
    """
    measuring = Measuring()
    timeline = Timeline()
    trouble = ""
    options = options._replace(isolation_level=piece.isolation_level)
    batches = read_split(piece.split, options, CHECKED_COLUMNS)
    try:
        with contextlib.closing(batches):  # type: ignore[type-var]  # a generator, which leaves no request under way
            for batch in batches:
                measuring.add(piece.unit, batch)
                timeline = timeline.with_times(times_us(batch.column("timestamp")))
    except (DataLossError, CorruptRecordsError) as error:
        trouble = " ".join(str(error).split())
    return LogFound(piece, measuring.found.get(piece.unit), timeline, trouble)
