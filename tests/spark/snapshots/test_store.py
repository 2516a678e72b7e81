"""Named snapshots on real brokers, planned and read as Spark would, without a session."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_clients.admin.offsets import delete_records
from barnabas_clients.admin.snapshot_ranges import PinnedRange
from barnabas_clients.admin.snapshots import create_snapshot, describe_snapshot
from barnabas_clients.cluster.cluster import Cluster
from barnabas_spark import clusters as connections
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import DataLossError, Plan, make_plan
from barnabas_spark.reading.reader import read_split
from barnabas_spark.snapshots import store
from barnabas_spark.snapshots.store import Moment, moment_of
from barnabas_spark.snapshots.vector import SnapshotDivergedError

pytestmark = [pytest.mark.process, pytest.mark.slow]

TIMEOUT_S = 60
PARTITIONS = 2
Row = tuple[str, int, int]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()


class Topics:
    """Topics of random names, and reads of them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.snapshot = f"snapshot-{uuid.uuid4().hex[:12]}"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str = "", **configs: str) -> str:
        name = name or f"snapshots-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        for future in self._admin.create_topics([NewTopic(name, PARTITIONS, 3, config=settings)]).values():
            future.result(30)
        return name

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(30)

    def write(self, topic: str, count: int) -> None:
        """Write `count` records to each partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(count * PARTITIONS):
            producer.produce(topic, value=b"v", key=b"k", partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    def options(self, *names: str, **given: str) -> ReadOptions:
        subscribed = {} if "assign" in given else {"subscribe": ",".join(names)}
        fixed = {"kafka.bootstrap.servers": self.bootstrap, "snapshot": self.snapshot}
        return parse_read_options(fixed | subscribed | given)

    def planned(self, *names: str, **given: str) -> tuple[ReadOptions, Plan, tuple[str, ...]]:
        options = self.options(*names, **given)

        async def found() -> Moment:
            return await moment_of(await connections.cluster_for(options, is_driver=True), options)

        moment = connections.run(found(), TIMEOUT_S)
        plan = make_plan(moment.options, moment.snapshot)
        return options, plan, (*moment.warnings, *plan.warnings)

    def read(self, *names: str, **given: str) -> list[Row]:
        options, plan, _ = self.planned(*names, **given)
        return sorted(
            (row["topic"], row["partition"], row["offset"])
            for split in plan.splits
            for batch in read_split(split, options, ("topic", "partition", "offset"))
            for row in batch.to_pylist()
        )


@pytest.fixture
def topics(cluster: Any) -> Topics:
    return Topics(cluster.bootstrap)


def rows(topic: str, *offsets: int) -> list[Row]:
    return [(topic, partition, offset) for partition in range(PARTITIONS) for offset in offsets]


def test_the_first_use_names_the_moment_and_later_ones_read_it(topics: Topics) -> None:
    one, other = topics.create(), topics.create()
    topics.write(one, 3)
    topics.write(other, 2)
    first = topics.read(one, other)
    assert first == sorted(rows(one, 0, 1, 2) + rows(other, 0, 1))
    topics.write(one, 5)
    topics.write(other, 5)
    assert topics.read(one, other) == first
    assert topics.read(other) == rows(other, 0, 1), "each topic of it can be read by itself"
    assert topics.read(assign=json.dumps({one: [1]})) == [(one, 1, offset) for offset in range(3)]


def test_options_of_the_first_use_say_what_the_name_stands_for(topics: Topics) -> None:
    name = topics.create()
    topics.write(name, 6)
    given = {
        "startingOffsets": json.dumps({name: {"0": 2, "1": 2}}),
        "endingOffsets": json.dumps({name: {"0": 4, "1": 4}}),
    }
    assert topics.read(name, **given) == rows(name, 2, 3)
    assert topics.read(name) == rows(name, 2, 3)
    _, _, [warning] = topics.planned(name, startingTimestamp="0")
    assert "startingTimestamp had no effect" in warning


def test_of_two_jobs_that_use_a_new_name_at_the_same_time_both_read_the_same(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has resolved an end of its own when both ask for the name."""
    name = topics.create()
    topics.write(name, 3)
    options = topics.options(name)

    async def main() -> tuple[Moment, Moment]:
        both_are_ready = asyncio.Barrier(2)
        kept: list[Any] = []

        async def create(cluster: Cluster, snapshot: str, ranges: Any, *more: Any, **also: Any) -> Any:
            kept.append(ranges)
            if len(kept) == 1:
                await asyncio.to_thread(topics.write, name, 4)
                second.set()
            await both_are_ready.wait()
            return await create_snapshot(cluster, snapshot, ranges, *more, **also)

        monkeypatch.setattr(store, "create_snapshot", create)
        second = asyncio.Event()
        async with Cluster(topics.bootstrap) as one, Cluster(topics.bootstrap) as other:
            first = asyncio.create_task(moment_of(one, options))
            await second.wait()
            moments = await moment_of(other, options), await first
        ends = [{pinned.end_offset for of_topic in ranges.values() for pinned in of_topic.values()} for ranges in kept]
        assert ends == [{3}, {7}]
        return moments

    one, other = (make_plan(moment.options, moment.snapshot) for moment in asyncio.run(main()))
    assert one.splits == other.splits
    assert {split.end_offset for split in one.splits} in ({3}, {7})


