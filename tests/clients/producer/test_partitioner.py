"""Keys go where Kafka's Java client puts them; records without keys spread over batches."""

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as oracle
from hypothesis import given
from hypothesis import strategies as st

from barnabas_clients.producer.accumulator import Accumulator
from barnabas_clients.producer.partitioner import murmur2, partition_of
from barnabas_clients.producer.sequences import Identity
from barnabas_clients.producer.topic_queues import TopicQueues
from barnabas_clients.protocol.errors import UnknownTopicOrPartitionError

# Kafka's own tests (UtilsTest.testMurmur2), as signed numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_the_hash_is_java_s(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] % 2**32


@given(st.binary(max_size=70))
def test_the_hash_is_the_one_of_another_client(key: bytes) -> None:
    assert murmur2(key) == oracle(key) % 2**32


@pytest.mark.parametrize("key", KNOWN)
@pytest.mark.parametrize("count", [1, 3, 6, 1_000, 2**31 - 1])
def test_the_partition_is_java_s(key: bytes, count: int) -> None:
    # Utils.toPositive clears the sign bit, which is another number than the one without its sign.
    assert partition_of(key, count) == (KNOWN[key] & 0x7FFFFFFF) % count


@given(st.binary(max_size=70), st.integers(1, 1_000))
def test_the_partition_is_the_one_of_another_client(key: bytes, count: int) -> None:
    every = list(range(count))
    assert partition_of(key, count) == (oracle(key) & 0x7FFFFFFF) % count == DefaultPartitioner()(key, every, every)


@given(st.binary(max_size=20))
def test_a_buffer_goes_where_its_bytes_go(key: bytes) -> None:
    assert partition_of(bytearray(key), 1_000) == partition_of(memoryview(key), 1_000) == partition_of(key, 1_000)


def topic(partitioner: object = "murmur2", partitions: int = 3) -> TopicQueues:
    queues = TopicQueues("orders", partitioner, Identity(), 5)  # type: ignore[arg-type]
    queues.grow(partitions)
    return queues


def test_records_without_a_key_stay_until_the_batch_is_complete_and_then_go_where_little_waits() -> None:
    queues = topic()
    accumulator = Accumulator(1_000_000, 1_000)
    chosen = []
    for _ in range(6):
        queue = queues.choose(None, None)
        batch = accumulator.open(queue, 10, 0.0)
        batch.add(0, None, b"", ())
        assert queues.choose(None, None) is queue
        accumulator.complete(queue)
        queues.on_complete(queue)
        chosen.append(queue.partition)
        if len(chosen) == 3:
            # Only partition 1 gets rid of its batch.
            assert accumulator.take(queues.queues[1]) is not None
    assert chosen[:3] == [0, 1, 2]
    assert chosen[3] == 1


def test_round_robin_goes_record_by_record_but_not_with_keys() -> None:
    queues = topic("round-robin")
    assert [queues.choose(None, None).partition for _ in range(5)] == [0, 1, 2, 0, 1]
    assert {queues.choose(b"key", None).partition for _ in range(5)} == {partition_of(b"key", 3)}


def test_a_partitioner_of_the_caller_decides_and_is_checked() -> None:
    queues = topic(lambda name, key, count: len(name) + len(key or b"") + count)
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 9"):
        queues.choose(None, None)
    assert queues.choose(None, 2).partition == 2


def test_a_topic_grows_and_keeps_its_queues() -> None:
    queues = topic()
    before = list(queues.queues)
    queues.grow(5)
    assert queues.queues[:3] == before
    queues.grow(2)
    assert len(queues.queues) == 5
