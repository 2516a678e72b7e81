"""aiokafka works, with the old versions that clients of ten years ago use.

These are the inflexible ones. Its administrator can neither delete a group nor set a group's offsets, so those two are
missing here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from . import workload
from .conftest import NewTopicMaker
from .workload import Place, Received, Sample

pytestmark = [pytest.mark.interop, pytest.mark.slow]

STRATEGIES = {
    "range": (RangePartitionAssignor, (2, 4)),
    "roundrobin": (RoundRobinPartitionAssignor, (3, 3)),
    "sticky": (StickyPartitionAssignor, (3, 3)),
}


class Client:
    """An aiokafka consumer as a member of a group, with an event loop of its own that runs during each call."""

    def __init__(self, bootstrap: str, group_id: str, topics: Collection[str], **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._start(bootstrap, group_id, topics, settings))

    @staticmethod
    async def _start(bootstrap: str, group_id: str, topics: Collection[str], settings: dict[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            *topics,
            **{
                "bootstrap_servers": bootstrap,
                "group_id": group_id,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "heartbeat_interval_ms": workload.HEARTBEAT_MS,
                "session_timeout_ms": workload.SESSION_MS,
                "fetch_max_wait_ms": 100,
            }
            | settings,
        )
        await consumer.start()
        return consumer

    def poll(self, timeout_s: float) -> list[Received]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [received(record) for records in found.values() for record in records]

    def assignment(self) -> frozenset[Place]:
        return frozenset((part.topic, part.partition) for part in self._consumer.assignment())

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


def received(record: Any) -> Received:
    return Received(
        (record.topic, record.partition),
        record.offset,
        record.timestamp,
        Sample(record.key, record.value, tuple(record.headers)),
    )


class Sender:
    """An idempotent aiokafka producer; `send` waits for the acknowledgements."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._producer = self._runner.run(self._start(bootstrap, settings))

    @staticmethod
    async def _start(bootstrap: str, settings: dict[str, Any]) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, **settings
        )
        await producer.start()
        return producer

    def send(self, places: Collection[Place], *samples: Sample, timestamps_ms: Collection[int] = ()) -> list[int]:
        return self._runner.run(self._send(places, samples, timestamps_ms))

    async def _send(
        self, places: Collection[Place], samples: Collection[Sample], timestamps_ms: Collection[int]
    ) -> list[int]:
        times: list[int | None] = [*timestamps_ms] or [None] * len(samples)
        futures = [
            await self._producer.send(
                topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=list(headers)
            )
            for topic, partition in places
            for (key, value, headers), timestamp_ms in zip(samples, times, strict=True)
        ]
        return [(await future).offset for future in futures]

    def send_value(self, places: Collection[Place], value: bytes) -> None:
        self.send(places, Sample(None, value))

    def close(self) -> None:
        self._runner.run(self._producer.stop())
        self._runner.close()


@pytest.fixture(scope="module")
def sender(bootstrap: str) -> Iterator[Sender]:
    producer = Sender(bootstrap)
    yield producer
    producer.close()


@pytest.mark.parametrize("compression", workload.COMPRESSIONS)
def test_every_kind_of_record_comes_back(bootstrap: str, codec_topic: str, compression: str) -> None:
    place = (codec_topic, workload.COMPRESSIONS.index(compression))
    samples = (*workload.SAMPLES, workload.NULL_HEADER)
    chosen = None if compression == "none" else compression
    settings = {"compression_type": chosen, "max_request_size": workload.BATCH_BYTES_MAX}
    with closing(Sender(bootstrap, **settings)) as sender:
        assert sender.send([place], *samples) == list(range(len(samples)))

    async def read() -> list[Received]:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([aiokafka.TopicPartition(*place)])
            async with asyncio.timeout(workload.WAIT_LIMIT_S):
                return [received(await consumer.getone()) for _ in samples]

    assert [record.sample for record in asyncio.run(read())] == list(samples)
    assert [record.sample for record in workload.read_back(bootstrap, place, len(samples))] == list(samples)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_two_members_share_and_hand_over(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str, strategy: str
) -> None:
    topics = (new_topic(3), new_topic(3))
    assignor, sizes = STRATEGIES[strategy]
    workload.rebalance_between_two(
        partial(Client, bootstrap, name, topics, partition_assignment_strategy=[assignor]),
        sender.send_value,
        frozenset((topic, partition) for topic in topics for partition in range(3)),
        sizes,
    )


