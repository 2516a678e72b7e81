"""The functions of the record walker that are compared: a line for each family.

To add one: its name, where the compiled module is and where its twin is, and a function that calls either of them with
a damaged batch and returns what is to be the same. Errors that are declared are compared by kind and text, so `act`
lets them out; all other errors are findings.
"""

import re
from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any, NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_raftlog.records.reader import INT64_MAX
from barnabas_raftlog.records.walker.arrow_parts import Part, Wanted
from barnabas_raftlog.records.walker.batch_frame import BatchFrame
from barnabas_raftlog.records.walker.faults import Walked
from barnabas_raftlog.records.walker.pure import check as walker_check

from .damage import Damaged

__all__ = ["FAMILIES", "Family", "Refused", "outcome", "place_of"]

WALKER = "barnabas_raftlog.records.walker"
ADDED_MAX = 50
ALL_HEADERS = 2**62


class Family(NamedTuple):
    """Functions that are compiled and have a twin. `act` calls those of a module, and returns what is compared."""

    name: str
    compiled: str
    pure: str
    act: Callable[[Any, Damaged], object]
    declared: tuple[type[Exception], ...] = (CorruptBatchError,)

    def twins(self) -> tuple[Any, Any]:
        """Return both modules, the compiled one first.

        Raises:
            ImportError: the compiled one is not there.
        """
        return import_module(self.compiled), import_module(self.pure)


class Refused(NamedTuple):
    """A declared error that came out."""

    kind: str
    text: str


def outcome(family: Family, module: Any, batch: Damaged) -> object:
    """Return what a family makes of a batch: a value, or the declared error."""
    try:
        return family.act(module, batch)
    except family.declared as error:
        return Refused(type(error).__name__, str(error))


def place_of(found: object) -> Hashable:
    """Return where a walk has ended, roughly: two batches with the same place teach the same."""
    if isinstance(found, Walked):
        return found.fault, min(found.record, 3), min(found.null_keys, 1)
    return re.sub(r"-?\d+", "n", found.text) if isinstance(found, Refused) else type(found).__name__


def _check(walker: Any, batch: Damaged) -> Walked:
    found: Walked = walker.check(
        batch.body, batch.records, batch.base_timestamp, batch.last_delta, is_dense=batch.is_dense
    )
    return found


def _stream(walker: Any, batch: Damaged) -> object:
    """Feed it in pieces of a size that depends on the batch."""
    checker = walker.StreamCheck(batch.records, batch.base_timestamp, batch.last_delta, is_dense=batch.is_dense)
    size = 1 + len(batch.body) % 37
    for start in range(0, len(batch.body), size):
        if not checker.feed(batch.body[start : start + size]):
            break
    return checker.end()


def _records(walker: Any, batch: Damaged) -> object:
    frame = BatchFrame("t", 3, batch.base_offset, batch.last_delta, batch.base_timestamp, None, 7)
    rows: list[Any] = []
    try:
        first, position, delta_min = walker.skip_records(batch.records, batch.body, 0, frame, batch.base_offset + 1)
        left = batch.records - first
        position, _ = walker.take_records(rows, left, ALL_HEADERS, batch.body, position, frame, first, delta_min, _row)
    except CorruptBatchError as error:
        return rows, str(error)
    return rows, position


def _row(*fields: object) -> tuple[object, ...]:
    return fields


def _part(batch: Damaged) -> Part:
    return Part(batch.body, batch.records, batch.base_offset, batch.last_delta, batch.base_timestamp, None)


def _columns(walker: Any, batch: Damaged) -> object:
    """Both may say what is wrong in words of their own."""
    try:
        return walker.arrow_columns([_part(batch)], batch.base_offset + 1, 2**62, Wanted(headers=True))
    except CorruptBatchError:
        return CorruptBatchError


def _keys(walker: Any, batch: Damaged) -> object:
    table = walker.KeyTable(64, b"sixteen bytes ..")
    try:
        found = table.note(_part(batch))
        kept = table.kept(_part(batch), drop_tombstones=True)
        body = bytearray(batch.body)
        size = walker.squeeze(body, kept.marks, batch.records)
        return found, len(table), kept, bytes(body[:size])
    except ValueError as error:  # of batches that are not sound
        return str(error), len(table)


def _timestamps(walker: Any, batch: Damaged) -> object:
    search = walker.TimeSearch(
        count=batch.records,
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_delta,
        base_timestamp=batch.base_timestamp,
        append_timestamp=None,
        start_offset=batch.base_offset + 1,
        wanted=None if batch.is_dense else 1_000,
    )
    used = search.feed(batch.body)
    if search.fault:  # then the number of bytes means nothing
        return search.is_done, search.fault
    return used, search.is_done, search.end(is_left=used < len(batch.body))


def _building(walker: Any, batch: Damaged) -> object:
    """Make records of pieces of the body."""
    body = batch.body
    records = walker.OpenRecords(HEADER_BYTES + len(body), HEADER_BYTES)
    taken: list[int] = []
    start = 0
    while start < len(body) and len(taken) < ADDED_MAX:
        byte = body[start]
        piece = bytes(body[start : start + 1 + byte % 29])
        headers = ((("name", piece),), (("", None),), (), ())[byte & 3]
        timestamp = min(batch.base_timestamp + (byte << (byte & 31)), INT64_MAX)
        taken.append(records.add(timestamp, piece[1:] or None, piece, headers))
        start += len(piece)
    return taken, bytes(records.buffer), records.max_timestamp_ms, walker.murmur2(body), walker.partition_of(body, 7)


def _misfits(walker: Any, batch: Damaged) -> object:
    """It gets batches whose records were checked."""
    if _check(walker_check, batch).fault:
        return None
    return walker.misfits(
        batch.body,
        batch.records,
        batch.base_timestamp,
        needs_key=True,
        timestamp_min=1_000,
        timestamp_max=2**40,
        limit=3,
    )


def _family(name: str, act: Callable[[Any, Damaged], object], pure: str = "") -> Family:
    return Family(name, f"{WALKER}.compiled.{name}", pure or f"{WALKER}.pure.{name}", act)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _family("check", _check),
        _family("stream", _stream),
        _family("records", _records),
        _family("columns", _columns, "barnabas_raftlog.records.arrow_numpy"),
        _family("keys", _keys),
        _family("building", _building)._replace(declared=(OverflowError,)),
        _family("timestamps", _timestamps),
        _family("misfits", _misfits),
    )
}
