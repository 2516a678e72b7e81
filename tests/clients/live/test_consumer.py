"""Reading without a group hands out the right records, and moves the position."""

import asyncio

import pytest

from barnabas_clients import Admin
from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.consumer.errors import NotAssignedError
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.protocol.errors import OffsetOutOfRangeError
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression

from .batches import append, append_values
from .conftest import MakeTopic

VALUES = [b"%d" % number for number in range(1_000)]


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Return the next `count` records by `async for`."""
    found = []
    async with asyncio.timeout(30):
        async for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return found


async def test_every_record_of_every_partition_is_iterated_once(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic(3)
    for partition in range(3):
        await append_values(bootstrap, name, VALUES, partition=partition)
    async with Consumer(bootstrap, topics=[name], auto_offset_reset="earliest") as consumer:
        found = await read(consumer, 3_000)
        assert await consumer.get_many(timeout_s=0.1) == {}
    for partition in range(3):
        assert [record.value for record in found if record.partition == partition] == VALUES
        assert [record.offset for record in found if record.partition == partition] == list(range(1_000))
    assert {record.topic for record in found} == {name}
    assert found[0].timestamp_ms == 1_700_000_000_000


@pytest.mark.parametrize("compression", list(Compression))
async def test_keys_headers_and_nulls_come_as_they_were_written(
    bootstrap: str, make_topic: MakeTopic, compression: Compression
) -> None:
    name = await make_topic()
    written = [
        NewRecord(None, None, 5),
        NewRecord(b"", b"", 4, [("", None)]),
        NewRecord(b"k" * 300, b"v" * 70_000, 1_700_000_000_000, [("a", b"1"), ("a", b""), ("\N{SNOWMAN}", b"x" * 200)]),
    ]
    await append(bootstrap, name, 0, build_batch(written, compression=compression))
    async with Consumer(bootstrap, topics=[name], auto_offset_reset="earliest") as consumer:
        found = await read(consumer, 3)
    assert [NewRecord(record.key, record.value, record.timestamp_ms, list(record.headers)) for record in found] == [
        record._replace(headers=list(record.headers)) for record in written
    ]


async def test_batches_and_many_give_what_iteration_gives(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)
    async with Consumer(bootstrap, topics=[name], auto_offset_reset="earliest") as consumer:
        found = await read(consumer, 7)
        many = await consumer.get_many(max_records=13, timeout_s=30)
        found += many[TopicPartition(name, 0)]
        assert len(found) == 20
        async for batch in consumer.batches(max_records=300):
            assert len(batch) <= 300
            found += batch
            assert batch.next_offset == batch[-1].offset + 1
            if len(found) == 1_000:
                break
    assert [record.value for record in found] == VALUES


async def test_new_records_are_waited_for(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    async with Consumer(bootstrap) as consumer:
        await consumer.assign([(name, 0)])
        assert await consumer.position(TopicPartition(name, 0)) == 0
        waiting = asyncio.ensure_future(read(consumer, 1))
        await append_values(bootstrap, name, [b"late"])
        assert [record.value for record in await waiting] == [b"late"]


async def test_latest_begins_behind_what_is_there(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    partition = TopicPartition(name, 0)
    await append_values(bootstrap, name, VALUES[:10])
    async with Consumer(bootstrap, topics=[name]) as consumer:
        assert await consumer.position(partition) == 10
        assert await consumer.lag() == {partition: 0}
        await append_values(bootstrap, name, [b"new"])
        assert await consumer.lag() == {partition: 1}
        assert [record.value for record in await read(consumer, 1)] == [b"new"]


async def test_seeking_moves_at_once_whatever_is_buffered(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    partition = TopicPartition(name, 0)
    await append_values(bootstrap, name, VALUES)
    async with Consumer(bootstrap, topics=[name], auto_offset_reset="earliest") as consumer:
        assert (await read(consumer, 5))[-1].offset == 4
        assert await consumer.position(partition) == 5
        await consumer.seek(partition, 777)
        assert [record.offset for record in await read(consumer, 3)] == [777, 778, 779]
        await consumer.seek_to_time(1_700_000_000_500)
        assert (await read(consumer, 1))[0].offset == 500
        await consumer.seek_to_time(1_800_000_000_000)
        assert await consumer.position(partition) == 1_000
        await consumer.seek_to_beginning(partition)
        assert (await read(consumer, 1))[0].offset == 0
        await consumer.seek_to_end()
        assert await consumer.get_many(timeout_s=0.05) == {}
        with pytest.raises(NotAssignedError):
            await consumer.seek(TopicPartition(name, 1), 0)


async def test_a_paused_partition_keeps_its_place(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic(2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    for partition in (0, 1):
        await append_values(bootstrap, name, VALUES, partition=partition)
    async with Consumer(bootstrap, topics=[name], auto_offset_reset="earliest") as consumer:
        (record,) = await read(consumer, 1)
        paused, other = (first, second) if record.partition == 0 else (second, first)
        consumer.pause(paused)
        assert consumer.paused == {paused}
        assert {record.partition for record in await read(consumer, 1_000)} == {other.partition}
        assert await consumer.get_many(timeout_s=0.05) == {}
        consumer.resume(paused)
        assert [record.offset for record in await read(consumer, 999)] == list(range(1, 1_000))


async def test_an_offset_that_is_not_there_follows_the_policy(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    partition = TopicPartition(name, 0)
    await append_values(bootstrap, name, VALUES[:10])
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([partition])
        await consumer.seek(partition, 5_000)
        assert (await read(consumer, 1))[0].offset == 0
    async with Consumer(bootstrap, auto_offset_reset="none") as strict:
        await strict.assign([partition])
        await strict.seek(partition, 5_000)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=f"{name}-0 at 5000"):
                await read(strict, 1)
        await strict.seek(partition, 3)
        assert (await read(strict, 1))[0].offset == 3


async def test_offsets_are_looked_up_for_any_partition(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    partition = TopicPartition(name, 0)
    await append_values(bootstrap, name, VALUES[:10])
    async with Consumer(bootstrap) as consumer:
        assert await consumer.begin_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 10}
        found = await consumer.offsets_for_times({partition: 1_700_000_000_004})
        place = found[partition]
        assert place is not None
        assert (place.offset, place.timestamp_ms) == (4, 1_700_000_000_004)
        assert await consumer.offsets_for_times({partition: 1_800_000_000_000}) == {partition: None}


async def test_a_record_larger_than_every_limit_arrives(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, [b"s", b"x" * 900_000, b"t"], batch_records=1)
    async with Consumer(
        bootstrap, topics=[name], auto_offset_reset="earliest", partition_fetch_bytes=1_000, buffer_bytes=2_000
    ) as consumer:
        assert [len(record.value or b"") for record in await read(consumer, 3)] == [1, 900_000, 1]


async def test_a_topic_that_is_created_later_is_found(bootstrap: str, group_id: str) -> None:
    name = f"live-{group_id}"
    async with (
        Admin(bootstrap) as admin,
        Consumer(bootstrap, topics=[name], metadata_max_age_s=0.1, timeout_s=1.5) as consumer,
    ):
        with pytest.raises(DeadlineExceededError, match=f"there is no topic {name}"):
            await anext(consumer)
        await admin.create_topic(name)
        await append_values(bootstrap, name, [b"from the beginning"])
        async with asyncio.timeout(20):
            while not (found := await consumer.get_many(timeout_s=0.1)):
                pass
        assert found[TopicPartition(name, 0)][0].value == b"from the beginning"
        await admin.delete_topics([name])