def test_rows_that_are_gone_are_told(topics: Topics) -> None:
    name = topics.create()
    topics.write(name, 5)
    topics.read(name)
    topics.write(name, 5)
    options = topics.options(name)

    async def delete(before: int) -> None:
        cluster = await connections.cluster_for(options, is_driver=True)
        await delete_records(cluster, {(name, 1): before}, TIMEOUT_S)

    connections.run(delete(2), TIMEOUT_S)
    with pytest.raises(DataLossError, match=f"not whole any more: {name}-1: offsets 0 to 2 are gone"):
        topics.read(name)
    left = [(name, 0, offset) for offset in range(5)] + [(name, 1, offset) for offset in (2, 3, 4)]
    assert topics.read(name, failOnDataLoss="false") == left
    connections.run(delete(8), TIMEOUT_S)
    with pytest.raises(DataLossError, match="offsets 0 to 5 are gone: the log starts at 8"):
        topics.read(name)
    assert topics.read(name, failOnDataLoss="false") == left[:5]
    _, _, [warning] = topics.planned(name, failOnDataLoss="false")
    assert f"{name}-1: offsets 0 to 5 are gone" in warning


def test_a_topic_that_was_deleted_or_created_anew_is_told(topics: Topics) -> None:
    name = topics.create()
    topics.write(name, 2)
    topics.read(name)
    topics.delete(name)
    with pytest.raises(DataLossError, match=f"{name}-0: the topic was deleted; {name}-1: the topic was deleted"):
        topics.read(name)
    topics.create(name)
    topics.write(name, 9)
    with pytest.raises(DataLossError, match="the one of that name now was created anew"):
        topics.read(name)
    assert topics.read(name, failOnDataLoss="false") == []


def test_a_log_that_no_longer_contains_the_end_stops_the_read_with_both_offsets(topics: Topics) -> None:
    """A log that has lost its end cannot be had without harm: so the snapshot is of one that had more."""
    name = topics.create()
    topics.write(name, 4)
    options = topics.options(name)

    async def pretend() -> int:
        cluster = await connections.cluster_for(options, is_driver=True)
        view = (await cluster.refresh([name], timeout_s=TIMEOUT_S)).topics[name]
        assert view.topic_id is not None
        epoch = view.partitions[0].leader_epoch
        ranges = {view.topic_id: {0: PinnedRange(0, 1_000, epoch)}}
        await create_snapshot(cluster, options.snapshot, ranges, TIMEOUT_S)
        return epoch

    epoch = connections.run(pretend(), TIMEOUT_S)
    for fail in ("true", "false"):
        words = f"does not contain offset 1000 of leader epoch {epoch}: that epoch ends at offset 4"
        with pytest.raises(SnapshotDivergedError, match=words):
            topics.read(name, failOnDataLoss=fail)


def test_compacted_topics_are_refused_unless_best_effort_will_do(topics: Topics) -> None:
    name = topics.create(cleanup_policy="compact")
    topics.write(name, 2)
    with pytest.raises(OptionError, match=r"snapshot: .*is compacted.*set snapshotCompacted to best-effort"):
        topics.read(name)
    assert topics.read(name, snapshotCompacted="best-effort") == rows(name, 0, 1)
    with pytest.raises(OptionError, match="is compacted"):
        topics.read(name)


def test_a_name_stands_for_what_was_read_first_and_nothing_else(topics: Topics) -> None:
    one, other = topics.create(), topics.create()
    topics.read(one)
    with pytest.raises(OptionError, match=f"holds no topic '{other}', but '{one}'"):
        topics.read(one, other)
    assert topics.read(one) == []
    topics.write(one, 2)
    assert topics.read(one) == [], "an empty range is kept, too"


def test_a_snapshot_is_as_large_as_its_partitions_and_shows_what_was_kept(topics: Topics) -> None:
    name = topics.create()
    topics.write(name, 3)
    topics.read(name)
    options = topics.options(name)

    async def shown() -> Any:
        return await describe_snapshot(
            await connections.cluster_for(options, is_driver=True), options.snapshot, TIMEOUT_S
        )

    [topic] = connections.run(shown(), TIMEOUT_S).topics
    assert [(pinned.start_offset, pinned.end_offset) for pinned in topic.partitions.values()] == [(0, 3)] * PARTITIONS
    assert all(pinned.leader_epoch > 0 for pinned in topic.partitions.values())
