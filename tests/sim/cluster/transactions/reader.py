"""A reader of committed records, by hand: what our consumer does not show, and by rules written a second time.

The last stable offset that leaders tell never goes back and is at most the high watermark; nothing at or beyond it is
sent; the aborted transactions come sorted, and of each the marker. Which records are committed is found out from that
list and the batches alone.
"""

from typing import cast

from barnabas_broker.history import events as e
from barnabas_clients.protocol.fetch import PartitionData
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, BatchHeader, parse_header
from barnabas_raftlog.records.markers import read_marker
from barnabas_raftlog.records.reader import read_records
from sim.cluster.clients.client import WireClient
from sim.cluster.clients.workload import Reader
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition

from .telling import Ledger, consumed, name_of

__all__ = ["CommittedReader"]


class CommittedReader(Reader):
    """Reads one partition from its beginning. `found`: the value of each committed record, by offset."""

    isolation_level = 1
    has_holes = False
    """Whether batches may have been emptied by compaction, which nobody is sent."""

    def __init__(
        self,
        client: WireClient,
        history: ClientHistory,
        availability: Availability,
        partition: Partition,
        ledger: Ledger,
        rack: str = "",
    ) -> None:
        super().__init__(client, history, availability, partition, rack)
        self.ledger = ledger
        self.found = dict[int, bytes]()
        self._stable = 0  # as leaders have told
        self._aborting = set[int]()  # producers within a transaction that was aborted
        ledger.tell(e.DeclaredConsumer(consumer=client.name, read_committed=True))
        ledger.tell(e.Positioned(consumer=client.name, partition=name_of(partition), offset=0))

    @property
    def has_all_acknowledged(self) -> bool:
        """Whether it has read everything, and all of that is decided."""
        return self.position == self.high_watermark

    def begin_at(self, offset: int) -> None:
        super().begin_at(offset)
        self._aborting.clear()  # Their markers may be gone; the next answer says what still is aborted.

    def take_records(self, data: PartitionData, *, is_leader: bool) -> None:
        world = self.client.world
        stable = data.last_stable_offset
        if stable > data.high_watermark:
            world.violate(f"{self.partition}: last stable offset {stable}, high watermark {data.high_watermark}")
        if is_leader:
            if stable < self._stable:
                world.violate(f"{self.partition}: last stable offset back from {self._stable} to {stable}")
            self._stable = stable
        aborted = [(row.first_offset, row.producer_id) for row in data.aborted_transactions or ()]
        if aborted != sorted(aborted):
            world.violate(f"{self.partition}: the aborted transactions are not in order: {aborted}")
        records = memoryview(cast("memoryview", data.records or b""))
        position = 0
        while position < len(records):
            header = parse_header(records, position)
            if header.base_offset >= stable:
                world.violate(f"{self.partition}: {header.base_offset} is sent, stable is {stable}")
            while aborted and aborted[0][0] < header.end_offset:
                self._aborting.add(aborted.pop(0)[1])
            self._take_one(header, records[position : position + header.size_bytes])
            position += header.size_bytes
        if self.position == stable:
            self.ledger.tell(
                e.EndReached(consumer=self.client.name, partition=name_of(self.partition), offset=self.position)
            )

    def _take_one(self, header: BatchHeader, frame: memoryview) -> None:
        if header.end_offset <= self.position:
            return
        if header.base_offset > self.position and not self.has_holes:
            self.client.world.violate(f"{self.partition}: {header.base_offset} is sent, and {self.position} was due")
        if header.attributes & CONTROL:
            marker = read_marker(header, frame)
            if marker is not None and not marker.is_commit:
                self.client.world.counts["abort markers read"] += 1
                self._aborting.discard(marker.producer_id)
        elif header.attributes & TRANSACTIONAL and header.producer_id in self._aborting:
            self.client.world.counts["aborted records passed over"] += header.record_count
        else:
            for record in read_records(frame, self.position):
                self.on_record(record.offset, record.key, record.value or b"")
        self.position = header.end_offset

    def on_record(self, offset: int, key: bytes | None, value: bytes) -> None:
        """Take in a committed record."""
        del key
        self.found[offset] = value
        self.ledger.tell(consumed(self.client.name, self.partition, offset, value))
