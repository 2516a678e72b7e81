"""Keeps what the committed records of one offsets partition say, as the runtime's table.

A group is a classic one, which is one record, or one of KIP-848, which is many (`consumer.saved`).

An offset that is part of a transaction is staged (`state_machine.staged`) until a marker ends that.
"""

from collections.abc import Generator, Iterable
from functools import partial

from barnabas_broker.coordinators.runtime.contracts import AGAIN, KeyAndValue, RecordOf, Steps, writer_of
from barnabas_raftlog.records.header import BatchHeader
from barnabas_raftlog.records.markers import EndMarker
from barnabas_raftlog.records.reader import Record

from .consumer.records import (
    decode_consumer_key,
    decode_consumer_value,
    encode_consumer_key,
    encode_consumer_value,
)
from .consumer.saved import GroupRecords, sizes_of
from .consumer.values import ConsumerKey, ConsumerValue
from .state_machine.messages import SavedGroup
from .state_machine.offsets import OffsetTable, record_of, size_of
from .state_machine.records import (
    CommittedOffset,
    GroupKey,
    Name,
    OffsetKey,
    decode_group_in_steps,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_in_steps,
    encode_group_key,
)
from .state_machine.staged import StagedOffsets

__all__ = ["NAMES_STEP", "GroupTable", "TableName", "record_of_consumer"]

TableName = Name | ConsumerKey
"""The things that a record's key can name."""

# How much is done between two yields.
RECORDS_STEP = 100  # records that are taken in
RECORDS_BYTES = 30_000  # likewise, of those of groups of KIP-848
ENDED_STEP = 500  # offsets of a transaction that are taken in at its end
NAMES_STEP = 1_000  # names that are listed
ENCODED_AT_ONCE = 200  # members

Encoded = dict[TableName, tuple[SavedGroup, bytes]]
"""Groups with the values of their records, which count as long as the same group is what is committed."""


