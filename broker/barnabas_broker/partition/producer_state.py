"""Remembers the producers of one replica: the base of idempotent produce. Pure.

A producer numbers its records per partition (`base_sequence`), and repeats a batch when it heard no answer. The
replica keeps, for each producer id, the last batches it saw: enough to recognise a repetition and to name its
offset, and to notice a gap.

- *Duplicates.* A batch whose epoch and sequence range equal one of the last five is a repetition (five is what
  clients may have in flight). The caller answers it with the old offset, but only once the original has committed.
- *Order.* Within an epoch the next batch starts where the last one ended, modulo 2**31; a new epoch starts at 0; an
  older epoch is refused.
- *Unknown producers.* Kafka accepts any first sequence from a producer it has no state of (KIP-360), because retention
  may have deleted that state. If it were accepted though nothing was forgotten, the batches before it would be lost.
  That happens: a producer pipelines batches 0, 1, 2 to a node that becomes leader between 0 and 1. If 1 and 2 are
  refused as out of order, every client repeats them after 0. So the table says whether it may have forgotten the
  producer (`PerhapsForgottenError`), and the caller decides then. The table need not know which producers it has
  forgotten: a cluster gives ids out in ascending order, in blocks, so an id above all of them is new.
- *Markers.* The end of a transaction has an epoch, too (`raftlog/records/markers.py`). With version 2 of transactions
  it is one higher than that of the data, so whatever the producer sends next begins at 0. With version 1 it is the
  same, and the sequence goes on. A marker is refused that is of an older epoch, or of an older term of the transaction
  coordinator than another one of the producer; one that repeats the last one is recognised. Each batch is remembered
  with the coordinator's term that was known by then, and with whether a transaction was open behind it.
- *Truncation.* The table follows the log. Batches are kept until five later ones of their producer have committed, and
  committed batches are never truncated; so truncating the log from an index leaves exactly the table of the log that
  remains. Of markers, and of epochs that are over, nothing is kept beside the newest that is committed.
- *Open transactions.* While one is open its producer is not forgotten, however old it is and however many there are:
  those are kept apart. The coordinator ends them all, after their timeout at the latest.

The table is a function of the log (and of what it was told to forget), on leaders and followers alike; it is saved
with an index and replayed from there.

A table of 20,000 producers is megabytes, and takes a tenth of a second to encode or to decode. So what a producer has
sent is a tuple: an image of the table (`image`) is a copy of one dictionary, which never changes and which a worker may
encode; and reading one goes in steps.

Not here: which offsets are part of transactions (`transactions`), and fencing by epoch without a batch or a marker.
"""

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import msgpack

from barnabas_raftlog.errors import BarnabasError, CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.markers import EndMarker

__all__ = [
    "ANY_ID",
    "FORGOTTEN_AT_ONCE",
    "CoordinatorFencedError",
    "InvalidProducerEpochError",
    "InvalidTransactionStateError",
    "OutOfOrderSequenceError",
    "PerhapsForgottenError",
    "ProducerBatch",
    "ProducerImage",
    "ProducerTable",
]

DUPLICATES_COUNT = 5
SEQUENCE_MODULUS = 1 << 31
PRODUCERS_MAX = 20_000
"""Per partition; beyond it the one that wrote longest ago is forgotten. About 1 KiB each."""
FORGOTTEN_AT_ONCE = 2_000
PIECE = 100
"""Producers that are encoded or decoded without a pause: 0.2 ms with five batches each."""
ANY_ID = (1 << 63) - 1
"""`forgotten_id_max` of a table that does not know which producers it has forgotten."""
NO_COORDINATOR = -1
"""The coordinator's term as long as no marker was seen."""
_ABORT, _COMMIT = -1, -2
_UNKNOWN_SEQUENCE = -1
_LAST_SEQUENCE = SEQUENCE_MODULUS - 1
_BLOB_FIELDS = 5
_BLOB_VERSION = 3
_BLOB_VERSION_WITHOUT_TRANSACTIONS = 2  # written still if there are none: brokers of the version before can read it
_BLOB_VERSION_WITH_A_FLAG = 1  # whether nobody was forgotten, in the place of `forgotten_id_max`; read, not written
_FIELDS_WITHOUT_TRANSACTIONS = 6


class OutOfOrderSequenceError(BarnabasError):
    """A batch that does not follow the last one of its producer: one before it is missing."""


