"""Every kind of record arrives at real brokers, in order, once, in Kafka's partition."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from cancellation import sweep
from clients.leader_requests import request_leader

from barnabas_clients import Producer
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.producer.delivery import RecordsLostError
from barnabas_clients.producer.partitioner import partition_of
from barnabas_clients.protocol.errors import MessageTooLargeError, UnknownTopicOrPartitionError
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_raftlog.records.reader import Record, read_records

from .conftest import TIMEOUT_S, MakeTopic

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
async def producer(bootstrap: str) -> AsyncIterator[Producer]:
    async with Producer(bootstrap, timeout_s=TIMEOUT_S) as opened:
        yield opened


async def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    """Return the first `count` records of a partition, with requests of the plainest kind."""
    found: list[Record] = []
    async with Cluster(bootstrap) as cluster, asyncio.timeout(TIMEOUT_S):
        await cluster.leader(topic, partition, TIMEOUT_S)
        topic_id = cluster.view.topics[topic].topic_id
        assert topic_id is not None
        while len(found) < count:
            wanted = FetchPartition(
                partition=partition, fetch_offset=found[-1].offset + 1 if found else 0, partition_max_bytes=1 << 24
            )
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 25,
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
            )
            answer = await request_leader(cluster, topic, partition, request, TIMEOUT_S)
            for row in answer.responses:
                for part in row.partitions:
                    assert part.error_code == 0
                    found += read_records(part.records or b"", found[-1].offset + 1 if found else 0)
    return found


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_records_of_every_kind_arrive_as_they_were(
    bootstrap: str, make_topic: MakeTopic, compression: str
) -> None:
    topic = await make_topic()
    sent = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (None, None, (("only", b"headers"), ("null", None), ("null", b"again"))),
        (b"", b"", (("", b""),)),
        ("clé".encode(), bytes(200_000), (("größe", b"\x00\xff"),)),
        *((None, b"%d" % number, ()) for number in range(2_000)),
    ]
    async with Producer(bootstrap, compression=compression, timeout_s=TIMEOUT_S) as producer:  # type: ignore[arg-type]
        deliveries = [
            await producer.send(topic, value, key=key, headers=headers, partition=0, timestamp_ms=1_000_000 + index)
            for index, (key, value, headers) in enumerate(sent)
        ]
        await producer.flush()
        receipts = [await delivery for delivery in deliveries]
    assert [receipt.offset for receipt in receipts] == list(range(len(sent)))
    assert [receipt.timestamp_ms for receipt in receipts] == [1_000_000 + index for index in range(len(sent))]
    records = await read(bootstrap, topic, 0, len(sent))
    assert [(record.key, record.value, record.headers) for record in records] == sent
    assert [record.timestamp for record in records] == [receipt.timestamp_ms for receipt in receipts]


async def test_records_without_a_key_reach_every_partition_and_those_with_one_the_same(
    producer: Producer, make_topic: MakeTopic
) -> None:
    topic = await make_topic(3)
    assert await producer.partitions(topic) == 3
    loose = [await producer.send(topic, bytes(1_000)) for _ in range(600)]
    keyed = [(key, await producer.send(topic, b"", key=key)) for key in (b"%d" % number for number in range(50))]
    await producer.flush()
    assert {delivery.partition for delivery in loose} == {0, 1, 2}
    assert [(await delivery).partition for _, delivery in keyed] == [partition_of(key, 3) for key, _ in keyed]


async def test_records_of_one_partition_keep_their_order_while_many_tasks_send(
    bootstrap: str, producer: Producer, make_topic: MakeTopic
) -> None:
    topic = await make_topic()

    async def send(name: int) -> None:
        for number in range(300):
            _ = await producer.send(topic, b"%d" % number, key=b"%d" % name, partition=0)

    async with asyncio.TaskGroup() as group:
        for name in range(5):
            group.create_task(send(name))
    await producer.flush()
    records = await read(bootstrap, topic, 0, 1_500)
    for name in range(5):
        assert [record.value for record in records if record.key == b"%d" % name] == [b"%d" % n for n in range(300)]


@pytest.mark.parametrize("acks", [0, 1])
async def test_weaker_acks_arrive_all_the_same(bootstrap: str, make_topic: MakeTopic, acks: int) -> None:
    topic = await make_topic()
    async with Producer(bootstrap, acks=acks, timeout_s=TIMEOUT_S) as producer:  # type: ignore[arg-type]
        deliveries = [await producer.send(topic, b"%d" % number) for number in range(5_000)]
    assert [(await delivery).offset for delivery in deliveries] == ([-1] * 5_000 if acks == 0 else list(range(5_000)))
    assert len(await read(bootstrap, topic, 0, 5_000)) == 5_000


async def test_the_largest_record_goes_and_a_larger_one_is_refused(producer: Producer, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    assert (await producer.send_and_wait(topic, bytes(1_048_576 - 200))).offset == 0
    with pytest.raises(MessageTooLargeError, match="1048576"):
        _ = await producer.send(topic, bytes(1_048_576))
    assert (await producer.send_and_wait(topic, b"goes on")).offset == 1


async def test_a_partition_that_does_not_exist_is_refused_at_once(producer: Producer, make_topic: MakeTopic) -> None:
    topic = await make_topic(2)
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1, not 2"):
        _ = await producer.send(topic, b"", partition=2)


async def test_a_topic_that_cannot_exist_is_told_apart_from_one_that_is_missing(producer: Producer) -> None:
    with pytest.raises(Exception, match=r"INVALID_TOPIC|UNKNOWN_TOPIC"):
        _ = await producer.send("no such topic: spaces", b"", timeout_s=1)


async def test_small_memory_is_enough_for_many_records(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = await make_topic(2)
    async with Producer(bootstrap, buffer_bytes=40_000, batch_bytes=8_000, timeout_s=TIMEOUT_S) as producer:
        for _ in range(2_000):
            _ = await producer.send(topic, bytes(1_000))
            assert producer.metrics().buffered_bytes <= 40_000
        await producer.flush()
        assert producer.metrics().records_delivered == 2_000
        assert producer.metrics().buffered_bytes == 0


async def test_sending_after_close_says_so_and_closing_twice_is_harmless(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    producer = Producer(bootstrap, timeout_s=TIMEOUT_S)
    with pytest.raises(ClientClosedError, match="not open"):
        _ = await producer.send(topic, b"")
    async with producer:
        delivery = await producer.send(topic, b"sent")
        await producer.close()
        assert (await delivery).offset == 0
        with pytest.raises(ClientClosedError, match="closed"):
            _ = await producer.send(topic, b"")
        await producer.close()


async def test_close_without_time_fails_what_is_under_way(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    producer = Producer(bootstrap, linger_s=60, timeout_s=TIMEOUT_S)
    async with producer:
        await producer.send_and_wait(topic, b"")
        delivery = await producer.send(topic, b"never sent")
        with pytest.raises(RecordsLostError, match="1 records"):
            await producer.close(timeout_s=0)
        with pytest.raises(ClientClosedError, match="before a batch"):
            await delivery


async def test_each_call_can_be_cancelled_anywhere(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = await make_topic(2)
    async with Producer(bootstrap, timeout_s=TIMEOUT_S) as producer:
        await producer.send_and_wait(topic, b"warm")

        async def usable() -> None:
            await producer.send_and_wait(topic, b"usable")

        async def deliver() -> None:
            await (await producer.send(topic, b"x"))

        async def many() -> None:
            for _ in range(300):
                _ = await producer.send(topic, bytes(1_000))
            await producer.flush()

        for call in (deliver, many, lambda: producer.send_and_wait(topic, b"x"), lambda: producer.partitions(topic)):
            await sweep(call, usable)


async def test_opening_sending_and_closing_can_be_cancelled_anywhere(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = await make_topic()

    async def use() -> None:
        async with Producer(bootstrap, timeout_s=TIMEOUT_S) as producer:
            await producer.send_and_wait(topic, b"x")

    assert await sweep(use, use) > 3


async def test_a_deadline_ends_a_send_and_names_what_it_waited_for(producer: Producer, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    with pytest.raises(DeadlineExceededError, match="metadata of topic"):
        _ = await producer.send(topic, b"", timeout_s=0)
    assert (await producer.send_and_wait(topic, b"")).offset == 0
