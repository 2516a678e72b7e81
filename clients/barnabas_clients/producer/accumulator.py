"""Collects records in batches, and counts the memory that they take. Pure.

A record is encoded when it is given: its bytes go to the end of its batch's buffer, in the layout of the wire
(`barnabas_raftlog.records.builder` describes it), by the walker's `OpenRecords`, which is compiled where it can be.
So a record costs no object of its own here, and a batch is sent from the buffer in which it was collected. The first 61
bytes are left free for the header.

*Memory.* A batch that is opened is charged with all that it may come to hold. When it is complete, the unused part is
given back. Nothing is charged per record, so there is nothing to check per record either. A `bytearray` that grows
keeps up to an eighth in reserve, so only eight ninths of the limit are handed out. Compressing a batch holds both forms
of it for a moment, one batch at a time.

*One batch is open* per partition at most. It is complete when a record does not fit, or when the sender takes it
because its time has come (`is_due`). While the partition has more than enough on the wire, it goes on filling.

Not here: the choice of a partition (partitioner.py), the numbers of batches (sequences.py), and when to send.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from barnabas_clients.arguments import INT64_MAX, Bytes
from barnabas_raftlog.records.builder import write_header
from barnabas_raftlog.records.compression import DECOMPRESSED_BYTES_MAX, Compression, compress
from barnabas_raftlog.records.header import HEADER_BYTES, parse_header
from barnabas_raftlog.records.reader import batch_body
from barnabas_raftlog.records.walker.batch_frame import BatchFrame
from barnabas_raftlog.records.walker.twins import OpenRecords, take_records

from .encoded import EncodedBatch, Frame
from .sequences import Sequences, UnderWay

__all__ = ["RECORD_OVERHEAD_BYTES", "Accumulator", "Batch", "PartitionQueue", "headers_size"]

RECORD_OVERHEAD_BYTES: Final = 40
"""More than the framing of any record without headers: six varints of up to 5 bytes, one of up to 10, and a byte."""
_HEADER_OVERHEAD_BYTES: Final = 10
_Record = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp in milliseconds, key, value and headers."""


class Batch(OpenRecords):
    """Records of one partition that share one fate.

    A batch is open (it takes records), complete, encoded (`frame`), and then done. When it is done, either `error` is
    set or the records have the offsets from `base_offset` on (-1: not known). `append_time_ms` is -1 unless the broker
    set the time. A batch that the broker found too large is the `whole` of its `parts`, entries of (first index,
    batch), and is done when they are.
    """

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "charged_bytes",
        "error",
        "frame",
        "is_done",
        "is_observed",
        "last_error",
        "observers",
        "opened_at_s",
        "parts",
        "queue",
        "under_way",
        "whole",
    )

    def __init__(self, queue: "PartitionQueue", limit_bytes: int, opened_at_s: float) -> None:
        super().__init__(limit_bytes, HEADER_BYTES)
        self.queue = queue
        self.opened_at_s = opened_at_s
        self.charged_bytes = limit_bytes
        self.frame: Frame | None = None
        self.base_offset = -1
        self.append_time_ms = -1
        self.is_done = False
        self.is_observed = False
        self.error: Exception | None = None
        self.last_error: Exception | None = None
        self.observers: list[Callable[[], object]] = []
        self.parts: list[tuple[int, Batch]] = []
        self.whole: Batch | None = None
        self.under_way: UnderWay[Batch] | None = None

    @property
    def is_watched(self) -> bool:
        """True if a caller has asked for the outcome of one of its records, or will be told it."""
        batch: Batch | None = self
        while batch is not None and not batch.is_observed:
            batch = batch.whole
        return batch is not None

    @property
    def may_be_written(self) -> bool:
        """True if it is not done, and an attempt to send it is out or may have appended it."""
        under_way = self.under_way
        return under_way is not None and (under_way.is_out or under_way.may_be_appended)

    @property
    def trouble(self) -> str:
        """The reason of the latest failure, for people."""
        return str(self.last_error or "no answer")

    @property
    def size_bytes(self) -> int:
        """The size on the wire; without compression until it is encoded."""
        return len(self.buffer if self.frame is None else self.frame)

    def encode(self, compression: Compression) -> None:
        """Compress the records, once. `number` then makes a batch that can be sent."""
        assert self.frame is None
        assert self.count
        if compression is Compression.NONE:
            self.frame = self.buffer
        else:
            with memoryview(self.buffer) as view, view[HEADER_BYTES:] as body:
                content = compress(compression, body)
            self.frame = bytearray(HEADER_BYTES)
            self.frame += content
        self.buffer = bytearray()

    def number(self, attributes: int, producer_id: int, epoch: int, base_sequence: int) -> Frame:
        """Write the header and return the whole batch, whose memory stays ours: nobody may hold it at the next call.

        `attributes` name the compression, and say whether it is one of a transaction.
        """
        frame = self.frame
        assert frame is not None
        write_header(
            frame,
            attributes=attributes,
            record_count=self.count,
            base_timestamp=self.base_timestamp_ms,
            max_timestamp=self.max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
        )
        return frame

    def settle(self) -> None:
        """Let go of the records and call the observers. `base_offset` or `error` is set by now."""
        assert not self.is_done
        self.is_done = True
        self.buffer = bytearray()
        self.frame = None
        observers, self.observers = self.observers, []
        for observer in observers:
            observer()


