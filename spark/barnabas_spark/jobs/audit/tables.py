"""Lays out the result of an audit as a table: for a terminal, and for a page."""

from collections.abc import Sequence

from .evidence import Evidence
from .summary import PartitionSummary

__all__ = ["partition_table", "shown"]


def partition_table(seen: Evidence, summaries: Sequence[PartitionSummary]) -> tuple[list[str], list[list[object]]]:
    """Return the columns and rows of the result table: those that say something here."""
    has_ids = len({one.topic_id for one in summaries}) > 1
    columns: list[tuple[str, object]] = [
        ("topic id", (lambda one: one.topic_id) if has_ids else None),
        ("partition", lambda one: one.partition),
        ("from", (lambda one: one.start_offset) if seen.location else None),
        ("to", (lambda one: one.end_offset) if seen.location else None),
        ("rows", lambda one: one.rows),
        ("without a row", lambda one: one.without_row),
        ("commits proved", (lambda one: f"{one.claims_proved}/{one.claims}") if seen.location else None),
        ("log proved", (lambda one: f"{one.log_proved}/{one.log_units}") if seen.log else None),
        ("time goes back", lambda one: one.steps_back),
        ("log from", (lambda one: one.log_start) if seen.logs else None),
        ("log to", (lambda one: one.log_end) if seen.logs else None),
        ("lag", (lambda one: one.lag) if seen.logs and seen.location else None),
        ("group lag", (lambda one: one.group_lag) if seen.group else None),
        ("", lambda one: "sound" if one.is_sound else "WRONG"),
    ]
    kept = [(name, value) for name, value in columns if callable(value)]
    return [name for name, _ in kept], [[value(one) for _, value in kept] for one in summaries]


def shown(value: object) -> str:
    """Return a cell as people read it."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
