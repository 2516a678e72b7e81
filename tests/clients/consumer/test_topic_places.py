"""A consumer without a group keeps its place in topics that go missing.

Both the pure part and a whole consumer are tested.
"""

import asyncio

from clients.fake_broker import FakeBroker
from clients.fake_log import FakeLog, values_of
from clients.virtual import run_virtually, serving_virtually
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_clients import Consumer
from barnabas_clients.cluster.topic_view import PartitionView, TopicView
from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.consumer.partition_queue import PartitionQueue
from barnabas_clients.consumer.topic_places import KEPT_S, TOPICS_MAX, TopicPlaces
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.topic_partition import TopicPartition

Answer = dict[str, tuple[bytes | None, int]]
"""The content of metadata: the id and the number of partitions of each topic that it knows."""


def view_of(answer: Answer) -> ClusterView:
    return ClusterView(
        topics={
            name: TopicView(
                name,
                topic_id,
                False,
                {
                    number: PartitionView(
                        partition=number,
                        leader_id=1,
                        leader_epoch=1,
                        replicas=(),
                        in_sync_replicas=(),
                        offline_replicas=(),
                        error_code=0,
                    )
                    for number in range(count)
                },
            )
            for name, (topic_id, count) in answer.items()
        }
    )


def wanted_of(answer: Answer) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(name, number) for name, (_, count) in answer.items() for number in range(count))


def follow(places: TopicPlaces, queues: dict[TopicPartition, PartitionQueue], answer: Answer, now_s: float) -> None:
    """Do what a consumer does with an answer; a place that is new is at 0."""
    wanted = wanted_of(answer)
    for partition in places.leaving(wanted, queues, view_of(answer), now_s):
        del queues[partition]
    for queue in places.returning(wanted, view_of(answer)):
        queues[queue.partition] = queue
    for partition in wanted - queues.keys():
        queues[partition] = PartitionQueue(partition, 1)
        queues[partition].position = 0


answers = st.dictionaries(
    st.sampled_from("ab"), st.tuples(st.sampled_from([b"1" * 16, b"2" * 16]), st.integers(1, 3)), max_size=2
)


@settings(max_examples=200)
@given(answers, st.lists(answers, max_size=12))
def test_a_place_lasts_as_long_as_its_topic_whatever_metadata_answers_say(first: Answer, later: list[Answer]) -> None:
    places = TopicPlaces()
    queues = {partition: PartitionQueue(partition, 1) for partition in wanted_of(first)}
    for queue in queues.values():
        queue.position = 100
    places.begin(queues, view_of(first))
    ids = {name: topic_id for name, (topic_id, _) in first.items()}
    read = {(name, topic_id, number): 100 for name, (topic_id, count) in first.items() for number in range(count)}
    for turn, answer in enumerate(later):
        follow(places, queues, answer, float(turn))
        for name, (topic_id, count) in answer.items():
            if ids.get(name) != topic_id:
                # Another topic under this name: the old one is gone for good.
                read = {key: place for key, place in read.items() if key[0] != name}
                ids[name] = topic_id or b""
            for number in range(count):
                read.setdefault((name, ids[name], number), 0)
        assert {partition: queue.position for partition, queue in queues.items()} == {
            TopicPartition(name, number): place for (name, _, number), place in read.items() if name in answer
        }
        for (name, topic_id, number), place in read.items():
            if name in answer:
                read[name, topic_id, number] = queues[TopicPartition(name, number)].position = place + 1


def test_places_are_kept_for_a_while_and_of_so_many_topics() -> None:
    everything: Answer = {f"t{number:04}": (b"%016d" % number, 1) for number in range(TOPICS_MAX + 5)}
    places = TopicPlaces()
    queues = {partition: PartitionQueue(partition, 1) for partition in wanted_of(everything)}
    for queue in queues.values():
        queue.position = 7
    places.begin(queues, view_of(everything))
    follow(places, queues, {}, 0.0)
    assert places.is_waiting(1.0)
    follow(places, queues, {}, KEPT_S - 1)
    assert not places.is_waiting(KEPT_S - 1)
    follow(places, queues, everything, KEPT_S - 1)
    assert sum(queue.position == 7 for queue in queues.values()) == TOPICS_MAX
    follow(places, queues, {}, KEPT_S)
    follow(places, queues, {}, 2 * KEPT_S + 1)
    follow(places, queues, everything, 2 * KEPT_S + 1)
    assert not any(queue.position for queue in queues.values())


def test_an_answer_that_lacks_a_topic_makes_nobody_read_it_again() -> None:
    async def main() -> None:
        broker = FakeBroker()
        log = FakeLog(broker, partitions=2)
        log.append(values_of(5))
        found: list[tuple[int, int]] = []

        async def read(consumer: Consumer) -> None:
            while True:
                record = await anext(consumer)
                found.append((record.partition, record.offset))

        async with (
            serving_virtually(broker),
            Consumer(f"127.0.0.1:{broker.port}", topics=["t", "not-there-yet"], auto_offset_reset="latest") as consumer,
        ):
            reading = asyncio.ensure_future(read(consumer))
            await asyncio.sleep(2)
            log.append(values_of(1, 5))
            await asyncio.sleep(2)
            log.errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await asyncio.sleep(5)
            assert not consumer.assignment
            log.append(values_of(1, 6))
            del log.errors["t"]
            await asyncio.sleep(5)
            assert found == [(0, 5), (0, 6)]
            # A new partition is read from its beginning, and so is another topic of the same name.
            log.topics["t"].append((1, 1))
            log.batches[2] = []
            log.starts[2] = 0
            log.append(values_of(2), 2)
            await asyncio.sleep(5)
            log.ids["t"] = b"another topic..."
            await asyncio.sleep(5)
            assert sorted(found[2:4]) == [(2, 0), (2, 1)]
            assert sorted(found[4:]) == [*((0, offset) for offset in range(7)), (2, 0), (2, 1)]
            reading.cancel()

    run_virtually(main())