class PartitionQueue:
    """All undelivered batches of one partition, in this order: `sequences.pipeline`, `waiting`, `open`.

    `is_due`: the open batch is to be sent although there is room in it. `not_before_s`: nothing is sent until then.
    `used_at_s`: the time when the last new batch was sent. `on_taken`: called when the next one is, and then forgotten.
    """

    __slots__ = (
        "failures",
        "is_due",
        "not_before_s",
        "on_taken",
        "open",
        "partition",
        "sequences",
        "topic",
        "used_at_s",
        "waiting",
        "waiting_bytes",
        "was_lost",
    )

    def __init__(self, topic: str, partition: int, sequences: Sequences[Batch]) -> None:
        self.topic = topic
        self.partition = partition
        self.sequences = sequences
        self.open: Batch | None = None
        self.waiting: deque[Batch] = deque()
        self.waiting_bytes = 0
        self.on_taken: list[Callable[[], object]] = []
        self.is_due = False
        self.was_lost = False
        self.not_before_s = 0.0
        self.used_at_s = 0.0
        self.failures = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def has_something_to_send(self) -> bool:
        """True if a batch is complete, due, or back; it need not be possible to send it now."""
        return bool(
            self.waiting
            or (self.is_due and self.open is not None)
            or any(not batch.is_out for batch in self.sequences.pipeline)
        )

    @property
    def next_bytes(self) -> int:
        """The most bytes that the next batch may take in a request; 0 if there is none."""
        for under_way in self.sequences.pipeline:
            if not under_way.is_out:
                return under_way.item.size_bytes
        first = self.waiting[0] if self.waiting else self.open
        return 0 if first is None else first.size_bytes


