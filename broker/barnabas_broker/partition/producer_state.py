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
- *Truncation.* The table follows the log. Batches are kept until five later ones of their producer have committed, and
  committed batches are never truncated; so truncating the log from an index leaves exactly the table of the log that
  remains.

The table is a function of the log (and of what it was told to forget), on leaders and followers alike; it is saved
with an index and replayed from there.

A table of 20,000 producers is megabytes, and takes a tenth of a second to encode or to decode. So what a producer has
sent is a tuple: an image of the table (`image`) is a copy of one dictionary, which never changes and which a worker may
encode; and reading one goes in steps.

Not here: transactions (no transactional batch is accepted yet), and fencing by epoch without a batch.
"""

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import msgpack

from barnabas_raftlog.errors import BarnabasError, CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer

__all__ = [
    "ANY_ID",
    "FORGOTTEN_AT_ONCE",
    "InvalidProducerEpochError",
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
_BLOB_FIELDS = 5
_BLOB_VERSION = 2
_BLOB_VERSION_WITH_A_FLAG = 1  # whether nobody was forgotten, in the place of `forgotten_id_max`; read, not written


class OutOfOrderSequenceError(BarnabasError):
    """A batch that does not follow the last one of its producer: one before it is missing."""


class PerhapsForgottenError(OutOfOrderSequenceError):
    """A batch in the middle of a producer that is unknown here, but was perhaps forgotten; then it may be in order."""


class InvalidProducerEpochError(BarnabasError):
    """A batch of an epoch that a newer instance of the same producer has ended."""


class ProducerBatch(NamedTuple):
    """One batch as the table remembers it. `last_sequence` is inclusive, and smaller than `base_sequence` on a wrap."""

    log_index: int
    epoch: int
    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int


class ProducerImage(NamedTuple):
    """A table as of entry `applied_index`. It never changes.

    `producers`: their batches, also later ones, in the order of the last of them.
    """

    producers: Mapping[int, tuple[ProducerBatch, ...]]
    applied_index: int
    commit_index: int
    forgotten_id_max: int

    def to_blob(self) -> bytes:
        """Return the image to be saved with `applied_index`. It takes long, and is for a worker."""
        producers = self._as_of_then()
        packer = msgpack.Packer(autoreset=False)
        packer.pack_array_header(5)
        for field in (_BLOB_VERSION, self.applied_index, self.commit_index, self.forgotten_id_max):
            packer.pack(field)
        packer.pack_array_header(len(producers))
        parts = [packer.bytes()]
        for start in range(0, len(producers), PIECE):
            packer.reset()
            for pair in producers[start : start + PIECE]:
                packer.pack(pair)
            parts.append(packer.bytes())
        return b"".join(parts)

    def _as_of_then(self) -> list[tuple[int, tuple[ProducerBatch, ...]]]:
        """Return the producers with what they had sent by then, in the order of the last batch."""
        last_index = self.applied_index
        producers = list(self.producers.items())
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

    __slots__ = ("_producers", "applied_index", "commit_index", "forgotten_id_max")

    def __init__(self) -> None:
        # In the order of the last write: the first is the next to be forgotten.
        self._producers: dict[int, tuple[ProducerBatch, ...]] = {}
        self.applied_index = 0
        self.commit_index = 0
        self.forgotten_id_max = -1

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int) -> ProducerBatch | None:
        """Return the original that the batch repeats, or None if it is new and in order.

        Raises:
            OutOfOrderSequenceError: a batch before this one is missing.
            PerhapsForgottenError: a batch before this one is missing, or was forgotten with its producer.
            InvalidProducerEpochError: the producer was replaced by one of a later epoch.
        """
        batches = self._producers.get(producer_id)
        if batches is None:
            if base_sequence != 0:
                is_new = producer_id > self.forgotten_id_max
                raise (OutOfOrderSequenceError if is_new else PerhapsForgottenError)(
                    f"producer {producer_id} is new here, its first sequence is {base_sequence} instead of 0"
                )
            return None
        last = batches[-1]
        if epoch != last.epoch:
            if epoch < last.epoch:
                raise InvalidProducerEpochError(f"producer {producer_id} has epoch {last.epoch}, the batch {epoch}")
            if base_sequence != 0:
                raise OutOfOrderSequenceError(
                    f"producer {producer_id} begins epoch {epoch} with sequence {base_sequence} instead of 0"
                )
            return None
        if base_sequence == (last.last_sequence + 1) % SEQUENCE_MODULUS:
            return None
        last_sequence = (base_sequence + last_offset_delta) % SEQUENCE_MODULUS
        for batch in batches[-DUPLICATES_COUNT:]:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence and batch.epoch == epoch:
                return batch
        raise OutOfOrderSequenceError(
            f"producer {producer_id} sent sequence {base_sequence}, after {last.last_sequence}"
        )

    def append(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        index: int,
        base_offset: int,
        timestamp_ms: int,
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
        while self._producers:
            producer_id, batches = self._producers.popitem()
            if batches[-1].log_index < index:
                self._producers[producer_id] = batches
                break
            if batches := _up_to(index - 1, batches):
                kept.append((producer_id, batches))
        if kept:
            # The order of the last write must be true again.
            self._producers = dict(sorted((*self._producers.items(), *kept), key=_last_index))

    def forget_before(self, timestamp_ms: int) -> int:
        """Forget producers whose last batch is committed and older than `timestamp_ms`; return how many.

        At most `FORGOTTEN_AT_ONCE`: there may be more then.
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
        return tuple(self._producers.get(producer_id, ()))

    def producer_ids(self) -> Iterable[int]:
        """Return the known ids, the one that wrote longest ago first."""
        return self._producers.keys()

    def image(self) -> ProducerImage:
        """Return what is known now, committed or not."""
        return ProducerImage(dict(self._producers), self.applied_index, self.commit_index, self.forgotten_id_max)

    def committed(self) -> ProducerImage:
        """Return what is known of the committed entries."""
        applied_index = min(self.applied_index, self.commit_index)
        return ProducerImage(dict(self._producers), applied_index, self.commit_index, self.forgotten_id_max)

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
                    table._producers[key] = tuple([ProducerBatch._make(batch) for batch in batches])
                if not position % PIECE:
                    yield
            if reader.tell() != len(blob):
                raise ValueError("something follows it")
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptBatchError(f"saved producer table cannot be read: {error}") from error
        if version == _BLOB_VERSION_WITH_A_FLAG:
            table.forgotten_id_max = -1 if table.forgotten_id_max else ANY_ID
        elif version != _BLOB_VERSION:
            raise CorruptBatchError(f"saved producer table has version {version}, this is {_BLOB_VERSION}")
        return table

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._producers))
        # An uncommitted first writer stays, or truncation could not bring back what was before it.
        if self._producers[oldest][-1].log_index <= self.commit_index:
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


def _last_index(pair: tuple[int, tuple[ProducerBatch, ...]]) -> int:
    return pair[1][-1].log_index
