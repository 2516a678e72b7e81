"""Puts what a group of KIP-848 has changed into batches of records for its log, and into the table when they commit."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from barnabas_broker.coordinators.runtime.contracts import KeyAndValue, Name
from barnabas_broker.coordinators.runtime.shard import BATCH_BYTES_MAX

from .consumer.group import Change
from .consumer.values import Kind
from .state_machine.messages import SavedGroup
from .state_machine.records import GroupKey, encode_group_key
from .table import GroupTable, record_of_consumer

__all__ = ["Batch", "in_batches"]

PUT_STEP = 250
"""Changes of one batch that the table takes in between two turns."""


class Batch:
    """Changes that are appended together, with their records.

    A batch may make the name another kind of group: `put_classic`.
    """

    __slots__ = ("_classic", "changes", "names", "records", "size_bytes")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.names: list[Name] = []
        self.records: list[KeyAndValue] = []
        self.size_bytes = 0
        self._classic: tuple[str, SavedGroup | None, int] | None = None

    @property
    def longest_bytes(self) -> int:
        """How long its longest record is."""
        return max(len(key) + len(value or b"") for key, value in self.records)

    def add(self, change: Change) -> None:
        self._note(change.key, record_of_consumer(change.key, change.value))
        self.changes.append(change)

    def put_classic(self, group_id: str, saved: SavedGroup | None, value: bytes | None) -> None:
        """Have the name be a classic group, with the value of its record, or no longer (None)."""
        record = (encode_group_key(group_id), value)
        self._note(GroupKey(group_id), record)
        self._classic = (group_id, saved, 0 if value is None else len(record[0]) + len(value))

    def _note(self, name: Name, record: KeyAndValue) -> None:
        self.names.append(name)
        self.records.append(record)
        self.size_bytes += len(record[0]) + len(record[1] or b"")

    def putting(self, table: GroupTable) -> Callable[[], bool]:
        """Return what has a table take the batch in: a part each time that it is called, until it returns False."""
        unsaid = iter(self.changes)
        left = len(self.changes)

        def put() -> bool:
            nonlocal left
            for change in islice(unsaid, PUT_STEP):
                table.put_consumer(change.key, change.value)
            left -= PUT_STEP
            if left <= 0 and self._classic is not None:
                table.put_group(*self._classic)
            return left > 0

        return put


def in_batches(changes: Sequence[Change]) -> Iterator[Batch]:
    """Yield the changes in batches; targets may be in batches of their own, all else stays together."""
    batch = Batch()
    for change in changes:
        if batch.size_bytes >= BATCH_BYTES_MAX and change.key.kind is Kind.TARGET:
            yield batch
            batch = Batch()
        batch.add(change)
    yield batch