class Accumulator:
    """All queues of a producer and the memory they share. `used_bytes` never exceeds `limit_bytes`."""

    __slots__ = ("_batch_bytes", "_limit_bytes", "incomplete", "used_bytes")

    def __init__(self, buffer_bytes: int, batch_bytes: int) -> None:
        self._limit_bytes = buffer_bytes * 8 // 9
        self._batch_bytes = batch_bytes
        self.used_bytes = 0
        self.incomplete: dict[Batch, None] = {}
        """All batches that are not done, in the order in which they were opened."""

    @property
    def record_bytes_max(self) -> int:
        """The size of the largest record for which there can ever be room."""
        return self._limit_bytes - HEADER_BYTES

    @staticmethod
    def size_of(key: Bytes | None, value: Bytes | None, headers: Sequence[tuple[str, Bytes | None]]) -> int:
        """Return an upper bound of the size of a record, framing included."""
        return RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + headers_size(headers)

    def has_room(self, record_bytes: int) -> bool:
        """Say whether there is room for a batch with a record of at most this size, framing included."""
        return self.used_bytes + max(self._batch_bytes, record_bytes + HEADER_BYTES) <= self._limit_bytes

    def open(self, queue: PartitionQueue, record_bytes: int, now_s: float) -> Batch:
        """Open a batch with room for such a record. `has_room` must be true."""
        assert queue.open is None
        assert self.has_room(record_bytes)
        batch = Batch(queue, max(self._batch_bytes, record_bytes + HEADER_BYTES), now_s)
        self.used_bytes += batch.charged_bytes
        queue.open = batch
        self.incomplete[batch] = None
        return batch

    def adopt(self, queue: PartitionQueue, encoded: EncodedBatch, now_s: float) -> Batch:
        """Put a batch that was encoded elsewhere behind those of a queue. There must be room for it."""
        assert queue.open is None
        size_bytes = len(encoded.frame)
        assert self.has_room(size_bytes - HEADER_BYTES)
        batch = Batch(queue, size_bytes, now_s)
        batch.frame = encoded.frame
        batch.count = encoded.record_count
        batch.base_timestamp_ms = encoded.base_timestamp_ms
        batch.max_timestamp_ms = encoded.max_timestamp_ms
        self.used_bytes += batch.charged_bytes
        self.incomplete[batch] = None
        self._wait(batch)
        return batch

    def complete(self, queue: PartitionQueue) -> None:
        """Take no more records into the open batch, which waits for its turn."""
        batch = queue.open
        assert batch is not None
        assert batch.count
        queue.open = None
        queue.is_due = False
        batch.trim()
        self._charge(batch, len(batch.buffer))
        self._wait(batch)

    def take(self, queue: PartitionQueue) -> Batch | None:
        """Return the next batch that has not been sent yet, if one is complete or due."""
        if not queue.waiting:
            if queue.open is None or not queue.is_due:
                return None
            self.complete(queue)
        batch = queue.waiting.popleft()
        queue.waiting_bytes -= batch.charged_bytes
        if queue.on_taken:
            observers, queue.on_taken = queue.on_taken, []
            for observer in observers:
                observer()
        return batch

    def withdraw(self, batch: Batch) -> None:
        """Take a batch that was never sent out of its queue."""
        queue = batch.queue
        if queue.open is batch:
            queue.open = None
            queue.is_due = False
        else:
            queue.waiting.remove(batch)
            queue.waiting_bytes -= batch.charged_bytes

    def discard(self, batch: Batch) -> None:
        """Forget an open batch that has no records."""
        assert not batch.count
        self.withdraw(batch)
        self.release(batch)
        del self.incomplete[batch]

    def release(self, batch: Batch) -> None:
        """Give back the memory of a batch; nothing holds its bytes any more."""
        self._charge(batch, 0)

    def split(self, batch: Batch, compression: Compression, producer: tuple[int, int, int]) -> list[Batch]:
        """Return two batches with the records of one that is too large and has at least two."""
        assert batch.count > 1
        records = _records_of(batch.number(compression, *producer))
        middle = len(records) // 2
        parts = []
        for start, chosen in ((0, records[:middle]), (middle, records[middle:])):
            part = _batch_of(batch, chosen)
            part.encode(compression)
            part.whole = batch
            self.used_bytes += part.charged_bytes
            self.incomplete[part] = None
            batch.parts.append((start, part))
            parts.append(part)
        batch.frame = None
        return parts

    def _wait(self, batch: Batch) -> None:
        batch.queue.waiting.append(batch)
        batch.queue.waiting_bytes += batch.charged_bytes

    def _charge(self, batch: Batch, size_bytes: int) -> None:
        self.used_bytes += size_bytes - batch.charged_bytes
        batch.charged_bytes = size_bytes
        assert self.used_bytes >= 0


def headers_size(headers: Sequence[tuple[str, Bytes | None]]) -> int:
    """Return an upper bound of the encoded size of headers."""
    return sum(_HEADER_OVERHEAD_BYTES + 4 * len(name) + (0 if said is None else len(said)) for name, said in headers)


def _records_of(frame: Frame) -> list[_Record]:
    """Return what was given for each record of a batch of ours."""
    records: list[_Record] = []
    with memoryview(frame) as view:
        header = parse_header(view)
        body = batch_body(header, view, DECOMPRESSED_BYTES_MAX)
        shared = BatchFrame("", 0, 0, header.last_offset_delta, header.base_timestamp, None, -1)
        # All of them at once, however many headers they have: `send` has taken as many.
        take_records(records, header.record_count, INT64_MAX, body, 0, shared, 0, 0, lambda *fields: fields[3:7])
        if isinstance(body, memoryview):
            body.release()
    return records


def _batch_of(whole: Batch, records: list[_Record]) -> Batch:
    size = sum(Accumulator.size_of(key, value, headers) for _, key, value, headers in records)
    batch = Batch(whole.queue, HEADER_BYTES + size, whole.opened_at_s)
    for record in records:
        index = batch.add(*record)
        assert index >= 0
    batch.charged_bytes = len(batch.buffer)
    return batch
