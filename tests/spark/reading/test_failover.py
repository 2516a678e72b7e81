"""Tasks read on when brokers die, and fail clearly when topics change.

They plan and read as Spark would, without a Spark session.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from machines import cluster_handle

from barnabas_spark import clusters as connections
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import DataLossError, Plan, make_plan
from barnabas_spark.reading.reader import read_split
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
