"""Kills brokers around the deletion of records: those stay deleted, and nothing else goes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from machines import cluster_handle

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC = "shortened"
START = 700


@pytest.fixture
def own_cluster() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster(settings={"log.segment.bytes": str(64 << 10)}) as brokers:
        yield brokers


def produce(bootstrap: str, first: int, count: int) -> None:
    """Write records `first` to `first + count`, of a kilobyte each; every one must be acknowledged at its place."""
    small = {"linger.ms": 1, "batch.num.messages": 10}  # many batches a segment
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **small})
    places: list[int] = []
    for number in range(first, first + count):
        producer.produce(
            TOPIC,
            number.to_bytes(4, "big") + bytes(1_000),
            partition=0,
            on_delivery=lambda error, message: places.append(-1 if error else message.offset()),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert places == list(range(first, first + count))


def read_all(bootstrap: str, end: int) -> list[tuple[int, int]]:
    """Return (offset, number) of every record from the beginning of the log on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "error"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        assert high == end
        consumer.assign([TopicPartition(TOPIC, 0, low)])
        found: list[tuple[int, int]] = []
        while not found or found[-1][0] < end - 1:
            message = consumer.poll(30)
            assert message is not None, f"stuck after {found[-1:]}"
            assert message.error() is None, message.error()
            found.append((message.offset(), int.from_bytes(message.value()[:4], "big")))
        return found
    finally:
        consumer.close()


def leader_id(cluster: cluster_handle.ClusterHandle) -> int:
    topic = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, timeout=30).topics[TOPIC]
    leader: int = topic.partitions[0].leader
    return leader


def lowest_offset(cluster: cluster_handle.ClusterHandle, node_id: int) -> int:
    """Return the base offset of the first segment file that this broker has."""
    files = Path(cluster.data).glob(f"broker-{node_id}/**/replicas/{TOPIC}-0-*/*.log")
    return min(int(path.name.split(".")[0]) for path in files)


def test_what_was_deleted_stays_deleted_and_nothing_else_goes(own_cluster: cluster_handle.ClusterHandle) -> None:
    cluster = own_cluster
    words = ("--partitions", 1, "--replication-factor", 3, "--bootstrap-server", cluster.bootstrap)
    cluster_handle.run("topic", "create", TOPIC, *words)
    produce(cluster.bootstrap, 0, 200)
    leader = leader_id(cluster)
    away, other = sorted({1, 2, 3} - {leader})
    cluster.kill(away)
    produce(cluster.bootstrap, 200, 600)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(TOPIC, 0, START)], request_timeout=30).values()
    assert deleted.result(30).low_watermark == START
    # It was acknowledged a moment ago: on some disks nothing of it may have happened yet.
    cluster.kill(leader, other)
    cluster.start()
    expected = [(number, number) for number in range(START, 800)]
    assert read_all(cluster.bootstrap, 800) == expected
    produce(cluster.bootstrap, 800, 100)
    expected += [(number, number) for number in range(800, 900)]
    assert read_all(cluster.bootstrap, 900) == expected
    # The broker that was away had none of this, and has the rest of it.
    cluster.stop()
    for node_id in (1, 2, 3):
        assert START - 200 < lowest_offset(cluster, node_id) <= START
