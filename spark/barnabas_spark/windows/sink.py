"""Takes the windows that a query closes: writes them, or keeps them to be shown.

Rows are written by batch, each into a folder of its own, `batch=N`. A batch that is repeated after a crash has the same
rows and writes the same folder again, so readers see each window once.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["WindowSink"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindowSink:
    """Takes the windows that each batch closes: writes them, and keeps the first ones to be shown."""

    def __init__(self, to: str, limit: int) -> None:
        self._to = to.rstrip("/")
        self._limit = limit
        self.windows = 0
        self.shown: list[dict[str, Any]] = []

    def __call__(self, frame: Any, batch_id: int) -> None:
        frame.persist()
        try:
            count = frame.count()
            if count and self._to:
                frame.coalesce(1).write.mode("overwrite").parquet(f"{self._to}/batch={batch_id}")
            elif count:
                self.shown += self._rows(frame)
            self.windows += count
        finally:
            frame.unpersist()

    def _rows(self, frame: Any) -> list[dict[str, Any]]:
        from pyspark.sql import functions as f  # noqa: PLC0415 - see above

        # Numbers, because Python's own time zone would be in times.
        plain = frame.withColumns({"start": f.unix_millis("start"), "end": f.unix_millis("end")})
        left = max(0, self._limit - len(self.shown))
        rows = plain.orderBy(*(name for name in plain.columns if name not in ("records", "sum"))).limit(left).collect()
        return [row.asDict() | {"start": _iso(row["start"]), "end": _iso(row["end"])} for row in rows]


def _iso(at_ms: int) -> str:
    at = _EPOCH + timedelta(milliseconds=at_ms)
    return at.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")
