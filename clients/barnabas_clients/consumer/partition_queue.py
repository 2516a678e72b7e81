"""Holds the position and the fetched records of one assigned partition. Pure.

Three offsets have three different meanings, and the rest of the consumer is about keeping them apart:

* `position`: the next offset to hand out. The application was given everything before it.
* `finished`: the application has finished with everything before it, which it says by coming back for more. Only this
  is committed on its behalf. `finished <= position`, except that a seek sets both.
* `fetch_offset`: where the next fetch begins, behind the buffered records. `position <= fetch_offset`.

All are -1 while the position is unknown. Then `reset` says how to find it: `COMMITTED`, or a timestamp as ListOffsets
takes it.

A fetch in flight is known by its `ticket`. An event that makes its answer useless (a seek, a leader that has moved)
takes the ticket away, and an answer whose ticket nobody holds any more is thrown away.

Limits: `buffered_bytes` counts fetched bytes that were not handed out yet; the fetcher bounds the sum.
"""

from collections import deque

from barnabas_clients.errors import copy_of
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.errors import BarnabasError

from .decoder import FetchedRecords
from .record import ConsumerRecord

__all__ = ["COMMITTED", "UNKNOWN", "PartitionQueue"]

UNKNOWN = -1
COMMITTED = -100
"""As a reset: begin at the group's committed offset. It is no timestamp that ListOffsets knows."""
PREFERRED_S = 300.0
"""Kafka's clients ask the leader again when they renew their metadata, which they do so often."""
LEADER_ONLY_S = 10.0


