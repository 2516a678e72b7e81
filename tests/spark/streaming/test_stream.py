"""One run of a query, called as Spark calls it, without Spark: against real brokers."""

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from machines import cluster_handle

from barnabas_clients.admin.groups import group_offsets
from barnabas_clients.admin.offsets import delete_records
from barnabas_spark import clusters as connections
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.streams import parse_stream_options
from barnabas_spark.planning.plan import DataLossError
from barnabas_spark.reading.reader import read_split, read_splits
from barnabas_spark.streaming import stream as stream_module
from barnabas_spark.streaming.continuation import TopicRecreatedError
from barnabas_spark.streaming.ownership import GroupTakenError
from barnabas_spark.streaming.stream import Stream

pytestmark = [pytest.mark.process, pytest.mark.slow]

PARTITIONS = 3
Json = dict[str, Any]


class Topic:
    """A topic of random name on a cluster, and the queries over it."""

    def __init__(self, bootstrap: str, partitions: int = PARTITIONS) -> None:
        self.bootstrap = bootstrap
        self.name = f"stream-{uuid.uuid4().hex[:12]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.streams: list[Stream] = []
        self.create(partitions)

    def create(self, partitions: int = PARTITIONS) -> None:
        self.admin.create_topics([NewTopic(self.name, partitions, 3)])[self.name].result(30)

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(30)

    def write(self, count: int, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(count):
            producer.produce(self.name, value=b"x" * 100, partition=partition)
        assert producer.flush(60) == 0

    def stream(self, **given: str) -> Stream:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.name, "startingOffsets": "earliest"}
        stream = Stream(parse_stream_options(options | given))
        self.streams.append(stream)
        return stream

    def positions(self, offsets: Json) -> list[int]:
        return list(offsets.get(self.name, {}).values())


Make = Callable[..., Topic]


def lengths_of_batches(stream: Stream, topic: Topic, write_all: Callable[[], None], now_ms: list[int]) -> list[int]:
    """Return the numbers of tasks of three batches, the second of which takes long; what is new is read once."""
    start = stream.first()
    lengths = []
    for took_ms in (100, 5_000, 100):
        write_all()
        end = end_of(stream, start)
        tasks = stream.tasks(start, end)
        found = Counter[int]()
        for task in tasks:
            for batch in read_splits(task, stream._options.read, ("partition", "offset")):
                found.update(batch.column("partition").to_pylist())
        assert found == dict.fromkeys(range(len(topic.positions(end))), 5)
        lengths.append(len(tasks))
        now_ms[0] += took_ms
        start = end
    return lengths


@pytest.fixture
def topic(cluster: Any) -> Iterator[Topic]:
    made = Topic(cluster.bootstrap)
    yield made
    for stream in made.streams:
        stream.close()
    connections.close_all()


def end_of(stream: Stream, start: Json) -> Json:
    """Ask until there is a batch, as Spark does all the time."""
    while (end := stream.latest(start, is_limited=True)) == start:
        pass
    return end


def rows(stream: Stream, start: Json, end: Json) -> list[tuple[int, int]]:
    return sorted(
        (row["partition"], row["offset"])
        for task in stream.tasks(start, end)
        for split in task
        for batch in read_split(split, stream._options.read, ("partition", "offset"))
        for row in batch.to_pylist()
    )


def test_batches_follow_each_other_without_gap_or_overlap(topic: Topic) -> None:
    stream = topic.stream()
    first = start = stream.first()
    assert topic.positions(start) == [0, 0, 0]
    found = []
    for turn in range(4):
        topic.write(5 + turn, turn % 2)
        end = end_of(stream, start)
        found += rows(stream, start, end)
        start = end
    assert sorted(found) == [(0, offset) for offset in range(12)] + [(1, offset) for offset in range(14)]
    # A batch that is repeated is the same one.
    assert rows(stream, first, start) == sorted(found)
    assert stream.report() == start


def test_a_batch_without_offsets_has_no_split(topic: Topic) -> None:
    stream = topic.stream()
    start = stream.first()
    assert stream.latest(start, is_limited=True) is start
    assert not stream.tasks(start, start)


