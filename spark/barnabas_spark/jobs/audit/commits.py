"""Reads what the commits of a table say of offsets, as far as the table still knows them.

A Parquet table knows all of them. Delta keeps the notes of commits as long as their files in the log, Iceberg as long
as their snapshots. What was undone (a RESTORE, a rollback) is left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from barnabas_spark.lake.ranges import CommittedRange, PartitionKey

from .units import Claim

__all__ = ["claims_of", "claims_of_note"]

_ICEBERG_NOTE = "barnabas.commit"


def claims_of(kind: str, table: Any) -> list[Claim]:
    """Return all claims of a table that was loaded, the oldest first."""
    if kind == "parquet":
        return [Claim(said, one.purpose) for one in table.commits() for said in one.ranges]
    notes = _delta_notes(table) if kind == "delta" else _iceberg_notes(table)
    return [claim for note in notes for claim in claims_of_note(note)]


def claims_of_note(text: object) -> list[Claim]:
    """Return the claims in the text that stands with a commit; none in what somebody else has written."""
    try:
        said: Any = json.loads(text) if isinstance(text, str) else {}
        note = said["barnabas"]
        return [Claim(_range(one), str(note["purpose"])) for one in note["ranges"]]
    except (ValueError, KeyError, TypeError):
        return []


def _range(one: Mapping[str, Any]) -> CommittedRange:
    return CommittedRange(
        PartitionKey(one["clusterId"], one["topicId"], one["partition"]),
        one["startOffset"],
        one["endOffset"],
        one["leaderEpoch"],
        one["isolationLevel"],
        one["rows"],
        one["crc"],
        one["topic"],
    )


def _delta_notes(table: Any) -> Iterable[object]:
    from deltalake import DeltaTable  # noqa: PLC0415 - the other formats do without

    opened = DeltaTable(table.root, storage_options=table._options)
    notes: dict[int, object] = {}
    for one in sorted(opened.history(), key=lambda one: int(one["version"])):
        version = int(one["version"])
        target = (one.get("operationParameters") or {}).get("version")
        if str(one.get("operation", "")).upper() == "RESTORE" and target is not None:
            notes = {at: note for at, note in notes.items() if at <= int(target)}
        elif one.get("userMetadata"):
            notes[version] = one["userMetadata"]
    return [note for _, note in sorted(notes.items())]


def _iceberg_notes(table: Any) -> Iterator[object]:
    opened = table._table()
    if opened is None:
        return
    by_id = {one.snapshot_id: one for one in opened.metadata.snapshots}
    snapshot = opened.current_snapshot()
    found = []
    while snapshot is not None:
        if snapshot.summary is not None:
            found.append(snapshot.summary.get(_ICEBERG_NOTE))
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)
    yield from reversed(found)