class PartitionQueue:
    """The state of one partition from its assignment to its end. The module explains the three offsets.

    `found` is the position if it was looked up, and -1 if somebody has named it: as long as `finished` stands there,
    nothing of this partition was read. `high_watermark` is the offset behind the last record that can be read, as of
    the last answer. `epoch` is the leader
    epoch of the record before `position`, for commits. `fetched_epoch` is that of the last batch
    fetched, with which a broker can tell that the log was cut below us (KIP-320). `is_calm` says that the last answer
    brought nothing, and `is_stuck` that its header cannot be passed. `not_before_s` and `failures` are the pause after
    refusals; `failing_since_s` and `reason` are for messages about them. `is_lent` says that records are being handed
    out one by one, so that `position` is not settled. `bytes_max` is how much a request asks for. Until
    `preferred_until_s` the partition is read from the broker `preferred_id`, which the leader has named; until
    `leader_only_until_s` from the leader alone. `headers_taken` is how many headers the records have that were decoded
    last.
    """

    __slots__ = (
        "bytes_max",
        "chunks",
        "committed",
        "epoch",
        "failing_since_s",
        "failure",
        "failures",
        "fetch_offset",
        "fetched_epoch",
        "finished",
        "found",
        "headers_taken",
        "high_watermark",
        "is_calm",
        "is_lent",
        "is_paused",
        "is_ready",
        "is_stuck",
        "leader_only_until_s",
        "not_before_s",
        "partition",
        "position",
        "preferred_id",
        "preferred_until_s",
        "reason",
        "reset",
        "returned",
        "served",
        "ticket",
    )

    def __init__(self, partition: TopicPartition, bytes_max: int) -> None:
        self.partition = partition
        self.position = UNKNOWN
        self.finished = UNKNOWN
        self.found = UNKNOWN
        self.fetch_offset = UNKNOWN
        self.committed = UNKNOWN
        self.high_watermark = UNKNOWN
        self.epoch = -1
        self.fetched_epoch = -1
        self.reset: int | None = None
        self.is_paused = False
        self.is_ready = False
        self.is_calm = False
        self.is_stuck = False
        self.is_lent = False
        self.chunks: deque[FetchedRecords] = deque()
        self.returned: list[ConsumerRecord] = []
        self.headers_taken = 0
        self.bytes_max = bytes_max
        self.ticket: object | None = None
        self.failure: BarnabasError | None = None
        self.not_before_s = 0.0
        self.failures = 0
        self.failing_since_s: float | None = None
        self.reason = "it was not asked for yet"
        self.served = 0
        self.preferred_id = UNKNOWN
        self.preferred_until_s = 0.0
        self.leader_only_until_s = 0.0

    def __repr__(self) -> str:
        return f"<{self.partition} at {self.position}>"

    @property
    def buffered_bytes(self) -> int:
        return sum(chunk.size_bytes for chunk in self.chunks)

    @property
    def has_data(self) -> bool:
        return bool(self.returned or self.chunks or self.failure)

    def begin_at(self, offset: int, epoch: int = -1) -> None:
        """Go to `offset`, and forget records and failures. `epoch` is that of the record before it, if it is known."""
        assert offset >= 0
        self.position = self.finished = self.fetch_offset = offset
        self.found = UNKNOWN
        self.epoch = self.fetched_epoch = epoch
        self.reset = None
        self.drop()
        self.recover()

    def begin_by(self, reset: int) -> None:
        """Forget the position, which is to be found as `reset` says."""
        self.position = self.finished = self.fetch_offset = UNKNOWN
        self.epoch = self.fetched_epoch = -1
        self.reset = reset
        self.drop()
        self.recover()

    def drop(self) -> None:
        """Forget the records fetched ahead, and the fetch in flight. They are fetched again when they are wanted."""
        self.returned = []
        self.chunks.clear()
        self.ticket = None
        self.failure = None
        self.is_calm = self.is_stuck = False
        self.fetch_offset = self.position
        self.fetched_epoch = self.epoch

    def refuse(self, reason: str, now_s: float, pause_s: float) -> None:
        """Note that a request failed, and that the next one waits for `pause_s`."""
        self.ticket = None
        self.failures += 1
        self.not_before_s = now_s + pause_s
        self.reason = reason
        self.failing_since_s = now_s if self.failing_since_s is None else self.failing_since_s

    def recover(self) -> None:
        """Note that a request succeeded, or that there is a reason to ask at once."""
        self.failures = 0
        self.not_before_s = 0.0
        self.failing_since_s = None

    def prefer(self, node_id: int, now_s: float) -> None:
        """Read from a replica that the leader has named (KIP-392), for `PREFERRED_S`."""
        self.preferred_id = node_id
        self.preferred_until_s = now_s + PREFERRED_S

    def leave_preferred(self, now_s: float) -> None:
        """Read from the leader for a while: the replica that it named has failed."""
        if self.preferred_id != UNKNOWN:
            self.preferred_id = UNKNOWN
            self.leader_only_until_s = now_s + LEADER_ONLY_S

    def add(self, chunk: FetchedRecords, bytes_max: int) -> bool:
        """Take the answer of a fetch at `fetch_offset`. Return whether there is something to read in it."""
        assert chunk.start_offset == self.fetch_offset
        if chunk.is_exhausted and chunk.end_offset == self.fetch_offset:
            # There is no whole batch. Brokers older than KIP-74 cut also the first one, which then has to fit.
            self.bytes_max = min(self.bytes_max * 2, 2**31 - 1)
            return False
        self.bytes_max = bytes_max
        # Nothing tells where the batch behind a senseless header begins. A fetch here would bring the header again.
        self.is_stuck = chunk.end_offset == self.fetch_offset
        self.fetch_offset = chunk.end_offset
        if chunk.last_epoch >= 0:
            self.fetched_epoch = chunk.last_epoch
        self.chunks.append(chunk)
        return True

    def take(self, records_max: int) -> tuple[list[ConsumerRecord], int]:
        """Return the next records and the offset behind them; no records if the buffered batches hold none.

        They may be fewer than `records_max`, and more may be buffered: of the next fetch, or behind many headers.

        Does not move `position`: records that were taken are not handed out yet.

        Raises:
            BarnabasError: the record at the position cannot be read. Raised again until something changes that.
        """
        if self.returned:
            records, self.returned = self.returned[:records_max], self.returned[records_max:]
            return records, self.returned[0].offset if self.returned else self._next_buffered(records)
        if not self.chunks:
            if self.failure is not None:
                raise copy_of(self.failure)
            return [], self.position
        chunk = self.chunks[0]
        records = chunk.take(records_max)
        self.headers_taken = chunk.headers_taken
        if chunk.is_exhausted or not records:
            self.chunks.popleft()
            return records, chunk.end_offset
        return records, chunk.next_offset

    def give_back(self, records: list[ConsumerRecord]) -> None:
        """Put the last of the records that were taken back to the front."""
        self.returned = records + self.returned

    def hand_out(self, next_offset: int, epoch: int) -> None:
        """Note that everything before `next_offset` was handed out. `epoch` is the leader epoch of the last record."""
        self.position = next_offset
        self.epoch = epoch

    def to_commit(self, offset: int) -> OffsetAndMetadata:
        return OffsetAndMetadata(offset, "", self.epoch)

    def _next_buffered(self, records: list[ConsumerRecord]) -> int:
        return self.chunks[0].next_offset if self.chunks else max(self.fetch_offset, records[-1].offset + 1)
