"""Keeps what the committed records of one offsets partition say, as the runtime's table."""

from collections.abc import Generator, Iterable
from functools import partial

from barnabas_broker.coordinators.runtime.contracts import KeyAndValue, RecordOf, Steps
from barnabas_raftlog.records.reader import Record

from .state_machine.messages import SavedGroup
from .state_machine.offsets import OffsetTable, record_of, size_of
from .state_machine.records import (
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

__all__ = ["NAMES_STEP", "GroupTable"]

# How much is done between two yields.
RECORDS_STEP = 100  # records that are taken in
NAMES_STEP = 1_000  # names that are listed
ENCODED_AT_ONCE = 200  # members

Encoded = dict[Name, tuple[SavedGroup, bytes]]
"""Groups with the values of their records, which count as long as the same group is what is committed."""


class GroupTable:
    """The committed offsets and the saved groups, with the size of each group's record.

    Invariant: `group_bytes` is the sum of the sizes in `saved`.
    """

    __slots__ = ("group_bytes", "offsets", "saved")

    def __init__(self) -> None:
        self.offsets = OffsetTable()
        self.saved: dict[str, tuple[SavedGroup, int]] = {}
        self.group_bytes = 0

    @property
    def live_bytes(self) -> int:
        """About how many bytes of the log the records take that count."""
        return self.offsets.live_bytes + self.group_bytes

    def take(self, records: Iterable[Record]) -> Steps:
        """Take in committed records; a group of thousands is one record, and is read in steps, too."""
        for number, record in enumerate(records, 1):
            if not number % RECORDS_STEP:
                yield
            key = None if record.key is None else decode_key(record.key)
            match key:
                case OffsetKey():
                    self.offsets.put(key, None if record.value is None else decode_offset(record.value))
                case GroupKey(group_id) if record.value is None:
                    self.put_group(group_id, None, 0)
                case GroupKey(group_id):
                    assert record.value is not None
                    size_bytes = len(record.value) + len(record.key or b"")
                    self.put_group(group_id, (yield from decode_group_in_steps(record.value)), size_bytes)
                case None:
                    pass

    def put_group(self, group_id: str, saved: SavedGroup | None, size_bytes: int) -> None:
        """Take in a group's committed record of `size_bytes`, key and value; None is a tombstone, of 0 bytes."""
        _, old_bytes = self.saved.pop(group_id, (None, 0))
        self.group_bytes += size_bytes - old_bytes
        if saved is not None:
            self.saved[group_id] = (saved, size_bytes)

    def group(self, group_id: str) -> SavedGroup | None:
        """Return a group's committed record; None: it has none."""
        return self.saved.get(group_id, (None, 0))[0]

    # For a log that is rewritten.

    def names_in_steps(self) -> Generator[None, None, list[Name]]:
        """Return the name of everything that is committed now, groups before offsets."""
        names: list[Name] = list(map(GroupKey, self.saved))
        unseen = 0
        for group_id in list(self.offsets.group_ids()):
            places = self.offsets.of_group(group_id)
            names += [OffsetKey(group_id, *place) for place in places]
            unseen += 1 + len(places)
            if unseen >= NAMES_STEP:
                unseen = 0
                yield
        return names

    def size_of(self, name: Name) -> int:
        """Return about how many bytes the record under that name takes."""
        if isinstance(name, OffsetKey):
            value = self.offsets.get(name)
            return 0 if value is None else size_of(name, value)
        return self.saved.get(name.group_id, (None, 0))[1]

    def prepare_in_steps(self, names: Iterable[Name]) -> Generator[None, None, RecordOf[Name]]:
        """Return a function that gives the records of these names; those of large groups are encoded by then."""
        encoded: Encoded = {}
        for name in names:
            saved = self.group(name.group_id) if isinstance(name, GroupKey) else None
            if saved is not None and len(saved.members) > ENCODED_AT_ONCE:
                encoded[name] = saved, (yield from encode_group_in_steps(saved))
        return partial(self._record_of, encoded)

    def _record_of(self, encoded: Encoded, name: Name) -> KeyAndValue | None:
        if isinstance(name, OffsetKey):
            value = self.offsets.get(name)
            return None if value is None else record_of(name, value)
        saved = self.group(name.group_id)
        if saved is None:
            return None
        known, body = encoded.get(name, (None, b""))
        return encode_group_key(name.group_id), body if known is saved else encode_group(saved)