def test_limits_are_kept_exactly_and_can_be_waived(topic: Topic) -> None:
    topic.write(90, 0)
    topic.write(10, 1)
    stream = topic.stream(maxOffsetsPerTrigger="20")
    start = stream.first()
    end = end_of(stream, start)
    assert topic.positions(end) == [18, 2, 0]
    assert topic.positions(stream.latest(end, is_limited=False)) == [90, 10, 0]


def test_a_limit_of_bytes_is_kept_by_what_records_take(topic: Topic) -> None:
    topic.write(200, 0)
    stream = topic.stream(maxBytesPerTrigger="4k")
    start, batches = stream.first(), 0
    while (end := stream.latest(start, is_limited=True)) != start:
        taken = topic.positions(end)[0] - topic.positions(start)[0]
        assert 0 < taken <= 40  # 100 bytes each, and more around them
        start, batches = end, batches + 1
    assert topic.positions(start) == [200, 0, 0]
    assert 5 <= batches <= 12


def test_a_batch_waits_for_enough_records_but_not_the_first(topic: Topic) -> None:
    topic.write(2)
    stream = topic.stream(minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    start = end_of(stream, stream.first())
    assert topic.positions(start) == [2, 0, 0]
    topic.write(4)
    for _ in range(200):
        assert stream.latest(start, is_limited=True) == start
    topic.write(1)
    assert topic.positions(end_of(stream, start)) == [7, 0, 0]


def test_a_batch_does_not_wait_longer_than_it_may(topic: Topic) -> None:
    topic.write(2)
    stream = topic.stream(minOffsetsPerTrigger="5", maxTriggerDelay="1ms")
    start = end_of(stream, stream.first())
    topic.write(1)
    assert topic.positions(end_of(stream, start)) == [3, 0, 0]


def test_a_run_of_available_now_ends_where_the_log_ended(topic: Topic) -> None:
    topic.write(7)
    stream = topic.stream(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="3")
    stream.prepare()
    topic.write(100)
    start, ends = stream.first(), []
    while (end := stream.latest(start, is_limited=True)) != start:
        ends.append(topic.positions(end)[0])
        start = end
    assert ends == [5, 7]


def test_a_new_partition_is_read_from_its_beginning(topic: Topic) -> None:
    topic.write(3)
    stream = topic.stream(**{"kafka.metadata.max.age.ms": "50"})
    start = end_of(stream, stream.first())
    topic.admin.create_partitions([NewPartitions(topic.name, 4)])[topic.name].result(30)
    topic.write(2, 3)
    end = end_of(stream, start)
    assert topic.positions(end) == [3, 0, 0, 2]
    assert rows(stream, start, end) == [(3, 0), (3, 1)]


def test_a_topic_created_again_fails_or_begins_anew(topic: Topic) -> None:
    """It has more records than before, so the old position exists in it."""
    count = 9
    topic.write(5)
    before = topic.stream()
    first = before.first()
    start = end_of(before, first)
    topic.delete()
    topic.create()
    topic.write(count)
    with pytest.raises(TopicRecreatedError, match="onTopicRecreated"):
        topic.stream().latest(start, is_limited=True)
    stream = topic.stream(onTopicRecreated="restart")
    end = end_of(stream, start)
    assert rows(stream, start, end) == [(0, offset) for offset in range(count)]
    # An old batch that was not done is not to be had any more, and no record of the new topic stands in for it.
    assert not stream.tasks(first, start)
    with pytest.raises(TopicRecreatedError):
        topic.stream(failOnDataLoss="false").tasks(first, start)


def test_a_running_query_notices_that_its_topic_was_created_again(topic: Topic) -> None:
    topic.write(5)
    stream = topic.stream(onTopicRecreated="restart")
    start = end_of(stream, stream.first())
    assert stream.latest(start, is_limited=True) == start  # now it waits
    topic.delete()
    topic.create()
    topic.write(9)
    end = end_of(stream, start)
    assert rows(stream, start, end) == [(0, offset) for offset in range(9)]


def test_a_deleted_topic_is_an_error_or_left_out(topic: Topic) -> None:
    other = Topic(topic.bootstrap)
    topic.write(5)
    other.write(4)
    both = {"subscribe": f"{topic.name},{other.name}"}
    stream = topic.stream(**both)
    start = end_of(stream, stream.first())
    topic.delete()
    with pytest.raises(DataLossError, match=f"topic {topic.name} was deleted"):
        topic.stream(**both).latest(start, is_limited=True)
    tolerant = topic.stream(failOnDataLoss="false", **both)
    end = end_of(tolerant, start)
    assert topic.name not in end
    assert other.positions(end) == [4, 0, 0]
    assert tolerant.latest(end, is_limited=True) == end


def test_records_that_are_gone_are_an_error_or_left_out(topic: Topic) -> None:
    topic.write(10)
    stream = topic.stream()
    start = stream.first()
    end = end_of(stream, start)

    async def delete() -> None:
        cluster = await connections.cluster_for(stream._options.read, is_driver=True)
        await delete_records(cluster, {(topic.name, 0): 6}, 30)

    connections.run(delete(), 30)
    with pytest.raises(DataLossError, match="offsets 0 to 6 are gone"):
        rows(stream, start, end)
    assert rows(topic.stream(failOnDataLoss="false"), start, end) == [(0, offset) for offset in range(6, 10)]


def stored(topic: Topic, group: str) -> list[tuple[int, str]]:
    """Return position and note of each partition."""
    options = parse_stream_options(
        {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "startingOffsets": "earliest"}
    )

    async def ask() -> list[tuple[int, str]]:
        found = await group_offsets(await connections.cluster_for(options.read, is_driver=True), group, 30)
        return [(found[key].offset, found[key].metadata) for key in sorted(found)]

    return connections.run(ask(), 30)


def test_the_first_offset_stays_the_same_until_a_batch_is_done(topic: Topic) -> None:
    given = {"startingOffsets": "latest", "consumerGroup": topic.name}
    topic.write(5)
    crashed = topic.stream(**given)
    first = crashed.first()
    topic.write(3)
    end = end_of(crashed, first)
    crashed.close()
    topic.write(2)

    repeated = topic.stream(**given)
    assert repeated.first() == first
    assert rows(repeated, first, end) == [(0, 5), (0, 6), (0, 7)]
    assert all("first offset" in note for _, note in stored(topic, topic.name))
    end_of(repeated, end)  # Spark asks for the next batch, so this one is done.
    repeated.close()
    assert stored(topic, topic.name) == [(8, ""), (0, ""), (0, "")]

    anew = topic.stream(**given)
    assert topic.positions(anew.first()) == [10, 0, 0]


def test_a_commit_replaces_the_first_offset(topic: Topic) -> None:
    given = {"startingOffsets": "latest", "consumerGroup": topic.name}
    stream = topic.stream(**given)
    start = stream.first()
    topic.write(3)
    end = end_of(stream, start)
    stream.tasks(start, end)
    stream.processed(end)
    stream.close()
    assert stored(topic, topic.name) == [(3, ""), (0, ""), (0, "")]


def test_a_first_offset_of_a_topic_that_was_created_again_does_not_count(topic: Topic) -> None:
    given = {"startingOffsets": "latest", "consumerGroup": topic.name}
    topic.write(5)
    before = topic.stream(**given)
    assert topic.positions(before.first()) == [5, 0, 0]
    before.close()
    topic.delete()
    topic.create()
    topic.write(2)
    assert topic.positions(topic.stream(**given).first()) == [2, 0, 0]


def test_a_second_query_with_the_group_is_refused_and_the_first_goes_on(topic: Topic) -> None:
    owner = topic.stream(consumerGroup=topic.name)
    start = owner.first()
    with pytest.raises(GroupTakenError, match=f"another query uses the consumer group {topic.name}"):
        topic.stream(consumerGroup=topic.name).first()
    assert topic.streams[-1]._cluster is None, "nothing of it is left"
    topic.write(4)
    end = end_of(owner, start)
    owner.tasks(start, end)
    assert owner.latest(end, is_limited=True) == end
    assert stored(topic, topic.name)[0] == (4, "")


def test_the_next_run_has_the_group_at_once(topic: Topic) -> None:
    for count in range(3):
        stream = topic.stream(consumerGroup=topic.name)
        assert topic.positions(stream.first()) == [0, 0, 0]
        if count < 2:
            stream.close()


def test_what_does_not_exist_is_named(topic: Topic) -> None:
    with pytest.raises(OptionError, match="there is no topic nowhere"):
        topic.stream(subscribe=f"{topic.name},nowhere").first()


def test_a_checkpoint_of_sparks_own_source_goes_on(topic: Topic) -> None:
    topic.write(5)
    start = {topic.name: {"0": 3, "1": 0, "2": 0}}
    stream = topic.stream()
    end = end_of(stream, start)
    assert rows(stream, start, end) == [(0, 3), (0, 4)]
    assert "@ids" in end


def requests(cluster: cluster_handle.ClusterHandle) -> Counter[str]:
    """Return how many requests of streams the brokers have answered, by API."""
    text = "".join(path.read_text() for path in cluster.logs)
    assert "more requests, too many" not in text
    return Counter(re.findall(r"(\w+) v\d+ from .* as barnabas-spark-stream-", text))


def test_an_idle_stream_asks_the_brokers_nothing_however_often_it_is_asked() -> None:
    """Counted by the brokers: 20,000 questions are what Spark asks in seven minutes."""
    with cluster_handle.cluster(settings={"log.level": "DEBUG"}) as cluster:
        topic = Topic(cluster.bootstrap)
        topic.write(5)
        stream = topic.stream(consumerGroup="g", **{"kafka.metadata.max.age.ms": "3600000"})
        start = end_of(stream, stream.first())
        assert stream.latest(start, is_limited=True) == start
        before = requests(cluster)
        for _ in range(20_000):
            assert stream.latest(start, is_limited=True) == start
            assert stream.report() == start
        topic.write(1)
        assert topic.positions(end_of(stream, start)) == [6, 0, 0]
        stream.close()
        connections.close_all()
        seen = requests(cluster) - before
        # Three leaders, at each of which one fetch waits, and heartbeats; then one look, and the goodbye to the group.
        # A slow machine may take as long as several waits.
        assert 1 <= seen["Fetch"] <= 9
        assert 3 <= seen["ListOffsets"] <= 6
        assert seen["Metadata"] <= 2
        assert seen.total() <= 40, seen


def test_a_stream_goes_on_when_a_leader_dies() -> None:
    with cluster_handle.cluster() as cluster:
        topic = Topic(cluster.bootstrap)
        topic.write(5)
        stream = topic.stream(consumerGroup="g")
        start = stream.first()
        end = end_of(stream, start)
        found = rows(stream, start, end)
        assert stream.latest(end, is_limited=True) == end
        assert stream._cluster is not None
        led = stream._cluster.view.leader(topic.name, 0)
        assert led is not None
        cluster.kill(led.node_id)
        # A run that begins now sees brokers that know less than the dead one did. It must not go back.
        again = Stream(stream._options._replace(consumer_group=""))
        assert again.latest(end, is_limited=True) == end
        again.close()
        topic.write(4)
        after = end_of(stream, end)
        found += rows(stream, end, after)
        assert found == [(0, offset) for offset in range(9)]
        stream.close()
        connections.close_all()


@pytest.mark.parametrize(
    ("given", "lengths"),
    [({}, [12, 2, 12]), ({"partitioning": "topicPartition"}, [12, 12, 12])],
    ids=["packed", "told"],
)
def test_small_batches_have_few_tasks_while_they_are_brief(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], lengths: list[int]
) -> None:
    now_ms = [0]
    monkeypatch.setattr(stream_module, "_now_ms", lambda: now_ms[0])
    topic = Topic(cluster.bootstrap, 12)

    def write_all() -> None:
        for partition in range(12):
            topic.write(5, partition)

    stream = topic.stream(**given)
    try:
        assert lengths_of_batches(stream, topic, write_all, now_ms) == lengths
    finally:
        stream.close()
        connections.close_all()