def test_a_group_begins_again_at_its_commit(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    workload.restart_from_the_commit(partial(Client, bootstrap, name, [topic]), sender.send_value, (topic, 0))


def test_a_group_without_commit_begins_where_it_is_told(
    bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str
) -> None:
    topic = new_topic()
    workload.reset_to_both_ends(
        lambda reset: Client(bootstrap, f"{name}-{reset}", [topic], auto_offset_reset=reset),
        sender.send_value,
        (topic, 0),
    )


def test_records_are_found_by_their_time(bootstrap: str, sender: Sender, new_topic: NewTopicMaker) -> None:
    topic = new_topic()
    part = aiokafka.TopicPartition(topic, 0)
    times = [workload.FIRST_TIMESTAMP_MS + 1000 * k for k in range(10)]
    sender.send([(topic, 0)], *(Sample(None, b"%d" % k) for k in range(10)), timestamps_ms=times)

    async def main() -> None:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([part])
            assert (await consumer.offsets_for_times({part: 0}))[part].offset == 0
            assert (await consumer.offsets_for_times({part: times[4] + 1}))[part].offset == 5
            assert (await consumer.offsets_for_times({part: times[9] + 1}))[part] is None
            consumer.seek(part, (await consumer.offsets_for_times({part: times[6]}))[part].offset)
            async with asyncio.timeout(workload.WAIT_LIMIT_S):
                first = await consumer.getone()
                assert (first.offset, first.timestamp) == (6, times[6])
                await consumer.seek_to_beginning(part)
                assert (await consumer.getone()).offset == 0

    asyncio.run(main())


async def until(ask: Callable[[], Awaitable[Any]], is_so: Callable[[Any], bool]) -> None:
    """Ask again until the answer is as it must become: another broker may not know yet."""
    async with asyncio.timeout(workload.WAIT_LIMIT_S):
        while not is_so(await ask()):  # noqa: ASYNC110 - nothing announces a change of topics to a client
            await asyncio.sleep(workload.POLL_S)


def test_topics_are_made_described_grown_and_deleted(bootstrap: str, sender: Sender, replicas: int, name: str) -> None:
    async def main() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            await administer(client)
        finally:
            await client.close()

    async def administer(client: Any) -> None:
        wanted = NewTopic(name, 2, replicas, topic_configs={"max.message.bytes": "2000000"})
        assert [found[:2] for found in (await client.create_topics([wanted])).topic_errors] == [(name, 0)]
        [refused] = (await client.create_topics([wanted])).topic_errors
        assert refused[1] == aiokafka.errors.TopicAlreadyExistsError.errno
        [described] = await client.describe_topics([name])
        assert [len(partition["replicas"]) for partition in described["partitions"]] == [replicas, replicas]
        [answer] = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert (configs["max.message.bytes"], configs["cleanup.policy"]) == ("2000000", "delete")
        await client.create_partitions({name: NewPartitions(5)})
        await until(lambda: client.describe_topics([name]), lambda topics: len(topics[0]["partitions"]) == 5)
        assert await asyncio.to_thread(sender.send, [(name, 1)], *[Sample(None, b"value")] * 3) == [0, 1, 2]
        part = aiokafka.TopicPartition(name, 1)
        assert await client.delete_records({part: RecordsToDelete(2)}) == {part: 2}
        assert [found[:2] for found in (await client.delete_topics([name])).topic_error_codes] == [(name, 0)]
        await until(client.list_topics, lambda names: name not in names)

    asyncio.run(main())


def test_groups_are_listed_and_described(bootstrap: str, sender: Sender, new_topic: NewTopicMaker, name: str) -> None:
    place = (new_topic(), 0)
    part = aiokafka.TopicPartition(*place)
    sender.send([place], *[Sample(None, b"value")] * 6)

    async def state() -> tuple[str, list[str], bool, dict[Any, int]]:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            [answer] = await client.describe_consumer_groups([name])
            [(error, group_id, found, kind, _, members, *_)] = answer.groups
            assert (error, group_id, kind) == (0, name, "consumer")
            listed = (name, "consumer") in await client.list_consumer_groups()
            offsets = {p: o.offset for p, o in (await client.list_consumer_group_offsets(name)).items()}
            return found, [member[1] for member in members], listed, offsets
        finally:
            await client.close()

    with workload.Group() as group:
        member = group.add(partial(Client, bootstrap, name, [place[0]], client_id="interop-client"))
        group.wait_until(lambda: len(member.received) == 6, "all records")
        group.commit(member)
        assert asyncio.run(state()) == ("Stable", ["interop-client"], True, {part: 6})
    assert asyncio.run(state()) == ("Empty", [], True, {part: 6})