class PerhapsForgottenError(OutOfOrderSequenceError):
    """A batch in the middle of a producer that is unknown here, but was perhaps forgotten; then it may be in order."""


class InvalidProducerEpochError(BarnabasError):
    """A batch or a marker of an epoch that a newer instance of the same producer, or a marker, has ended."""


class InvalidTransactionStateError(BarnabasError):
    """A batch outside of transactions while one is open, or of a transaction of which nobody knows."""


class CoordinatorFencedError(BarnabasError):
    """A marker from a transaction coordinator whose successor has sent another one."""


class ProducerBatch(NamedTuple):
    """One batch as the table remembers it. `last_sequence` is inclusive, and smaller than `base_sequence` on a wrap.

    For a marker `base_sequence` is negative, and `last_sequence` the one that the next batch follows: -1 if it is not
    known, 2**31 - 1 if that begins an epoch. `coordinator_epoch` is that of the producer's last marker so far, -1 for
    none. `is_open` says whether a transaction is open behind it.
    """

    log_index: int
    epoch: int
    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int
    coordinator_epoch: int = NO_COORDINATOR
    is_open: bool = False

    @property
    def is_marker(self) -> bool:
        return self.base_sequence < 0


class ProducerImage(NamedTuple):
    """A table as of entry `applied_index`. It never changes.

    `producers`, and those with an open transaction: their batches, also later ones, in the order of the last of them.
    """

    producers: Mapping[int, tuple[ProducerBatch, ...]]
    in_transactions: Mapping[int, tuple[ProducerBatch, ...]]
    applied_index: int
    commit_index: int
    forgotten_id_max: int

    def to_blob(self) -> bytes:
        """Return the image to be saved with `applied_index`. It takes long, and is for a worker."""
        producers = self._as_of_then()
        has_transactions = False
        packer = msgpack.Packer(autoreset=False)
        packer.pack_array_header(len(producers))
        parts = [packer.bytes()]
        for start in range(0, len(producers), PIECE):
            packer.reset()
            for producer_id, batches in producers[start : start + PIECE]:
                if any(batch.coordinator_epoch != NO_COORDINATOR or batch.is_open for batch in batches):
                    has_transactions = True
                    packer.pack((producer_id, batches))
                else:
                    packer.pack((producer_id, [batch[:_FIELDS_WITHOUT_TRANSACTIONS] for batch in batches]))
            parts.append(packer.bytes())
        packer.reset()
        packer.pack_array_header(_BLOB_FIELDS)
        version = _BLOB_VERSION if has_transactions else _BLOB_VERSION_WITHOUT_TRANSACTIONS
        for field in (version, self.applied_index, self.commit_index, self.forgotten_id_max):
            packer.pack(field)
        return b"".join((packer.bytes(), *parts))

    def _as_of_then(self) -> list[tuple[int, tuple[ProducerBatch, ...]]]:
        """Return the producers with what they had sent by then, in the order of the last batch."""
        last_index = self.applied_index
        producers = [*self.producers.items(), *self.in_transactions.items()]
        if self.in_transactions:
            producers.sort(key=_last_index)
        begin = len(producers)
        while begin and producers[begin - 1][1][-1].log_index > last_index:
            begin -= 1
        earlier = [(key, _up_to(last_index, batches)) for key, batches in producers[begin:]]
        if begin < len(producers):
            producers[begin:] = [pair for pair in earlier if pair[1]]
            producers.sort(key=_last_index)
        return producers


