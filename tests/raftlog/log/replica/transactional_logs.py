"""Logs with transactions, and what a reader and a replica make of them, as plainly as it can be said."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, BatchHeader, parse_header
from barnabas_raftlog.records.markers import EndMarker, is_marker, marker_batch, read_marker
from barnabas_raftlog.records.reader import Record, read_records

KeyedValue = tuple[bytes, bytes | None]


def batch(
    producer_id: int, sequence: int, pairs: Sequence[KeyedValue], at_ms: int = 1_000, *, is_transactional: bool = True
) -> bytearray:
    """Return the batch of a producer, in its transaction unless said otherwise."""
    return build_batch(
        [NewRecord(key, value, at_ms) for key, value in pairs],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def marker(producer_id: int, *, is_commit: bool, at_ms: int = 1_000, coordinator_epoch: int = 5) -> bytearray:
    return marker_batch(EndMarker(producer_id, 0, is_commit, coordinator_epoch), at_ms)


class NoTransactions(NamedTuple):
    """The outcomes in a log without transactions: up to its high watermark there is nothing to decide."""

    last_stable_offset: int

    def aborted_between(self, start_offset: int, end_offset: int) -> Sequence[tuple[int, int, int]]:
        return ()


class Transactions:
    """What the frames of a log say of transactions, from its beginning on: the outcomes that compaction asks for.

    With `need_records` a batch that has lost its records begins nothing: of a transaction without records nothing need
    be known.
    """

    def __init__(self, frames: Iterable[Buffer], *, need_records: bool = False) -> None:
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.ends: list[tuple[int, EndMarker]] = []
        self.end_offset = 0
        for frame in frames:
            header = parse_header(frame)
            self.end_offset = header.end_offset
            if is_marker(header):
                self._end(header, memoryview(frame))
            elif header.attributes & TRANSACTIONAL and (header.record_count or not need_records):
                self.open.setdefault(header.producer_id, header.base_offset)

    def _end(self, header: BatchHeader, frame: memoryview) -> None:
        end = read_marker(header, frame)
        assert end is not None
        self.ends.append((header.base_offset, end))
        first_offset = self.open.pop(header.producer_id, None)
        if first_offset is not None and not end.is_commit:
            self.aborted.append((header.producer_id, first_offset, header.base_offset))

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.end_offset)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[tuple[int, int, int]]:
        return [row for row in self.aborted if row[1] < end_offset and row[2] >= start_offset]


class Part(NamedTuple):
    """A batch of a log, or a marker: its header, and its records if it has any."""

    header: BatchHeader
    records: list[Record]


async def entries_of(log: ReplicaLog, from_index: int = 1) -> list[Entry]:
    return [entry async for entry in log.replay(from_index)]


def parts_of(entries: Iterable[Entry]) -> list[Part]:
    return [Part(parse_header(one.frame), list(read_records(memoryview(one.frame)))) for one in entries]


def committed_rows(frames: Sequence[Buffer]) -> list[Record]:
    """Return the records of a log that were not aborted, and are not behind a transaction that is open."""
    known = Transactions(frames)
    rows: list[Record] = []
    for frame in frames:
        header = parse_header(frame)
        if header.base_offset >= known.last_stable_offset or header.attributes & CONTROL:
            continue
        is_aborted = any(
            owner == header.producer_id and first <= header.base_offset < last for owner, first, last in known.aborted
        )
        if not (is_aborted and header.attributes & TRANSACTIONAL):
            rows += read_records(memoryview(frame))
    return rows


async def read_committed(log: ReplicaLog, known: Transactions, bytes_max: int, from_offset: int = 0) -> list[Record]:
    """Read as consumers do: each answer comes with those of its aborted transactions, and ends at the stable offset."""
    rows: list[Record] = []
    offset = from_offset
    while offset < known.last_stable_offset:
        frames = await log.read_cold(offset, known.last_stable_offset, bytes_max)
        data = memoryview(b"".join(frames))
        if not data:
            break
        answer: list[tuple[BatchHeader, memoryview]] = []
        while data:
            header = parse_header(data)
            answer.append((header, data[: header.size_bytes]))
            data = data[header.size_bytes :]
        end_offset = answer[-1][0].end_offset
        named = sorted((first, owner) for owner, first, _ in known.aborted_between(offset, end_offset))
        rows += _left(answer, named, offset)
        offset = end_offset
    return rows


def _left(answer: list[tuple[BatchHeader, memoryview]], named: list[tuple[int, int]], offset: int) -> list[Record]:
    """Return the rows of one answer, as clients do: a producer's records are left out until its marker aborts them."""
    rows: list[Record] = []
    aborting: set[int] = set()
    for header, frame in answer:
        while named and named[0][0] < header.end_offset:
            aborting.add(named.pop(0)[1])
        if header.attributes & CONTROL:
            end = read_marker(header, frame) if is_marker(header) else None
            if end is not None and not end.is_commit:
                aborting.discard(end.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborting):
            rows += read_records(frame, offset)
    return rows
