"""What an audit has found out, before anybody judges it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas_spark.lake.ranges import PartitionKey, Span
from barnabas_spark.lake.rounds import TopicLogs

from .files import FileFound
from .fragments import Fragment
from .timeline import Timeline
from .units import Claims, Unit

__all__ = ["Evidence", "GroupPosition", "UnitOfLog"]


class GroupPosition(NamedTuple):
    """Where a consumer group is in a partition; None: it has committed nothing there."""

    partition: int
    offset: int | None


class UnitOfLog(NamedTuple):
    """What the log has of a unit; `fragment` is None if it has no row, `trouble` says what could not be read."""

    fragment: Fragment | None
    trouble: str = ""


class Evidence(NamedTuple):
    """All that was found. `logs` is None if the brokers were not asked, `location` is empty if there is no lake.

    `lake` has what the files have of each unit, `log` what the log has of those that were read again. `expected` are
    the rows of each file as the table says them, where it does. `epoch_ends` are as of `ask_epoch_ends`.
    """

    topic: str
    location: str
    kind: str
    version: str
    logs: TopicLogs | None
    is_compacted: bool
    spans: Mapping[PartitionKey, Sequence[Span]]
    claims: Claims
    units: Sequence[Unit]
    lake: Mapping[int, Fragment]
    log: Mapping[int, UnitOfLog]
    files: Sequence[FileFound]
    expected: Mapping[str, int]
    epoch_ends: Mapping[int, int]
    group: str
    positions: Sequence[GroupPosition]
    timeline: Timeline
    took_s: float = 0.0
