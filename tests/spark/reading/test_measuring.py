"""Tasks are cut where brokers say that batches begin; if they do not, by what else is known; and read to the end."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from broker.live.test_three_brokers import Wires, all_in_sync, leader_of
from broker.partition.test_racks import readers_of

from barnabas_broker.testing import RunningCluster
from barnabas_clients.admin.offset_ranges import describe_offset_ranges
from barnabas_clients.admin.values import LogDir, ReplicaSize
from barnabas_clients.errors import DeadlineExceededError, UnsupportedVersionError
from barnabas_clients.protocol.errors import ErrorCode, error_for
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_spark.clusters import close_all, cluster_for, run
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import Split, make_plan
from barnabas_spark.reading import measuring
from barnabas_spark.reading.reader import read_splits
from barnabas_spark.reading.snapshot import take_snapshot

RACKS = ("red", "green", "blue")
RECORDS = 10  # of a batch
BATCH = bytes(build_batch([NewRecord(None, b"x" * 500, 1_700_000_000_000)] * RECORDS))


@pytest.fixture(scope="module")
def racks() -> Iterator[RunningCluster]:
    with RunningCluster(3, racks=RACKS, settings={"log.retention.ms": "-1"}) as cluster:
        yield cluster
        close_all()


@pytest.fixture
def wires(racks: RunningCluster) -> Iterator[Wires]:
    wires = Wires(racks)
    yield wires
    wires.close()


def options(racks: RunningCluster, topic: str, **given: object) -> ReadOptions:
    texts = {name.replace("_", "."): str(value) for name, value in given.items()}
    return parse_read_options({"kafka.bootstrap.servers": racks.bootstrap, "subscribe": topic} | texts)


def tasks_of(wishes: ReadOptions) -> list[tuple[Split, ...]]:
    async def make() -> list[tuple[Split, ...]]:
        cluster = await cluster_for(wishes, is_driver=True)
        snapshot = await take_snapshot(cluster, wishes)
        plan = make_plan(wishes, snapshot)
        return await measuring.make_tasks(cluster, wishes, plan.splits, snapshot.partitions)

    return run(make(), 30)


def fill(wires: Wires, topic: str, *batches: int, factor: int = 1) -> None:
    """Create a topic with so many batches in each partition."""
    wire = wires[1]
    wire.create(topic, partitions=len(batches), factor=factor)
    (found,) = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9).topics
    leaders = {row.partition_index: wires[row.leader_id] for row in found.partitions}
    for partition, count in enumerate(batches):
        for _ in range(count):
            assert leaders[partition].produce(topic, BATCH, partition=partition).error_code == ErrorCode.NONE


def ranges(tasks: list[tuple[Split, ...]]) -> list[list[tuple[int, int, int]]]:
    return [[(one.partition, one.start_offset, one.end_offset) for one in task] for task in tasks]


def offsets_read(tasks: list[tuple[Split, ...]], wishes: ReadOptions) -> list[list[tuple[int, int]]]:
    return [
        [
            (partition, offset)
            for columns in read_splits(task, wishes, ("partition", "offset"))
            for partition, offset in zip(*(column.to_pylist() for column in columns), strict=True)
        ]
        for task in tasks
    ]


def unsupported(*_: object) -> Any:
    raise UnsupportedVersionError("a broker of Kafka has no such API")


def refused(*_: object) -> Any:
    raise error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "log directories")


# Real brokers.


def test_ranges_are_cut_by_bytes_where_batches_begin_and_no_batch_is_read_twice(
    racks: RunningCluster, wires: Wires
) -> None:
    fill(wires, "cut", 40, 2)
    wishes = options(racks, "cut", maxBytesPerPartition=10 * len(BATCH) + 100)
    tasks = tasks_of(wishes)
    assert ranges(tasks) == [[(0, start, start + 100)] for start in (0, 100, 200, 300)] + [[(1, 0, 20)]]
    assert all(abs(one.size_bytes - 10 * len(BATCH)) < 200 for (one,) in tasks[:4])
    read = offsets_read(tasks, wishes)
    assert read == [[(one.partition, offset) for offset in range(one.start_offset, one.end_offset)] for (one,) in tasks]


def test_min_partitions_follow_the_bytes(racks: RunningCluster, wires: Wires) -> None:
    fill(wires, "skewed", 40, 8)
    tasks = tasks_of(options(racks, "skewed", minPartitions=6))
    assert ranges(tasks) == [[(0, start, start + 80)] for start in range(0, 400, 80)] + [[(1, 0, 80)]]


def test_many_small_partitions_are_read_by_few_tasks_in_order(racks: RunningCluster, wires: Wires) -> None:
    fill(wires, "many", *[1] * 40)
    wishes = options(racks, "many")
    tasks = tasks_of(wishes)
    assert (len(tasks), sum(map(len, tasks))) == (16, 40)
    read = offsets_read(tasks, wishes)
    assert [row for rows in read for row in rows] == [(number, offset) for number in range(40) for offset in range(10)]
    assert [len(rows) for rows in read] == [10 * len(task) for task in tasks]
    assert len(tasks_of(options(racks, "many", partitioning="topicPartition"))) == 40


def test_a_task_that_is_ended_early_leaves_nothing_behind(racks: RunningCluster, wires: Wires) -> None:
    fill(wires, "early", *[1] * 40)
    wishes = options(racks, "early")
    reading = read_splits(tasks_of(wishes)[0], wishes, ("offset",))
    assert len(next(reading)) == RECORDS
    reading.close()  # type: ignore[attr-defined]


def test_a_range_is_read_from_the_replica_in_ones_own_rack(racks: RunningCluster, wires: Wires) -> None:
    fill(wires, "near", 3, factor=3)
    leader = leader_of(wires[1], "near")
    follower = leader % 3 + 1
    racks.run(lambda cluster: all_in_sync(cluster, "near"))
    client_id = f"barnabas-spark-{socket.gethostname()}-{os.getpid()}"
    wishes = options(racks, "near", kafka_client_rack=RACKS[follower - 1])
    (rows,) = offsets_read(tasks_of(wishes), wishes)
    assert [offset for _, offset in rows] == list(range(30))
    assert readers_of(racks.cluster, "near", client_id) == {follower}


def test_and_from_the_leader_if_nobody_is_there(racks: RunningCluster, wires: Wires) -> None:
    fill(wires, "far", 3)
    wishes = options(racks, "far", kafka_client_rack="moon")
    (rows,) = offsets_read(tasks_of(wishes), wishes)
    assert [offset for _, offset in rows] == list(range(30))


# Brokers that do not tell.


@pytest.mark.parametrize("how", ["estimated", "guessed", "silent"])
def test_where_no_broker_tells_ranges_are_cut_by_offsets(
    racks: RunningCluster, wires: Wires, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(wires, f"plain-{how}", 40)

    def silent(*_: object) -> Any:
        raise DeadlineExceededError("no answer")

    monkeypatch.setattr(measuring, "describe_offset_ranges", silent if how == "silent" else unsupported)
    if how == "guessed":
        monkeypatch.setattr(measuring, "describe_log_dirs", refused)
    wishes = options(racks, f"plain-{how}", maxBytesPerPartition=40 * len(BATCH) // 3)
    tasks = tasks_of(wishes)
    # A guess takes 1 KiB for each of the 400 records.
    assert len(tasks) == (6 if how == "guessed" else 4)
    sizes = [one.offsets for (one,) in tasks]
    assert (sum(sizes), max(sizes) - min(sizes)) == (400, 0 if how != "guessed" else 1)
    assert [len(rows) for rows in offsets_read(tasks, wishes)] == sizes


def test_cuts_that_are_not_told_after_the_sizes_are_made_by_offsets(
    racks: RunningCluster, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(wires, "moved", 30)
    told = describe_offset_ranges
    calls: list[int] = []

    async def once(*given: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "moved-0")
        return await told(*given)

    monkeypatch.setattr(measuring, "describe_offset_ranges", once)
    tasks = tasks_of(options(racks, "moved", minPartitions=4))
    assert [one.offsets for (one,) in tasks] == [75] * 4


def test_replicas_that_are_future_copies_do_not_count(
    racks: RunningCluster, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(wires, "copies", 2)

    async def directories(*_: object) -> dict[int, list[LogDir]]:
        key = TopicPartition("copies", 0)
        replicas = [ReplicaSize(5_000, 0, is_future=False), ReplicaSize(1 << 40, 0, is_future=True)]
        return {1: [LogDir("/d", None, {key: replica}, -1, -1) for replica in replicas]}

    monkeypatch.setattr(measuring, "describe_offset_ranges", unsupported)
    monkeypatch.setattr(measuring, "describe_log_dirs", directories)
    tasks = tasks_of(options(racks, "copies", maxBytesPerPartition=2_500))
    assert [one.offsets for (one,) in tasks] == [10, 10]
