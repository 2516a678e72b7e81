"""A producer copes with brokers that refuse, forget, fall silent or go away.

The brokers here do as they are told.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from clients.fake_broker import Answer, FakeBroker, FakeCluster, serving

from barnabas_clients import Producer
from barnabas_clients.errors import ClientClosedError, ClientError, DeadlineExceededError
from barnabas_clients.producer import accumulator
from barnabas_clients.producer.delivery import Delivery, RecordsLostError
from barnabas_clients.producer.sequences import Outcome
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import InvalidRecordError, MessageTooLargeError
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_clients.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import read_records

from .naive_leader import Copy, NaiveLeader

Fault = Callable[[int, list[bytes | None]], int | None]
"""(number of the request, from 0; values of the batch) -> an error code, or None to take the batch."""
CODES = {
    Outcome.APPENDED: ErrorCode.NONE,
    Outcome.GAP: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Outcome.FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class Leader(FakeBroker):
    """Leads partition 0 of every topic, and appends what `fault` lets through. `silent` answers nothing at all."""

    def __init__(self, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.table = NaiveLeader(takes_any_first=False)
        self.values: list[bytes | None] = []
        self.offsets: dict[tuple[int, int, int], int] = {}
        self.fault: Fault = lambda _number, _values: None
        self.hint: tuple[int, int, int] | None = None
        self.is_losing_answers = False
        self.silent = asyncio.Event()
        self.silent.set()
        self.answers[ProduceRequest] = self.produce
        self.answers[InitProducerIdRequest] = self.init_producer_id

    async def init_producer_id(self, _: InitProducerIdRequest) -> Answer:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    async def produce(self, request: ProduceRequest) -> Answer:
        await self.silent.wait()
        response = ProduceResponse()
        for topic in request.topic_data:
            rows = [self.append(part.index, part.records) for part in topic.partition_data]
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
            )
        if self.hint is not None:
            node_id, _, port = self.hint
            response.node_endpoints = [NodeEndpoint(node_id=node_id, host="127.0.0.1", port=port)]
        if self.is_losing_answers:
            self.is_losing_answers = False
            self.drop_connections()
        return response

    def append(self, index: int, records: Any) -> PartitionProduceResponse:
        frame = bytes(records)
        header = parse_header(frame)
        values = [record.value for record in read_records(frame)]
        code = self.fault(self.count(ProduceRequest) - 1, values)
        key = (header.producer_epoch, header.base_sequence, header.record_count)
        if code is None:
            before = len(self.table.log)
            copy = Copy(
                item=before,
                size=header.record_count,
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
            code = CODES[self.table.take(copy)]
            if len(self.table.log) > before:
                self.offsets[key] = len(self.values)
                self.values += values
        row = PartitionProduceResponse(index=index, error_code=code, base_offset=self.offsets.get(key, -1))
        if self.hint is not None:
            row.current_leader = LeaderIdAndEpoch(leader_id=self.hint[0], leader_epoch=self.hint[1])
        return row


@contextlib.asynccontextmanager
async def producing(*brokers: Leader, **settings: Any) -> AsyncIterator[Producer]:
    """Open a producer to these brokers, of which the first leads "t"."""
    truth = FakeCluster(*brokers)
    truth.topics["t"] = [(brokers[0].node_id, 1)]
    async with asyncio.timeout(20), serving(*brokers):
        settings = {"linger_s": 0, "timeout_s": 5} | settings
        producer = Producer(f"127.0.0.1:{brokers[0].port}", **settings)
        try:
            async with producer:
                yield producer
        finally:
            for broker in brokers:
                broker.silent.set()


async def test_a_lost_answer_doubles_nothing() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        await producer.send_and_wait("t", b"0")
        leader.is_losing_answers = True
        assert (await producer.send_and_wait("t", b"1")).offset == 1
        assert leader.values == [b"0", b"1"]
        assert producer.metrics().retries == 1


async def test_a_hint_is_followed_without_asking_for_metadata() -> None:
    old, new = Leader(1), Leader(2)
    async with producing(old, new) as producer:
        await producer.send_and_wait("t", b"0")
        asked = old.count(MetadataRequest) + new.count(MetadataRequest)
        old.hint = (2, 5, new.port)
        old.fault = lambda _number, _values: ErrorCode.NOT_LEADER_OR_FOLLOWER
        new.table = old.table
        await producer.send_and_wait("t", b"1")
        assert new.values == [b"1"]
        assert old.count(MetadataRequest) + new.count(MetadataRequest) == asked


async def test_a_batch_that_is_too_large_for_the_topic_is_divided() -> None:
    leader = Leader()
    leader.fault = lambda _number, values: ErrorCode.MESSAGE_TOO_LARGE if len(values) > 3 else None
    async with producing(leader, linger_s=30) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(10)]
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == list(range(10))
        assert leader.values == [b"%d" % number for number in range(10)]
        assert producer.metrics().buffered_bytes == 0


async def test_one_record_that_is_too_large_fails_alone() -> None:
    leader = Leader()
    leader.fault = lambda _number, values: ErrorCode.MESSAGE_TOO_LARGE if b"large" in values else None
    async with producing(leader, linger_s=30) as producer:
        small, large, after = [await producer.send("t", value) for value in (b"small", b"large", b"after")]
        flush = asyncio.create_task(producer.flush())
        with pytest.raises(MessageTooLargeError):
            await large
        assert (await small).offset == 0
        assert (await after).offset == 1
        await flush
        assert leader.values == [b"small", b"after"]


async def test_what_is_refused_for_good_fails_and_what_follows_is_delivered() -> None:
    leader = Leader()
    bad = b"bad".ljust(90)
    leader.fault = lambda _number, values: ErrorCode.INVALID_RECORD if bad in values else None
    async with producing(leader, batch_bytes=100) as producer:
        await producer.send_and_wait("t", b"first")
        values = [b"a".ljust(90), b"b".ljust(90), bad, b"c".ljust(90), b"d".ljust(90)]
        deliveries = [await producer.send("t", value) for value in values]
        with pytest.raises(InvalidRecordError):
            await deliveries.pop(2)
        assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3, 4]


async def test_a_failure_that_nobody_awaits_is_raised_by_the_next_flush_once() -> None:
    leader = Leader()
    leader.fault = lambda _number, values: ErrorCode.INVALID_RECORD if b"bad" in values else None
    async with producing(leader) as producer:
        _ = await producer.send("t", b"bad")
        with pytest.raises(RecordsLostError, match="1 records"):
            await producer.flush()
        await producer.flush()
        awaited = await producer.send("t", b"bad")
        with pytest.raises(InvalidRecordError):
            await awaited
        await producer.flush()


async def test_a_delivery_that_takes_too_long_fails_and_says_why() -> None:
    leader = Leader()
    leader.fault = lambda _number, _values: ErrorCode.NOT_ENOUGH_REPLICAS
    async with producing(leader, delivery_timeout_s=1.5) as producer:
        delivery = await producer.send("t", b"0")
        with pytest.raises(DeadlineExceededError, match=r"t-0 was not acknowledged within 1\.5 s; last: NOT_ENOUGH"):
            await delivery
        leader.fault = lambda _number, _values: None
        assert (await producer.send_and_wait("t", b"1")).offset == 0


async def test_a_producer_without_an_id_says_so_at_the_deadline() -> None:
    leader = Leader()

    async def refuse(_: InitProducerIdRequest) -> Answer:
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    leader.answers[InitProducerIdRequest] = refuse
    async with producing(leader, delivery_timeout_s=1.5) as producer:
        with pytest.raises(DeadlineExceededError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await (await producer.send("t", b"0"))


async def test_text_in_place_of_bytes_is_refused_and_nothing_of_it_is_sent() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        for headers in ((), (("name", "text"),)):
            with pytest.raises(TypeError):
                _ = await producer.send("t", b"value" if headers else "text", headers=headers)  # type: ignore[arg-type]
        assert producer.metrics().buffered_batches == 0
        assert (await producer.send_and_wait("t", b"bytes")).offset == 0
        assert leader.values == [b"bytes"]


async def test_a_batch_that_cannot_be_encoded_fails_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Leader()

    def compress_some(compression: Compression, content: Any) -> Any:
        if b"bad" in bytes(content):
            raise ValueError("no way to compress it")
        return compress(compression, content)

    monkeypatch.setattr(accumulator, "compress", compress_some)
    async with producing(leader, compression="gzip") as producer:
        for name in (b"bad", b"good", b"bad", b"better"):
            delivery = await producer.send("t", name)
            await asyncio.gather(delivery, return_exceptions=True)
            if name == b"bad":
                with pytest.raises(ClientError, match="a batch for t-0 cannot be encoded") as caught:
                    await delivery
                assert not caught.value.may_be_done
                assert isinstance(caught.value.__cause__, ValueError)
        assert leader.values == [b"good", b"better"]
        told = [record for record in caplog.records if record.name == "barnabas_clients.producer"]
        assert [record.getMessage() for record in told] == ["a batch for t-0 cannot be encoded"] * 2
        assert all(record.exc_info for record in told)
        assert producer.metrics().buffered_bytes == 0


async def test_a_full_buffer_makes_send_wait_and_a_cancelled_send_has_taken_nothing() -> None:
    leader = Leader()
    async with producing(leader, buffer_bytes=4_500, batch_bytes=1_000) as producer:
        await producer.send_and_wait("t", b"first")
        leader.silent.clear()
        taken = 0
        with contextlib.suppress(DeadlineExceededError):
            while True:
                _ = await producer.send("t", bytes(800), timeout_s=0.2)
                taken += 1
                assert producer.metrics().buffered_bytes <= 4_500
        assert taken >= 3
        with pytest.raises(DeadlineExceededError, match="no room for a record"):
            _ = await producer.send("t", bytes(800), timeout_s=0.05)
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.05):
                _ = await producer.send("t", b"cancelled", timeout_s=5)
        assert not isinstance(caught.value, DeadlineExceededError)
        assert producer.metrics().sends_waiting == 0
        leader.silent.set()
        assert (await producer.send_and_wait("t", b"last")).offset == taken + 1
        assert b"cancelled" not in leader.values


async def test_cancelling_the_await_of_a_delivery_leaves_the_record_on_its_way() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        await producer.send_and_wait("t", b"first")
        leader.silent.clear()
        delivery = await producer.send("t", b"second")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await delivery
        called: list[Delivery] = []
        delivery.add_done_callback(called.append)
        leader.silent.set()
        first, second = await asyncio.gather(delivery, delivery)
        assert first == second
        assert first.offset == 1
        assert called == [delivery]


async def test_close_ends_in_time_though_the_broker_is_silent() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        await producer.send_and_wait("t", b"first")
        leader.silent.clear()
        delivery = await producer.send("t", b"second")
        with pytest.raises(RecordsLostError, match="closed before"):
            await producer.close(timeout_s=1.0)
        with pytest.raises(ClientClosedError) as caught:
            await delivery
        assert caught.value.may_be_done


async def test_flush_raises_at_its_deadline_and_the_records_go_on() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        await producer.send_and_wait("t", b"first")
        leader.silent.clear()
        delivery = await producer.send("t", b"second")
        with pytest.raises(DeadlineExceededError, match="1 batches were not acknowledged in time"):
            await producer.flush(timeout_s=0.05)
        leader.silent.set()
        assert (await delivery).offset == 1


async def test_a_leader_that_forgot_the_producer_gets_a_new_epoch() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        await producer.send_and_wait("t", b"0")
        leader.table = NaiveLeader(takes_any_first=False)
        assert (await producer.send_and_wait("t", b"1")).offset == 1
        assert producer.metrics().epochs == 1
        assert leader.values == [b"0", b"1"]
