"""Keeps what the committed records of one partition of `__transaction_state` say, as the runtime's table."""

from collections.abc import Generator, Iterable
from functools import partial
from typing import NamedTuple

from barnabas_broker.coordinators.runtime.contracts import KeyAndValue, RecordOf, Steps
from barnabas_raftlog.records.header import BatchHeader
from barnabas_raftlog.records.markers import EndMarker
from barnabas_raftlog.records.reader import Record

from .state_machine.messages import SavedTransaction
from .state_machine.records import decode_key, decode_value, encode_key, encode_value

__all__ = ["TransactionName", "TransactionalIdTable"]

# How much is done between two yields.
RECORDS_STEP = 100  # records that are taken in
PLACES_STEP = 1_000  # partitions in them, or in those that are encoded
NAMES_STEP = 1_000  # names that are listed
ENCODED_AT_ONCE = 100  # partitions
RECORD_OVERHEAD_BYTES = 12  # that a record takes beside key and value

Encoded = dict[str, tuple[SavedTransaction, KeyAndValue]]
"""Long records, which count as long as the same state is what is committed."""


class TransactionName(NamedTuple):
    """Names one transactional id."""

    transactional_id: str


class TransactionalIdTable:
    """The state of each transactional id, with the size of its record.

    Invariant: `live_bytes` is the sum of the sizes in `saved`.
    """

    __slots__ = ("live_bytes", "saved")

    def __init__(self) -> None:
        self.saved: dict[str, tuple[SavedTransaction, int]] = {}
        self.live_bytes = 0
        """About how many bytes of the log the records take that count."""

    @property
    def first_open_offset(self) -> int | None:
        """No producer's transaction takes in this topic."""
        return None

    def take(self, _: BatchHeader, records: Iterable[Record]) -> Steps:
        """Take in committed records; one of many partitions counts as many."""
        places = 0
        for number, record in enumerate(records, 1):
            transactional_id = None if record.key is None else decode_key(record.key)
            if transactional_id is not None:
                saved = None if record.value is None else decode_value(record.value)
                self.put(transactional_id, saved, len(record.key or b"") + len(record.value or b""))
                places += 0 if saved is None else len(saved.places)
            if places >= PLACES_STEP or not number % RECORDS_STEP:
                places = 0
                yield

    def take_marker(self, _: EndMarker) -> Steps:
        """Nothing: see `first_open_offset`."""
        yield from ()

    def put(self, transactional_id: str, saved: SavedTransaction | None, size_bytes: int) -> None:
        """Take in a committed record of `size_bytes`, key and value; None is a tombstone, of any size."""
        _, old_bytes = self.saved.pop(transactional_id, (None, 0))
        self.live_bytes -= old_bytes
        if saved is not None:
            size_bytes += RECORD_OVERHEAD_BYTES
            self.saved[transactional_id] = saved, size_bytes
            self.live_bytes += size_bytes

    def get(self, transactional_id: str) -> SavedTransaction | None:
        """Return what is committed of a transactional id; None: nothing is."""
        return self.saved.get(transactional_id, (None, 0))[0]

    # For a log that is rewritten.

    def names_in_steps(self) -> Generator[None, None, list[TransactionName]]:
        """Return the name of everything that is committed now."""
        names = []
        for number, transactional_id in enumerate(list(self.saved), 1):
            names.append(TransactionName(transactional_id))
            if not number % NAMES_STEP:
                yield
        return names

    def size_of(self, name: TransactionName) -> int:
        """Return about how many bytes the record under that name takes."""
        return self.saved.get(name.transactional_id, (None, 0))[1]

    def prepare_in_steps(self, names: Iterable[TransactionName]) -> Generator[None, None, RecordOf[TransactionName]]:
        """Return a function that gives the records of these names; those of many partitions are encoded by then."""
        encoded: Encoded = {}
        places = 0
        for name in names:
            saved = self.get(name.transactional_id)
            if saved is not None and len(saved.places) > ENCODED_AT_ONCE:
                encoded[name.transactional_id] = saved, (encode_key(name.transactional_id), encode_value(saved))
                places += len(saved.places)
                if places >= PLACES_STEP:
                    places = 0
                    yield
        return partial(self._record_of, encoded)

    def _record_of(self, encoded: Encoded, name: TransactionName) -> KeyAndValue | None:
        saved = self.get(name.transactional_id)
        if saved is None:
            return None
        known, record = encoded.get(name.transactional_id, (None, (b"", b"")))
        return record if known is saved else (encode_key(name.transactional_id), encode_value(saved))
