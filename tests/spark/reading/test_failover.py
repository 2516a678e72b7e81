"""Tasks read on when brokers die, and fail clearly when topics change.

They plan and read as Spark would, without a Spark session.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from machines import cluster_handle

from barnabas_spark import clusters as connections
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import DataLossError, Plan, Split, make_plan
from barnabas_spark.reading.reader import read_split, read_splits
from barnabas_spark.reading.snapshot import take_snapshot

pytestmark = [pytest.mark.process, pytest.mark.slow]

NAMES = ("partition", "offset", "value")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()


def planned(bootstrap: str, topic: str, **given: str) -> tuple[ReadOptions, Plan]:
    options = parse_read_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | given)

    async def plan() -> Plan:
        return make_plan(options, await take_snapshot(await connections.cluster_for(options, is_driver=True), options))

    return options, connections.run(plan(), 60)


def rows(batches: Iterator[Any]) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["offset"])
        for batch in batches
        for row in batch.select(["partition", "offset"]).to_pylist()
    ]


def create(bootstrap: str, topic: str, partitions: int, replication_factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, replication_factor)]).values():
        future.result(30)


def write(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """Write `count` records of 1 KiB to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count * partitions):
        producer.produce(topic, value=b"x" * 1024, partition=number % partitions)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_a_plan_made_before_a_leader_died_is_read_in_full() -> None:
    with cluster_handle.cluster() as cluster:
        create(cluster.bootstrap, "t", 3, 3)
        write(cluster.bootstrap, "t", 3, 5_000)
        options, plan = planned(cluster.bootstrap, "t")
        readers = [read_split(split, options, NAMES) for split in plan.splits]
        found = [batch for reader in readers for batch in [next(reader)]]  # every task has begun
        assert sum(batch.num_rows for batch in found) < 15_000
        led = connections.run(connections.cluster_for(options, is_driver=False), 5).view.leader("t", 0)
        assert led is not None
        cluster.kill(led.node_id)
        rest = [row for reader in readers for row in rows(reader)]
        assert sorted(rows(iter(found)) + rest) == [(k, offset) for k in range(3) for offset in range(5_000)]


def test_a_topic_created_again_fails_a_task_that_was_planned_before(cluster: Any) -> None:
    create(cluster.bootstrap, "again", 1, 3)
    write(cluster.bootstrap, "again", 1, 10)
    options, before = planned(cluster.bootstrap, "again")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["again"])["again"].result(30)
    create(cluster.bootstrap, "again", 1, 3)
    write(cluster.bootstrap, "again", 1, 20)
    with pytest.raises(DataLossError, match="created again"):
        rows(read_split(before.splits[0], options, NAMES))
    options, after = planned(cluster.bootstrap, "again")
    assert len(rows(read_split(after.splits[0], options, NAMES))) == 20


def test_an_early_end_leaves_no_request_under_way(cluster: Any) -> None:
    create(cluster.bootstrap, "early", 1, 1)
    write(cluster.bootstrap, "early", 1, 3_000)
    options, plan = planned(cluster.bootstrap, "early")
    reader = read_split(plan.splits[0], options, NAMES)
    next(reader)
    reader.close()  # type: ignore[attr-defined]  # a generator, as PySpark closes it
    assert len(rows(read_split(plan.splits[0], options, NAMES))) == 3_000


def small(plan: Plan) -> list[Split]:
    """Return the splits as small ones, whose first requests are sent together."""
    return [split._replace(size_bytes=1_000) for split in plan.splits]


def test_small_splits_are_asked_for_together_and_come_one_after_the_other(cluster: Any) -> None:
    create(cluster.bootstrap, "small", 30, 1)
    write(cluster.bootstrap, "small", 30, 5)
    options, plan = planned(cluster.bootstrap, "small")
    found = rows(read_splits(small(plan), options, NAMES))
    assert found == [(partition, offset) for partition in range(30) for offset in range(5)]


def test_a_small_split_whose_records_are_gone_fails_behind_the_ones_before_it(cluster: Any) -> None:
    create(cluster.bootstrap, "gone", 3, 1)
    write(cluster.bootstrap, "gone", 3, 5)
    options, plan = planned(cluster.bootstrap, "gone")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.delete_records([TopicPartition("gone", 1, 3)]).values():
        future.result(30)
    reader = read_splits(small(plan), options, NAMES)
    assert rows(iter([next(reader)])) == [(0, offset) for offset in range(5)]
    with pytest.raises(DataLossError, match="gone-1: offsets 0 to 3 are gone"):
        next(reader)


def test_an_early_end_among_small_splits_leaves_nothing_under_way(cluster: Any) -> None:
    create(cluster.bootstrap, "left", 12, 1)
    write(cluster.bootstrap, "left", 12, 5)
    options, plan = planned(cluster.bootstrap, "left")
    first, *others = small(plan)
    # Records that do not come: whoever asks for them waits for a minute.
    reader = read_splits([first, *(one._replace(start_offset=5, end_offset=9) for one in others)], options, NAMES)
    next(reader)

    async def under_way() -> set["asyncio.Task[Any]"]:
        return {one for one in asyncio.all_tasks() if "RangeFetcher.fetch" in repr(one)}

    waiting = connections.run(under_way(), 10)
    assert len(waiting) >= 8
    reader.close()  # type: ignore[attr-defined]  # a generator, as PySpark closes it

    async def left() -> set["asyncio.Task[Any]"]:
        return (await asyncio.wait(waiting, timeout=5))[1]

    assert not connections.run(left(), 10)
