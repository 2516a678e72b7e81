"""What clients see of records that a topic does not take, and of the time at which it took them."""

import asyncio
import time

import confluent_kafka
import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients import Consumer, InvalidRecordError, Producer, TopicPartition
from barnabas_clients.producer.encoded import EncodedBatch
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.reader import read_records
from barnabas_spark.clusters import close_all
from barnabas_spark.options.reads import parse_read_options
from barnabas_spark.planning.plan import Split
from barnabas_spark.reading.reader import read_split
from broker.wire_client import Wire, batch


async def test_a_record_without_a_key_is_refused_by_a_compacted_topic_and_its_neighbours_hear_why(
    one_broker: RunningCluster, wire: Wire, topic: str
) -> None:
    wire.create(f"{topic}-keyed", cleanup_policy="compact")
    async with Producer(one_broker.bootstrap, linger_s=60) as producer:
        sent = [await producer.send(f"{topic}-keyed", b"v", key=key) for key in (b"a", None, b"c")]
        flushing = asyncio.create_task(producer.flush())
        errors = await asyncio.gather(*sent, return_exceptions=True)
        await flushing
        receipt = await producer.send_and_wait(f"{topic}-keyed", b"v", key=b"a")
    assert receipt.offset == 0
    assert all(isinstance(error, InvalidRecordError) for error in errors)
    first, own, last = errors
    assert isinstance(own, InvalidRecordError)
    assert own.reason == f"{topic}-keyed-0: no key, and the topic is compacted"
    assert list(own.record_errors) == [1]
    assert (own.because_of_another, own.retriable, own.may_be_done) == (False, False, False)
    for error in (first, last):
        assert isinstance(error, InvalidRecordError)
        assert error.because_of_another
        assert error.reason == f"another record of its batch was refused: {own.reason}"
        assert error.hint == "send it again, without the record that was refused"


async def test_of_a_batch_that_came_encoded_the_first_record_that_is_refused_is_named(
    one_broker: RunningCluster, wire: Wire, topic: str
) -> None:
    wire.create(f"{topic}-keyed", cleanup_policy="compact")
    frame = build_batch([NewRecord(key, b"v", 1_000) for key in (b"a", b"b", None, None)])
    async with Producer(one_broker.bootstrap) as producer:
        delivery = await producer.send_batch(f"{topic}-keyed", 0, EncodedBatch(memoryview(frame), 4, 1_000, 1_000))
        await delivery
    failure = delivery.failure()
    assert failure is not None
    assert failure[0] == 2
    assert isinstance(failure[1], InvalidRecordError)
    assert failure[1].reason == f"{topic}-keyed-0: no key, and the topic is compacted"


@pytest.fixture
def stamped(wire: Wire, topic: str) -> str:
    wire.create(f"{topic}-stamped", message_timestamp_type="LogAppendTime")
    return f"{topic}-stamped"


def test_a_repetition_arrived_when_its_original_did(wire: Wire, stamped: str) -> None:
    frame = batch(2, timestamp=5, producer_id=7, epoch=0, sequence=0)
    before_ms = int(time.time() * 1000)
    first = wire.produce(stamped, frame)
    later = wire.produce(stamped, batch(1, timestamp=5, producer_id=7, epoch=0, sequence=2))
    again = wire.produce(stamped, frame)
    assert (first.base_offset, later.base_offset, again.base_offset) == (0, 2, 0)
    assert before_ms <= first.log_append_time_ms == again.log_append_time_ms <= later.log_append_time_ms
    records = list(read_records(wire.fetch(stamped, 0).records))
    assert [record.timestamp for record in records] == [first.log_append_time_ms] * 2 + [later.log_append_time_ms]


@pytest.mark.slow
async def test_everybody_sees_the_time_of_arrival(one_broker: RunningCluster, wire: Wire, stamped: str) -> None:
    partition = TopicPartition(stamped, 0)
    began_ms = int(time.time() * 1000)
    async with Producer(one_broker.bootstrap) as producer:
        receipts = [await producer.send_and_wait(stamped, b"v", timestamp_ms=at_ms) for at_ms in (9, 5)]
    times = [receipt.timestamp_ms for receipt in receipts]
    assert began_ms <= times[0] <= times[1]
    async with Consumer(one_broker.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([partition])
        assert [(await anext(consumer)).timestamp_ms for _ in times] == times
        found = await consumer.offsets_for_times({partition: began_ms})
        place = found[partition]
        assert place is not None
        assert (place.offset, place.timestamp_ms) == (0, times[0])
        assert await consumer.offsets_for_times({partition: times[1] + 1}) == {partition: None}
    librdkafka = confluent_kafka.Consumer({"bootstrap.servers": one_broker.bootstrap, "group.id": "unused"})
    librdkafka.assign([confluent_kafka.TopicPartition(stamped, 0, 0)])
    messages = librdkafka.consume(2, 20)
    librdkafka.close()
    kind = confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert [message.timestamp() for message in messages] == [(kind, at_ms) for at_ms in times]


@pytest.mark.slow
def test_spark_sees_the_time_of_arrival_and_its_type(one_broker: RunningCluster, wire: Wire, stamped: str) -> None:
    at_ms = wire.produce(stamped, batch(2, timestamp=5)).log_append_time_ms
    options = parse_read_options({"kafka.bootstrap.servers": one_broker.bootstrap, "subscribe": stamped})
    topic_id = one_broker.cluster.nodes[1].partitions.topics[stamped].topic.topic_id
    split = Split(topic=stamped, topic_id=topic_id, partition=0, leader_epoch=-1, start_offset=0, end_offset=2)
    try:
        blocks = list(read_split(split, options, ("timestamp", "timestampType")))
    finally:
        close_all()
    rows = [row for block in blocks for row in block.to_pylist()]
    assert [(round(row["timestamp"].timestamp() * 1000), row["timestampType"]) for row in rows] == [(at_ms, 1)] * 2
