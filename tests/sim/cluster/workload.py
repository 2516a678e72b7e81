"""What clients do with records in a run: produce in several ways, delete, read along, read everything at the end."""

import asyncio
from collections.abc import Callable
from typing import cast

from barnabas_clients.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import read_records

from .client import Trouble, WireClient
from .history import ClientHistory, Partition

__all__ = ["Reader", "delete_records", "produce"]

TIMESTAMP_MS = 1_800_000_000_000
PRODUCE_TIMEOUT_MS = 3_000
LEADER_AGAIN = 0.05  # the chance that a reader asks the leader anew who should serve it


async def produce(
    client: WireClient,
    history: ClientHistory,
    partition: Partition,
    *,
    is_idempotent: bool,
    record_bytes: int,
    pause_ms: int,
    goes_on: Callable[[], bool],
) -> None:
    """Write batch after batch with acks=all; an idempotent producer repeats one until its fate is known."""
    topic, index = partition
    producer_id, epoch = await _producer_id(client) if is_idempotent else (-1, -1)
    sequence = number = 0
    while goes_on():
        values = []
        for _ in range(client.rng.randrange(1, 5)):
            values.append(f"{client.name}-{topic}-{index}-{number}".encode().ljust(record_bytes, b"."))
            history.on_sent(values[-1], partition, client.name, is_idempotent=is_idempotent)
            number += 1
        frame = build_batch(
            (NewRecord(history.key_of(value), value, TIMESTAMP_MS) for value in values),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if is_idempotent else -1,
        )
        while True:
            try:
                offset = await _produce_once(client, partition, frame)
            except Trouble as trouble:
                client.world.note(client.name, f"produce {sequence} to {index}: {trouble}")
                client.forget_leader(topic, index)
                await client.pause()
                if is_idempotent and goes_on():
                    continue
                history.on_unknown(values)
            else:
                client.world.note(client.name, f"produce {sequence} to {index}: at {offset}")
                history.on_acknowledged(values, offset)
            break
        sequence += len(values)
        await asyncio.sleep(client.rng.randrange(pause_ms + 1) / 1000)


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


async def _produce_once(client: WireClient, partition: Partition, frame: bytearray) -> int:
    topic, index = partition
    leader, _ = await client.leader_of(topic, index)
    batch = PartitionProduceData(index=index, records=frame)
    data = TopicProduceData(name=topic, topic_id=client.topic_ids[topic], partition_data=[batch])
    answer = await client.ask(leader, ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data]))
    outcome = answer.responses[0].partition_responses[0]
    code = outcome.error_code
    if code == ErrorCode.NONE:
        offset: int = outcome.base_offset
        return offset
    assert code in RETRIABLE, f"produce to {partition}: {ErrorCode(code).name} {outcome.error_message}"
    raise Trouble(ErrorCode(code).name)


async def delete_records(
    client: WireClient, history: ClientHistory, readers: "list[Reader]", goes_on: Callable[[], bool]
) -> None:
    """Delete from the beginning of partitions what has been read, so that logs start later and laggards miss it."""
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

    def __init__(self, client: WireClient, history: ClientHistory, partition: Partition, rack: str = "") -> None:
        self.client, self.history, self.partition, self.rack = client, history, partition, rack
        self.position = self.high_watermark = 0
        self._told = 0  # the high watermark, by leaders
        self._replica: int | None = None
        history.judge.positioned(client.name, partition, 0)

    @property
    def has_all_acknowledged(self) -> bool:
        return self.position >= self.history.ends.get(self.partition, 0) and self.position == self.high_watermark

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
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics, rack_id=self.rack)
        answer = await self.client.ask(source, request)
        if answer.error_code != ErrorCode.NONE:
            raise Trouble(ErrorCode(answer.error_code).name)
        data = answer.responses[0].partitions[0]
        if data.preferred_read_replica >= 0 and data.error_code == ErrorCode.NONE:
            self._replica = data.preferred_read_replica
            return
        # Metadata may be a guess, and whoever names a rack is served by a replica that follows, too.
        before = self.position
        self._take(data, is_leader=source == leader and not self.rack)
        if source != leader:
            self.client.world.counts["read from replicas"] += self.position - before
        if self.client.rng.random() < LEADER_AGAIN:
            self._replica = None

    def _take(self, data: PartitionData, *, is_leader: bool) -> None:
        code, world = data.error_code, self.client.world
        deleted = self.history.deleted.get(self.partition, 0)
        is_below = self.position < (deleted if is_leader else data.log_start_offset)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and is_below:
            # What it asks for has been deleted: only what an earlier reader has read ever is.
            self.position = max(data.log_start_offset, self.position + 1)
            return
        if code != ErrorCode.NONE:
            # Never OFFSET_OUT_OF_RANGE, also of a replica that is behind: it may have been taken for the leader.
            assert code in RETRIABLE, f"fetch of {self.partition}: {ErrorCode(code).name}"
            raise Trouble(ErrorCode(code).name)
        self.high_watermark = data.high_watermark
        if is_leader:
            self._on_leader_says(data.high_watermark)
        if data.log_start_offset > deleted:
            world.violate(f"{self.partition} starts at {data.log_start_offset}, nobody deleted beyond {deleted}")
        records, position = memoryview(cast("memoryview", data.records or b"")), 0
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