class GroupTable:
    """The committed offsets, those that transactions have staged, and the saved groups, with their records' sizes.

    `saved` are the classic groups, `consumers` those of KIP-848. Invariants: `group_bytes` is the sum of the sizes in
    `saved`, `consumer_bytes` and `consumer_log_bytes` what the others take in memory and in the log.
    """

    __slots__ = ("consumer_bytes", "consumer_log_bytes", "consumers", "group_bytes", "offsets", "saved", "staged")

    def __init__(self) -> None:
        self.offsets = OffsetTable()
        self.staged = StagedOffsets()
        self.saved: dict[str, tuple[SavedGroup, int]] = {}
        self.consumers: dict[str, GroupRecords] = {}
        self.group_bytes = self.consumer_bytes = self.consumer_log_bytes = 0

    @property
    def live_bytes(self) -> int:
        """About how many bytes of the log the records take that count."""
        return self.offsets.live_bytes + self.group_bytes + self.consumer_log_bytes

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest transaction begins that has something staged."""
        return self.staged.first_offset

    def take(self, header: BatchHeader, records: Iterable[Record]) -> Steps:
        """Take in committed records; a group of thousands is one record, and is read in steps, too."""
        writer = writer_of(header)
        taken_bytes = 0
        for number, record in enumerate(records, 1):
            if not number % RECORDS_STEP:
                yield
            key = None if record.key is None else decode_key(record.key) or decode_consumer_key(record.key)
            match key:
                case OffsetKey():
                    value = None if record.value is None else decode_offset(record.value)
                    if value is not None and writer is not None:
                        self.staged.stage(writer.producer_id, key, value, header.base_offset)
                    else:
                        self.put_offset(key, value, is_again=record.headers == AGAIN)
                case GroupKey(group_id) if record.value is None:
                    self.put_group(group_id, None, 0)
                case GroupKey(group_id):
                    assert record.value is not None
                    size_bytes = len(record.value) + len(record.key or b"")
                    self.put_group(group_id, (yield from decode_group_in_steps(record.value)), size_bytes)
                case ConsumerKey():
                    said = None if record.value is None else decode_consumer_value(key.kind, record.value)
                    self.put_consumer(key, said)
                    taken_bytes += len(record.value or b"")
                    if taken_bytes >= RECORDS_BYTES:
                        taken_bytes = 0
                        yield
                case None:
                    pass

    def take_marker(self, marker: EndMarker) -> Steps:
        """Take in the end of a transaction, a part at a time."""
        while self.end_some(marker):
            yield

    def end_some(self, marker: EndMarker) -> bool:
        """Take in a part of the end of a transaction; return whether there may be more."""
        ended = self.staged.pop(marker.producer_id, ENDED_STEP, is_commit=marker.is_commit)
        if marker.is_commit:
            for key, value in ended:
                if value is not None:
                    self.offsets.put(key, value)
        return len(ended) == ENDED_STEP

    def put_offset(self, key: OffsetKey, value: CommittedOffset | None, *, is_again: bool = False) -> None:
        """Take in the committed record of an offset that is part of no transaction; None is a tombstone.

        `is_again`: it says only what was committed before.
        """
        self.offsets.put(key, value)
        if value is None:
            self.staged.drop(key)
        elif not is_again:
            self.staged.supersede(key)

    def put_group(self, group_id: str, saved: SavedGroup | None, size_bytes: int) -> None:
        """Take in a group's committed record of `size_bytes`, key and value; None is a tombstone, of 0 bytes."""
        if saved is not None and group_id in self.consumers:
            # A broker from before groups of KIP-848 has written it, to which the others' records mean nothing.
            records = self.consumers.pop(group_id)
            self.consumer_bytes -= records.held_bytes
            self.consumer_log_bytes -= records.size_bytes
        _, old_bytes = self.saved.pop(group_id, (None, 0))
        self.group_bytes += size_bytes - old_bytes
        if saved is not None:
            self.saved[group_id] = (saved, size_bytes)

    def put_consumer(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Take in a committed record of a group of KIP-848; None is a tombstone."""
        records = self.consumers.get(key.group_id)
        if records is None:
            if value is None:
                return
            records = self.consumers[key.group_id] = GroupRecords(key.group_id)
        self.consumer_bytes -= records.held_bytes
        self.consumer_log_bytes -= records.size_bytes
        records.put(key, value)
        self.consumer_bytes += records.held_bytes
        self.consumer_log_bytes += records.size_bytes
        if value is None and records.is_empty:
            del self.consumers[key.group_id]

    def group(self, group_id: str) -> SavedGroup | None:
        """Return a group's committed record; None: it has none."""
        return self.saved.get(group_id, (None, 0))[0]

    # For a log that is rewritten.

    def names_in_steps(self) -> Generator[None, None, list[TableName]]:
        """Return the name of everything that is committed now, groups before offsets."""
        names: list[TableName] = list(map(GroupKey, self.saved))
        unseen = 0
        for records in list(self.consumers.values()):
            known = len(names)
            names += records.keys()
            unseen += 1 + len(names) - known
            if unseen >= NAMES_STEP:
                unseen = 0
                yield
        for group_id in list(self.offsets.group_ids()):
            places = self.offsets.of_group(group_id)
            names += [OffsetKey(group_id, *place) for place in places]
            unseen += 1 + len(places)
            if unseen >= NAMES_STEP:
                unseen = 0
                yield
        return names

    def size_of(self, name: TableName) -> int:
        """Return about how many bytes the record under that name takes."""
        if isinstance(name, OffsetKey):
            value = self.offsets.get(name)
            return 0 if value is None else size_of(name, value)
        if isinstance(name, ConsumerKey):
            said = self._said(name)
            return 0 if said is None else sizes_of(name, said)[0]
        return self.saved.get(name.group_id, (None, 0))[1]

    def _said(self, name: ConsumerKey) -> ConsumerValue | None:
        records = self.consumers.get(name.group_id)
        return None if records is None else records.get(name)

    def prepare_in_steps(self, names: Iterable[TableName]) -> Generator[None, None, RecordOf[TableName]]:
        """Return a function that gives the records of these names; those of large groups are encoded by then."""
        encoded: Encoded = {}
        for name in names:
            saved = self.group(name.group_id) if isinstance(name, GroupKey) else None
            if saved is not None and len(saved.members) > ENCODED_AT_ONCE:
                encoded[name] = saved, (yield from encode_group_in_steps(saved))
        return partial(self._record_of, encoded)

    def _record_of(self, encoded: Encoded, name: TableName) -> KeyAndValue | None:
        if isinstance(name, OffsetKey):
            value = self.offsets.get(name)
            return None if value is None else record_of(name, value)
        if isinstance(name, ConsumerKey):
            said = self._said(name)
            return None if said is None else record_of_consumer(name, said)
        saved = self.group(name.group_id)
        if saved is None:
            return None
        known, body = encoded.get(name, (None, b""))
        return encode_group_key(name.group_id), body if known is saved else encode_group(saved)


def record_of_consumer(key: ConsumerKey, value: ConsumerValue | None) -> KeyAndValue:
    """Return key and value of the record of a group of KIP-848 that says so."""
    return encode_consumer_key(key), None if value is None else encode_consumer_value(key.kind, value)
