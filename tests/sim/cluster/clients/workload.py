"""The work of clients with records: produce, delete, read along, read everything at the end."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from barnabas_clients.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import read_records
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition

from .client import EARLIEST, Trouble, WireClient

__all__ = ["Producer", "Producing", "Reader", "delete_records", "timestamp_ms"]

TIMESTAMP_MS = 1_800_000_000_000
PRODUCE_TIMEOUT_MS = 3_000
LEADER_AGAIN = 0.05  # the chance that a reader asks the leader anew who should serve it
FRAMING_BYTES = 100  # more than a batch has around the value of its only record
TOO_LARGE = 0.3  # the chance that a batch beyond the limit is tried before one at the limit
CLOCKS_APART_MS = 200  # clients stamp their records, by clocks of their own


def timestamp_ms(client: WireClient) -> int:
    """Return what this client writes on a record that it makes now; not every one is later than the one before."""
    return TIMESTAMP_MS + client.world.now_us // 1_000 + client.rng.randrange(CLOCKS_APART_MS)


class Producing(NamedTuple):
    """The way of a producer. `large_every`: of so many batches one is of `message_bytes`, which is the limit."""

    is_idempotent: bool
    record_bytes: int
    pause_ms: int
    large_every: int = 0
    message_bytes: int = 0


class Producer:
    """Writes batch after batch with acks=all; an idempotent one repeats one until its fate is known."""

    def __init__(
        self,
        client: WireClient,
        history: ClientHistory,
        availability: Availability,
        partition: Partition,
        producing: Producing,
    ) -> None:
        self.client = client
        self.history = history
        self.availability = availability
        self.partition = partition
        self.producing = producing
        self._identity = (-1, -1)
        self._sequence = 0
        self._number = 0

    async def run(self, goes_on: Callable[[], bool]) -> None:
        producing = self.producing
        rng = self.client.rng
        if producing.is_idempotent:
            self._identity = await _producer_id(self.client)
        while goes_on():
            if producing.large_every and not rng.randrange(producing.large_every):
                if rng.random() < TOO_LARGE:
                    await self._overstep()
                records = [self._large(producing.message_bytes)]
            else:
                records = [self._record() for _ in range(rng.randrange(1, 5))]
            await self._write(records, goes_on)
            await asyncio.sleep(rng.randrange(producing.pause_ms + 1) / 1000)

    def _record(self, size_bytes: int = 0) -> NewRecord:
        topic, index = self.partition
        client = self.client
        value = f"{client.name}-{topic}-{index}-{self._number}".encode()
        value = value.ljust(size_bytes or self.producing.record_bytes, b".")
        self._number += 1
        return NewRecord(self.history.key_of(value), value, timestamp_ms(client))

    def _frame(self, records: list[NewRecord]) -> bytearray:
        producer_id, epoch = self._identity
        sequence = self._sequence if self.producing.is_idempotent else -1
        return build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    def _large(self, frame_bytes: int) -> NewRecord:
        """Return a record whose batch has so many bytes."""
        size_bytes = frame_bytes - FRAMING_BYTES
        record = self._record(size_bytes)
        missing_bytes = frame_bytes - len(self._frame([record]))
        return record._replace(value=cast("bytes", record.value).ljust(size_bytes + missing_bytes, b"."))

    async def _overstep(self) -> None:
        """Send a batch that is one byte too large: it is refused, and nowhere."""
        record = self._large(self.producing.message_bytes + 1)
        frame = self._frame([record])
        value = cast("bytes", record.value)
        self._tell([record])
        try:
            outcome = await _outcome(self.client, self.partition, frame)
        except Trouble:
            self.client.forget_leader(*self.partition)
        else:
            # A broker that leads no more, or lacks replicas, may say that first.
            code = ErrorCode(outcome.error_code)
            assert code in {*RETRIABLE, ErrorCode.MESSAGE_TOO_LARGE}, f"{len(frame)} bytes: {code.name}"
            self.client.world.counts["too large"] += code == ErrorCode.MESSAGE_TOO_LARGE
        self.history.on_refused(value)

    def _tell(self, records: list[NewRecord]) -> None:
        for record in records:
            self.history.on_sent(
                cast("bytes", record.value),
                self.partition,
                self.client.name,
                is_idempotent=self.producing.is_idempotent,
                timestamp_ms=record.timestamp,
            )

    async def _write(self, records: list[NewRecord], goes_on: Callable[[], bool]) -> None:
        self._tell(records)
        frame = self._frame(records)
        index = self.partition[1]
        values = [cast("bytes", record.value) for record in records]
        client = self.client
        sequence = self._sequence
        self._sequence += len(records)
        while True:
            try:
                offset = await _produce_once(client, self.availability, self.partition, frame)
            except Trouble as trouble:
                client.world.note(client.name, f"produce {sequence} to {index}: {trouble}")
                client.forget_leader(*self.partition)
                await client.pause()
                if self.producing.is_idempotent and goes_on():
                    continue
                self.history.on_unknown(values)
            else:
                client.world.note(client.name, f"produce {sequence} to {index}: at {offset}")
                self.history.on_acknowledged(values, offset)
                client.world.counts["large batches"] += len(frame) == self.producing.message_bytes
            return


async def _producer_id(client: WireClient) -> tuple[int, int]:
    while True:
        try:
            answer = await client.ask_anybody(InitProducerIdRequest(transaction_timeout_ms=60_000))
        except Trouble:
            await client.pause()
            continue
        if answer.error_code == ErrorCode.NONE:
            return answer.producer_id, answer.producer_epoch
        assert answer.error_code in RETRIABLE, ErrorCode(answer.error_code).name
        await client.pause()


async def _outcome(client: WireClient, partition: Partition, frame: bytearray) -> PartitionProduceResponse:
    topic, index = partition
    leader, _ = await client.leader_of(topic, index)
    batch = PartitionProduceData(index=index, records=frame)
    data = TopicProduceData(name=topic, topic_id=client.topic_ids[topic], partition_data=[batch])
    answer = await client.ask(leader, ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data]))
    outcome: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return outcome


async def _produce_once(client: WireClient, availability: Availability, partition: Partition, frame: bytearray) -> int:
    await client.leader_of(*partition)  # Without a leader nothing is sent.
    sent_us = client.world.now_us
    try:
        outcome = await _outcome(client, partition, frame)
    except Trouble as trouble:
        availability.on_unanswered("no refusal", partition, sent_us, trouble)
        raise
    code = ErrorCode(outcome.error_code)
    availability.on_refused(partition, -1, sent_us, code, outcome.error_message or "")
    if code == ErrorCode.NONE:
        return outcome.base_offset
    assert code in RETRIABLE, f"produce to {partition}: {code.name} {outcome.error_message}"
    raise Trouble(code.name)


class HearsOfDeletions(Protocol):
    """Whoever must know what may be gone."""

    def on_delete_sent(self, partition: Partition, offset: int) -> None: ...


async def delete_records(
    client: WireClient, history: HearsOfDeletions, readers: "Sequence[Reader]", goes_on: Callable[[], bool]
) -> None:
    """Delete records that have been read, so that logs start later and laggards miss them."""
    while goes_on():
        await client.pause(200, 1_500)
        reader = client.rng.choice(readers)
        topic, index = reader.partition
        offset = client.rng.randrange(reader.position + 1)
        history.on_delete_sent(reader.partition, offset)
        wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=PRODUCE_TIMEOUT_MS
        )
        try:
            leader, _ = await client.leader_of(topic, index)
            answer = await client.ask(leader, request)
        except Trouble as trouble:
            client.world.note(client.name, f"delete to {offset} in {index}: {trouble}")
            client.forget_leader(topic, index)
            continue
        code = answer.topics[0].partitions[0].error_code
        client.world.note(client.name, f"delete to {offset} in {index}: {ErrorCode(code).name}")
        if code == ErrorCode.NONE:
            client.world.counts["deletions"] += 1
        else:
            assert code in RETRIABLE, f"deletion to {offset}: {ErrorCode(code).name}"
            client.forget_leader(topic, index)


class Reader:
    """Reads one partition from where it starts, for as long as the run lasts.

    With a `rack` it goes to the replica that the leader names, and comes back when that one has no answer for it, or
    now and then, as consumers do. A replica may know an older high watermark than the leader; only the leader's is
    judged.
    """

    isolation_level = 0

    def __init__(
        self,
        client: WireClient,
        history: ClientHistory,
        availability: Availability,
        partition: Partition,
        rack: str = "",
    ) -> None:
        self.client = client
        self.history = history
        self.availability = availability
        self.partition = partition
        self.rack = rack
        self.position = 0
        self.high_watermark = -1  # nobody has said yet how far it goes
        self._told = 0  # the high watermark, by leaders
        self._replica: int | None = None
        history.judge.positioned(client.name, partition, 0)

    @property
    def has_all_acknowledged(self) -> bool:
        return self.position >= self.history.owed_end(self.partition) and self.position == self.high_watermark

    async def run(self) -> None:
        while True:
            try:
                await self._fetch()
            except Trouble as trouble:
                self.client.world.note(self.client.name, f"fetch of {self.partition[1]}: {trouble}")
                self.client.forget_leader(*self.partition)
                self._replica = None
                await self.client.pause()

    async def _fetch(self) -> None:
        topic, index = self.partition
        leader, epoch = await self.client.leader_of(topic, index)
        source = leader if self._replica is None else self._replica
        wanted = FetchPartition(
            partition=index, current_leader_epoch=epoch, fetch_offset=self.position, partition_max_bytes=1 << 20
        )
        topics = [FetchTopic(topic=topic, topic_id=self.client.topic_ids[topic], partitions=[wanted])]
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, isolation_level=self.isolation_level, topics=topics, rack_id=self.rack
        )
        sent_us = self.client.world.now_us
        try:
            answer = await self.client.ask(source, request)
        except Trouble as trouble:
            self.availability.on_unanswered("fetch answered", self.partition, sent_us, trouble)
            raise
        if answer.error_code != ErrorCode.NONE:
            raise Trouble(ErrorCode(answer.error_code).name)
        data = answer.responses[0].partitions[0]
        if data.preferred_read_replica >= 0 and data.error_code == ErrorCode.NONE:
            self._replica = data.preferred_read_replica
            return
        if self.is_below_start(data):
            await self.go_to_start()
            return
        # Metadata may be a guess, and a client that names a rack is served by a replica that follows, too.
        before = self.position
        self.take(data, is_leader=source == leader and not self.rack)
        if source != leader:
            self.client.world.counts["read from replicas"] += self.position - before
        if self.client.rng.random() < LEADER_AGAIN:
            self._replica = None

    def begin_at(self, offset: int) -> None:
        """Go on at the beginning of a log that was cut."""
        self.position = offset

    def is_below_start(self, data: PartitionData) -> bool:
        """Tell whether its records have been deleted: only records that an earlier reader has read ever are."""
        is_deleted = self.position < self.history.deleted.get(self.partition, 0)
        return is_deleted and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    async def go_to_start(self) -> None:
        """Ask where the log begins, and go on there.

        Raises:
            Trouble: an error that passes.
        """
        self._replica = None
        told = await self.client.offset_of(*self.partition, EARLIEST)
        self.begin_at(max(self.position, int(told.offset)))

    def take(self, data: PartitionData, *, is_leader: bool) -> None:
        """Take in the part of a fetch for this partition.

        Raises:
            Trouble: an error that passes.
        """
        code = data.error_code
        world = self.client.world
        deleted = self.history.deleted.get(self.partition, 0)
        if code != ErrorCode.NONE:
            # Never OFFSET_OUT_OF_RANGE, also of a replica that is behind: it may have been taken for the leader.
            assert code in RETRIABLE, f"fetch of {self.partition}: {ErrorCode(code).name}"
            raise Trouble(ErrorCode(code).name)
        self.high_watermark = data.high_watermark
        if is_leader:
            self._on_leader_says(data.high_watermark)
        if data.log_start_offset > deleted:
            world.violate(f"{self.partition} starts at {data.log_start_offset}, nobody deleted beyond {deleted}")
        self.take_records(data, is_leader=is_leader)

    def take_records(self, data: PartitionData, *, is_leader: bool) -> None:
        """Take in what was sent; `is_leader`: by whom the partition is led."""
        records = memoryview(cast("memoryview", data.records or b""))
        position = 0
        while position < len(records):
            header = parse_header(records, position)
            self._take_batch(records[position : position + header.size_bytes], data.high_watermark)
            self._go_to(header.end_offset)
            position += header.size_bytes

    def _take_batch(self, batch: memoryview, high_watermark: int) -> None:
        for record in read_records(batch, self.position):
            self._go_to(record.offset)
            if record.offset >= high_watermark:
                self.client.world.violate(f"{self.partition}: read {record.offset} beyond {high_watermark}")
            self.history.on_read(self.client.name, self.partition, record.offset, record.value or b"")
            self.position = record.offset + 1

    def _go_to(self, offset: int) -> None:
        """Only compaction leaves records out."""
        if offset > self.position and not self.history.compacts:
            self.client.world.violate(f"{self.partition}: read {offset}, and {self.position} was due")
        self.history.on_skipped(self.client.name, self.partition, range(self.position, offset))
        self.position = max(self.position, offset)

    def _on_leader_says(self, high_watermark: int) -> None:
        if high_watermark < self._told:
            self.client.world.violate(f"{self.partition}: high watermark back from {self._told} to {high_watermark}")
        self._told = high_watermark
        self.history.judge.high_watermark(self.client.name, self.partition, high_watermark)
