"""Batches that a caller has encoded keep all promises of a producer's own."""

import asyncio

import pytest

from barnabas_clients import Producer
from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.producer.encoded import HEADER_BYTES as producer_header_bytes  # noqa: N811 - a constant, as its twin
from barnabas_clients.producer.encoded import EncodedBatch
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import MessageTooLargeError, UnknownTopicOrPartitionError
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import HEADER_BYTES

from .test_failures import Leader, producing


def encoded(*values: bytes, compression: Compression = Compression.NONE) -> EncodedBatch:
    frame = build_batch([NewRecord(None, value, 1_000) for value in values], compression=compression)
    frame[:HEADER_BYTES] = bytes(HEADER_BYTES)
    return EncodedBatch(memoryview(frame), len(values), 1_000, 1_000)


async def sent(producer: Producer, *values: bytes) -> tuple[int, Exception] | None:
    delivery = await producer.send_batch("t", 0, encoded(*values))
    await delivery
    assert delivery.done()
    return delivery.failure()


async def test_they_stand_in_line_with_the_records_given_before_and_behind_them() -> None:
    leader = Leader()
    async with producing(leader, linger_s=30) as producer:
        before = await producer.send("t", b"0")
        batch = await producer.send_batch("t", 0, encoded(b"1", b"2"))
        after = await producer.send("t", b"3")
        await producer.flush()
        assert [(await delivery).offset for delivery in (before, after)] == [0, 3]
        assert batch.failure() is None
        assert leader.values == [b"0", b"1", b"2", b"3"]
        assert producer.metrics().records_delivered == 4
        assert producer.metrics().buffered_bytes == 0


async def test_a_lost_answer_doubles_nothing() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        assert await sent(producer, b"0") is None
        leader.is_losing_answers = True
        assert await sent(producer, b"1", b"2") is None
        assert leader.values == [b"0", b"1", b"2"]
        assert producer.metrics().retries == 1


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_one_that_is_too_large_for_the_topic_goes_in_halves(compression: str) -> None:
    leader = Leader()
    leader.fault = lambda _number, values: ErrorCode.MESSAGE_TOO_LARGE if len(values) > 3 else None
    values = [b"%d" % number for number in range(10)]
    async with producing(leader, compression=compression) as producer:
        delivery = await producer.send_batch("t", 0, encoded(*values, compression=Compression[compression.upper()]))
        await delivery
        assert delivery.failure() is None
        assert delivery.halvings == 2
        assert leader.values == values


@pytest.mark.parametrize("large", [0, 4, 6, 9])
async def test_the_record_that_is_too_large_is_named_and_the_others_are_delivered(large: int) -> None:
    leader = Leader()
    leader.fault = lambda _number, values: ErrorCode.MESSAGE_TOO_LARGE if b"large" in values else None
    values = [b"%d" % number for number in range(10)]
    values[large] = b"large"
    async with producing(leader) as producer:
        failure = await sent(producer, *values)
        assert failure is not None
        assert failure[0] == large
        assert isinstance(failure[1], MessageTooLargeError)
        del values[large]
        assert leader.values == values


async def test_one_that_was_refused_is_not_reported_again_by_flush() -> None:
    leader = Leader()
    leader.fault = lambda _number, _values: ErrorCode.INVALID_RECORD
    async with producing(leader) as producer:
        delivery = await producer.send_batch("t", 0, encoded(b"0", b"1"))
        await producer.flush()
        failure = delivery.failure()
        assert failure is not None
        assert failure[0] == 0


async def test_one_that_takes_too_long_fails() -> None:
    leader = Leader()
    leader.silent.clear()
    async with producing(leader, delivery_timeout_s=0.2) as producer:
        failure = await sent(producer, b"0")
        assert failure is not None
        assert isinstance(failure[1], DeadlineExceededError)
        leader.silent.set()


async def test_they_wait_for_room() -> None:
    leader = Leader()
    leader.silent.clear()
    async with producing(leader, buffer_bytes=9_000, batch_bytes=1_000) as producer:
        for _ in range(2):
            _ = await producer.send_batch("t", 0, encoded(bytes(3_500)))
        with pytest.raises(DeadlineExceededError, match="no room"):
            _ = await producer.send_batch("t", 0, encoded(bytes(3_500)), 0.05)
        third = asyncio.create_task(producer.send_batch("t", 0, encoded(bytes(3_500))))
        leader.silent.set()
        await (await third)
        assert leader.values == [bytes(3_500)] * 3


async def test_what_can_never_be_sent_is_refused() -> None:
    leader = Leader()
    async with producing(leader, request_bytes_max=1_000, batch_bytes=500) as producer:
        with pytest.raises(MessageTooLargeError, match="1000 are possible"):
            _ = await producer.send_batch("t", 0, encoded(bytes(1_000)))
        with pytest.raises(UnknownTopicOrPartitionError):
            _ = await producer.send_batch("t", 1, encoded(b"0"))
    with pytest.raises(ClientClosedError):
        _ = await producer.send_batch("t", 0, encoded(b"0"))


async def test_fresh_partitions_are_asked_for_and_others_are_not() -> None:
    leader = Leader()
    async with producing(leader) as producer:
        assert await producer.partitions("t") == 1
        asked = leader.count(MetadataRequest)
        assert await producer.partitions("t") == 1
        assert leader.count(MetadataRequest) == asked
        assert await producer.partitions("t", is_fresh=True) == 1
        assert leader.count(MetadataRequest) == asked + 1


def test_the_header_has_the_size_that_it_has_in_the_log() -> None:
    assert producer_header_bytes == HEADER_BYTES
