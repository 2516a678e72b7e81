"""Says naively what the entries of an offsets partition mean, transactions included.

Every record and every marker is looked at in its order; nothing is summed up, and nothing is quick.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from barnabas_broker.coordinators.groups.consumer.records import decode_consumer_key, decode_consumer_value
from barnabas_broker.coordinators.groups.consumer.values import ConsumerKey, ConsumerValue
from barnabas_broker.coordinators.groups.staging import StagedName
from barnabas_broker.coordinators.groups.state_machine.messages import SavedGroup
from barnabas_broker.coordinators.groups.state_machine.offsets import record_of
from barnabas_broker.coordinators.groups.state_machine.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
)
from barnabas_broker.coordinators.groups.table import TableName, record_of_consumer
from barnabas_broker.coordinators.runtime.contracts import AGAIN
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import CONTROL, parse_header
from barnabas_raftlog.records.markers import EndMarker, is_marker, marker_batch, read_marker
from barnabas_raftlog.records.reader import Record, read_batch

__all__ = ["SUPERSEDED", "LogModel", "Read", "Said", "Value", "frame_of", "marker_frame", "said_in"]

Value: TypeAlias = CommittedOffset | SavedGroup | ConsumerValue
Said: TypeAlias = dict[TableName | StagedName, Value | None]
SUPERSEDED = CommittedOffset(-1, metadata="superseded")
"""Stands for a staged offset that will not count, because a newer one was committed."""


def records_in(entry: Entry) -> list[Record]:
    frame = memoryview(entry.frame)
    header = parse_header(frame)
    return [] if header.is_raft_control or header.attributes & CONTROL else list(read_batch(header, frame))


def marker_in(entry: Entry) -> EndMarker | None:
    frame = memoryview(entry.frame)
    header = parse_header(frame)
    return read_marker(header, frame) if is_marker(header) else None


def said_in(entry: Entry) -> Said:
    """Return what the records of an entry say; those of a transaction under names of their own."""
    producer_id = parse_header(entry.frame).producer_id
    said: Said = {}
    for record in records_in(entry):
        key = bytes(record.key or b"")
        name = decode_key(key) or decode_consumer_key(key)
        assert name is not None
        if record.value is None:
            said[name] = None
        elif isinstance(name, ConsumerKey):
            said[name] = decode_consumer_value(name.kind, record.value)
        elif isinstance(name, GroupKey):
            said[name] = decode_group(record.value)
        else:
            said[name if producer_id < 0 else StagedName(*name, producer_id)] = decode_offset(record.value)
    return said


def frame_of(
    said: Mapping[TableName | StagedName, Value | None], timestamp_ms: int, *, is_again: bool = False
) -> bytes:
    """Return a batch that says so; what is staged is of one producer, whose epoch is 0."""
    records = []
    producer_id = -1
    for name, value in said.items():
        if isinstance(name, GroupKey):
            assert value is None or isinstance(value, SavedGroup)
            key, body = encode_group_key(name.group_id), None if value is None else encode_group(value)
        elif isinstance(name, ConsumerKey):
            assert not isinstance(value, CommittedOffset | SavedGroup)
            key, body = record_of_consumer(name, value)
        else:
            assert value is None or isinstance(value, CommittedOffset)
            if isinstance(name, StagedName):
                producer_id = name.producer_id
            key, body = record_of(OffsetKey(*name[:3]), value)
        records.append(NewRecord(key, body, timestamp_ms, AGAIN if is_again else ()))
    if producer_id < 0:
        return bytes(build_batch(records))
    return bytes(
        build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    )


def marker_frame(marker: EndMarker, timestamp_ms: int) -> bytes:
    return bytes(marker_batch(marker, timestamp_ms))


class Read(NamedTuple):
    """An entry, read: an entry is fed to many models."""

    entry: Entry
    said: Said
    marker: EndMarker | None
    is_again: bool
    offset: int

    @classmethod
    def of(cls, entry: Entry) -> "Read":
        is_again = any(record.headers == AGAIN for record in records_in(entry))
        return cls(entry, said_in(entry), marker_in(entry), is_again, parse_header(entry.frame).base_offset)


class LogModel:
    """What the entries say that were fed so far. `staged` has the batch's offset of each record beside its value."""

    def __init__(self) -> None:
        self.known: dict[TableName, Value] = {}
        self.staged: dict[StagedName, tuple[int, CommittedOffset]] = {}

    def feed(self, read: Read) -> None:
        if read.marker is not None:
            self._end(read.marker)
        for name, value in read.said.items():
            if isinstance(name, StagedName):
                assert isinstance(value, CommittedOffset)
                self.staged[name] = read.offset, value
            else:
                self._put(name, value, is_again=read.is_again)

    def pending(self) -> set[OffsetKey]:
        """Return the names under which something is staged."""
        return {OffsetKey(*name[:3]) for name in self.staged}

    def all(self) -> dict[TableName | StagedName, Value]:
        """Return everything that is known."""
        return self.known | {name: value for name, (_, value) in self.staged.items()}

    def _end(self, marker: EndMarker) -> None:
        for name in [name for name in self.staged if name.producer_id == marker.producer_id]:
            offset, value = self.staged.pop(name)
            if marker.is_commit and value is not SUPERSEDED:
                self.known.pop(OffsetKey(*name[:3]), None)
                self.known[OffsetKey(*name[:3])] = value
                self._supersede(name, before=offset)

    def _put(self, name: TableName, value: Value | None, *, is_again: bool) -> None:
        self.known.pop(name, None)
        if value is not None:
            self.known[name] = value
        if value is None:
            for other in [other for other in self.staged if other[:3] == tuple(name)]:
                del self.staged[other]
        elif not is_again:
            self._supersede(name, before=1 << 62)

    def _supersede(self, name: TableName | StagedName, *, before: int) -> None:
        for other, (offset, _) in self.staged.items():
            if other[:3] == name[:3] and offset < before:
                self.staged[other] = offset, SUPERSEDED