class ProducerTable:
    """The producers of one replica, as of `applied_index`.

    Invariant: for each producer the batches ascend in index, there is at least one, and all but the last five of the
    committed ones are gone. Batches above `commit_index` are all there.

    `forgotten_id_max`: the largest producer id that was ever forgotten; -1 if none was.
    """

    __slots__ = ("_in_transactions", "_producers", "applied_index", "commit_index", "forgotten_id_max")

    def __init__(self) -> None:
        # In the order of the last write: the first is the next to be forgotten.
        self._producers: dict[int, tuple[ProducerBatch, ...]] = {}
        self._in_transactions: dict[int, tuple[ProducerBatch, ...]] = {}  # likewise; they are not forgotten
        self.applied_index = 0
        self.commit_index = 0
        self.forgotten_id_max = -1

    def __len__(self) -> int:
        return len(self._producers) + len(self._in_transactions)

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        *,
        is_transactional: bool = False,
        begins: bool = False,
    ) -> ProducerBatch | None:
        """Return the original that the batch repeats, or None if it is new and in order.

        `begins`: a producer that is unknown has to begin with sequence 0, as those of version 2 of transactions do.

        Raises:
            OutOfOrderSequenceError: a batch before this one is missing.
            PerhapsForgottenError: a batch before this one is missing, or was forgotten with its producer.
            InvalidProducerEpochError: the producer was replaced by one of a later epoch.
            InvalidTransactionStateError: the producer has a transaction open, and this batch is none of it.
        """
        batches = self._producers.get(producer_id) or self._in_transactions.get(producer_id)
        if batches is None:
            if base_sequence != 0:
                raise self._gap_of_unknown(producer_id, base_sequence, begins)
            return None
        last = batches[-1]
        if epoch != last.epoch:
            if epoch < last.epoch:
                raise InvalidProducerEpochError(f"producer {producer_id} has epoch {last.epoch}, the batch {epoch}")
            if base_sequence != 0:
                raise OutOfOrderSequenceError(
                    f"producer {producer_id} begins epoch {epoch} with sequence {base_sequence} instead of 0"
                )
        elif base_sequence != (last.last_sequence + 1) % SEQUENCE_MODULUS:
            last_sequence = (base_sequence + last_offset_delta) % SEQUENCE_MODULUS
            for batch in _sent(batches)[-DUPLICATES_COUNT:]:
                is_same = batch.base_sequence == base_sequence and batch.last_sequence == last_sequence
                if is_same and batch.epoch == epoch:
                    return batch
            if last.last_sequence == _UNKNOWN_SEQUENCE:
                raise self._gap_of_unknown(producer_id, base_sequence, begins)
            raise OutOfOrderSequenceError(
                f"producer {producer_id} sent sequence {base_sequence}, after {last.last_sequence}"
            )
        if last.is_open and not is_transactional:
            raise InvalidTransactionStateError(
                f"producer {producer_id} has a transaction open, and sent a batch that belongs to none"
            )
        return None

    def check_marker(self, marker: EndMarker, *, bumps_epoch: bool) -> ProducerBatch | None:
        """Return the marker that this one repeats, or None if it is new and in order.

        `bumps_epoch`: its epoch is one higher than that of the transaction's data, as in version 2 of transactions.

        It repeats the last thing that the producer has in the log, if that is the same marker. If a coordinator of a
        later term sent it, it is new all the same: from then on nothing counts that the earlier one has under way.

        Raises:
            InvalidProducerEpochError: what it would end is over, and something newer has begun.
            CoordinatorFencedError: a coordinator of a later term has sent a marker already.
        """
        producer_id, epoch, is_commit, coordinator_epoch = marker
        batches = self.batches(producer_id)
        if not batches:
            return None
        last = batches[-1]
        is_same = last.epoch == epoch and last.base_sequence == (_COMMIT if is_commit else _ABORT)
        if epoch < last.epoch or (bumps_epoch and epoch == last.epoch and not is_same):
            raise InvalidProducerEpochError(f"producer {producer_id} has epoch {last.epoch}, the marker {epoch}")
        if coordinator_epoch < last.coordinator_epoch:
            raise CoordinatorFencedError(
                f"a marker of producer {producer_id} comes from a coordinator of epoch {coordinator_epoch},"
                f" and another came from one of epoch {last.coordinator_epoch}"
            )
        return last if is_same and coordinator_epoch == last.coordinator_epoch else None

    def append(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        index: int,
        base_offset: int,
        timestamp_ms: int,
        is_transactional: bool = False,
    ) -> None:
        """Note a batch that is in the log at `index`; it is not checked, the log is what it is."""
        assert index > self.applied_index
        self.applied_index = index
        # By position: one for each batch of each replica.
        batch = ProducerBatch(
            index,
            epoch,
            base_sequence,
            (base_sequence + last_offset_delta) % SEQUENCE_MODULUS,
            base_offset,
            timestamp_ms,
        )
        batches = self._producers.pop(producer_id, None)
        if is_transactional or (batches[-1].coordinator_epoch != NO_COORDINATOR if batches else self._in_transactions):
            self._append_among_transactions(producer_id, batches, batch, is_transactional)
            return
        if batches is None:
            self._producers[producer_id] = (batch,)
            if len(self._producers) > PRODUCERS_MAX:
                self._forget_oldest()
            return
        batches = (*batches, batch)
        # The first may go when the five after it have committed: no truncation can need it again.
        while len(batches) > DUPLICATES_COUNT and batches[DUPLICATES_COUNT].log_index <= self.commit_index:
            batches = batches[1:]
        self._producers[producer_id] = batches

    def append_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, is_commit: bool, index: int, timestamp_ms: int
    ) -> None:
        """Note a marker that is in the log at `index`; it is not checked, the log is what it is."""
        assert index > self.applied_index
        self.applied_index = index
        batches = self._take(producer_id)
        last_sequence = _UNKNOWN_SEQUENCE
        if batches:
            last_sequence = batches[-1].last_sequence if batches[-1].epoch == epoch else _LAST_SEQUENCE
        kind = _COMMIT if is_commit else _ABORT
        # Never that of no coordinator: it shows that the producer has had transactions.
        marker = ProducerBatch(index, epoch, kind, last_sequence, -1, timestamp_ms, max(coordinator_epoch, 0))
        self._put(producer_id, (*batches, marker))

    def skip(self, index: int) -> None:
        """Note an entry without a producer."""
        assert index > self.applied_index
        self.applied_index = index

    def truncate_from(self, index: int) -> None:
        """Follow the log, which has lost the entries at and after `index`."""
        assert index > self.commit_index, "committed entries are never truncated"
        if index > self.applied_index:
            return
        self.applied_index = index - 1
        kept: list[tuple[int, tuple[ProducerBatch, ...]]] = []
        # The producers of truncated batches wrote last, so they stand last.
        for table in (self._producers, self._in_transactions):
            while table:
                producer_id, batches = table.popitem()
                if batches[-1].log_index < index:
                    table[producer_id] = batches
                    break
                if batches := _up_to(index - 1, batches):
                    kept.append((producer_id, batches))
        # The order of the last write must be true again.
        idle = [pair for pair in kept if not pair[1][-1].is_open]
        if idle:
            self._producers = dict(sorted((*self._producers.items(), *idle), key=_last_index))
        if len(idle) < len(kept):
            is_open = [pair for pair in kept if pair[1][-1].is_open]
            self._in_transactions = dict(sorted((*self._in_transactions.items(), *is_open), key=_last_index))

    def forget_before(self, timestamp_ms: int) -> int:
        """Forget producers whose last batch is committed and older than `timestamp_ms`; return how many.

        At most `FORGOTTEN_AT_ONCE`: there may be more then. None that has a transaction open.
        """
        gone = []
        for producer_id, batches in islice(self._producers.items(), FORGOTTEN_AT_ONCE):
            if batches[-1].timestamp_ms >= timestamp_ms or batches[-1].log_index > self.commit_index:
                break
            gone.append(producer_id)
        for producer_id in gone:
            self._forget(producer_id)
        return len(gone)

    def batches(self, producer_id: int) -> tuple[ProducerBatch, ...]:
        """Return what is remembered of one producer, oldest first."""
        return self._producers.get(producer_id) or self._in_transactions.get(producer_id, ())

    def producer_ids(self) -> Iterable[int]:
        """Return the known ids, the one that wrote longest ago first."""
        if not self._in_transactions:
            return self._producers.keys()
        producers = sorted((*self._producers.items(), *self._in_transactions.items()), key=_last_index)
        return [producer_id for producer_id, _ in producers]

    def image(self) -> ProducerImage:
        """Return what is known now, committed or not."""
        return self._image(self.applied_index)

    def committed(self) -> ProducerImage:
        """Return what is known of the committed entries."""
        return self._image(min(self.applied_index, self.commit_index))

    @classmethod
    def from_blob_in_steps(cls, blob: Buffer) -> "Generator[None, None, ProducerTable]":
        """Read what `ProducerImage.to_blob` wrote, with pauses.

        Raises:
            CorruptBatchError: the blob is of another version or is not one; replay the log instead.
        """
        table = cls()
        reader = msgpack.Unpacker(use_list=False, strict_map_key=False)
        try:
            reader.feed(blob)
            if reader.read_array_header() != _BLOB_FIELDS:
                raise ValueError("it has another number of fields")
            version, table.applied_index, table.commit_index, table.forgotten_id_max = [
                reader.unpack() for _ in range(_BLOB_FIELDS - 1)
            ]
            for position in range(reader.read_array_header()):
                key, batches = reader.unpack()
                if batches:
                    made = tuple([ProducerBatch(*batch) for batch in batches])
                    (table._in_transactions if made[-1].is_open else table._producers)[key] = made
                if not position % PIECE:
                    yield
            if reader.tell() != len(blob):
                raise ValueError("something follows it")
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptBatchError(f"saved producer table cannot be read: {error}") from error
        if version == _BLOB_VERSION_WITH_A_FLAG:
            table.forgotten_id_max = -1 if table.forgotten_id_max else ANY_ID
        elif version not in {_BLOB_VERSION, _BLOB_VERSION_WITHOUT_TRANSACTIONS}:
            raise CorruptBatchError(f"saved producer table has version {version}, this is {_BLOB_VERSION}")
        return table

    def _append_among_transactions(
        self,
        producer_id: int,
        batches: tuple[ProducerBatch, ...] | None,
        batch: ProducerBatch,
        is_transactional: bool,
    ) -> None:
        """Note a batch where transactions are; `batches`: of its producer, if that had none open."""
        if batches is None:
            batches = self._in_transactions.pop(producer_id, ())
        if batches:
            last = batches[-1]
            is_open = is_transactional or last.is_open
            batch = batch._replace(coordinator_epoch=last.coordinator_epoch, is_open=is_open)
        elif is_transactional:
            batch = batch._replace(is_open=True)
        self._put(producer_id, (*batches, batch))

    def _take(self, producer_id: int) -> tuple[ProducerBatch, ...]:
        return self._producers.pop(producer_id, None) or self._in_transactions.pop(producer_id, ())

    def _put(self, producer_id: int, batches: tuple[ProducerBatch, ...]) -> None:
        """Keep what is needed of the batches of a producer that has just written."""
        table = self._in_transactions if batches[-1].is_open else self._producers
        table[producer_id] = _needed(batches, self.commit_index)
        if len(self) > PRODUCERS_MAX and len(batches) == 1:
            self._forget_oldest()

    def _gap_of_unknown(self, producer_id: int, base_sequence: int, begins: bool) -> OutOfOrderSequenceError:
        is_known_to_be_new = begins or producer_id > self.forgotten_id_max
        return (OutOfOrderSequenceError if is_known_to_be_new else PerhapsForgottenError)(
            f"producer {producer_id} is new here, its first sequence is {base_sequence} instead of 0"
        )

    def _image(self, applied_index: int) -> ProducerImage:
        tables = (dict(self._producers), dict(self._in_transactions))
        return ProducerImage(*tables, applied_index, self.commit_index, self.forgotten_id_max)

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._producers), None)
        # An uncommitted first writer stays, or truncation could not bring back what was before it.
        if oldest is not None and self._producers[oldest][-1].log_index <= self.commit_index:
            self._forget(oldest)

    def _forget(self, producer_id: int) -> None:
        del self._producers[producer_id]
        self.forgotten_id_max = max(self.forgotten_id_max, producer_id)


def _up_to(index: int, batches: tuple[ProducerBatch, ...]) -> tuple[ProducerBatch, ...]:
    """Return those of one producer that are at or before `index`."""
    count = len(batches)
    while count and batches[count - 1].log_index > index:
        count -= 1
    return batches[:count]


def _sent(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Return those that are no markers."""
    return [batch for batch in batches if batch.base_sequence >= 0]


def _needed(batches: tuple[ProducerBatch, ...], commit_index: int) -> tuple[ProducerBatch, ...]:
    """Return what a producer with transactions can still need: see Truncation, and Markers."""
    last = len(batches) - 1
    while last >= 0 and batches[last].log_index > commit_index:
        last -= 1
    if last < 0:
        return batches
    epoch = batches[last].epoch
    earlier = [batch for batch in _sent(batches[:last]) if batch.epoch == epoch]
    count = DUPLICATES_COUNT - (not batches[last].is_marker)
    return (*earlier[-count:], *batches[last:])


def _last_index(pair: tuple[int, tuple[ProducerBatch, ...]]) -> int:
    return pair[1][-1].log_index
