"""Adds up what a query says of its batches. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["OBSERVED", "Counted", "Watched"]

OBSERVED = "times"  # the name under which the query counts records, and those without a time


class Counted(NamedTuple):
    """What a run did, over all batches. `late` are rows that Spark dropped, `without_time` records that have none."""

    records: int = 0
    without_time: int = 0
    late: int = 0
    batches: int = 0
    windows: int = 0
    open_windows: int = 0
    watermark: str = ""


class Watched:
    """Adds up what a query says of its batches. It says each thing several times, and forgets what is long ago."""

    def __init__(self) -> None:
        self._taken: set[tuple[int, str]] = set()
        self.counted = Counted()

    def take(self, said: Iterable[Mapping[str, Any]]) -> bool:
        """Take the progress of batches, as Spark's JSON has it; return whether anything was new."""
        found = False
        for one in said:
            name = (one["batchId"], one["timestamp"])
            if name not in self._taken:
                self._taken.add(name)
                self.counted = _with(self.counted, one)
                found = found or "addBatch" in one.get("durationMs", {})
        return found


def _with(before: Counted, said: Mapping[str, Any]) -> Counted:
    operators = said.get("stateOperators", ())
    observed = said.get("observedMetrics", {}).get(OBSERVED, {})
    return before._replace(
        records=before.records + observed.get("records", 0),
        without_time=before.without_time + observed.get("without_time", 0),
        late=before.late + sum(one["numRowsDroppedByWatermark"] for one in operators),
        batches=before.batches + ("addBatch" in said.get("durationMs", {})),
        open_windows=sum(one["numRowsTotal"] for one in operators) if operators else before.open_windows,
        watermark=said.get("eventTime", {}).get("watermark", "") or before.watermark,
    )
