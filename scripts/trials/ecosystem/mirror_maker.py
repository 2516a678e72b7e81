"""Runs MirrorMaker 2 from one cluster of Barnabas to another, and compares the two.

This is `scripts/trials/ecosystem/mirror-maker`. The source has a topic with a configuration of its own, records, and a
group that has read some of them. The target must get the topic under the source's name and a dot, with that
configuration and all records, also those that come later and those of a topic that is made later; and the group, with
an offset up to which it has read.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import confluent_kafka
from bench import systems
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from machines.cache import NotInstalledError
from machines.cluster_handle import ClusterHandle, cluster

from .workers import Worker, until

__all__ = ["main"]

MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
TOPIC, LATER, GROUP = "orders", "later", "readers"
RETENTION_MS = "7200000"


def send(handle: ClusterHandle, topic: str, first: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": handle.bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, b"k%d" % number, headers=[("n", b"%d" % number)])
    assert producer.flush(30) == 0


def read(handle: ClusterHandle, topic: str) -> list[tuple[bytes, bytes, object]]:
    """Return all records that the partitions have now; none if there is no such topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": handle.bootstrap, "group.id": "judge"})
    found = []
    try:
        known = consumer.list_topics(topic, timeout=20).topics[topic]
        if known.error is not None:
            return []
        places = [TopicPartition(topic, number, 0) for number in known.partitions]
        left = sum(consumer.get_watermark_offsets(place, timeout=20)[1] for place in places)
        consumer.assign(places)
        while left:
            message = consumer.poll(20)
            assert message is not None, f"{left} records of {topic} are missing"
            assert message.error() is None, message.error()
            found.append((message.key(), message.value(), message.headers()))
            left -= 1
    finally:
        consumer.close()
    return sorted(found, key=lambda one: int(one[1]))


def offset_of(handle: ClusterHandle, topic: str) -> int:
    """Return what the group has committed, over all partitions; -1 if nothing."""
    admin = AdminClient({"bootstrap.servers": handle.bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    try:
        offsets = [part.offset for part in future.result(20).topic_partitions if part.topic == topic]
    except KafkaException:
        return -1
    return sum(offsets) if offsets else -1


def commit(handle: ClusterHandle, offsets: list[TopicPartition]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": handle.bootstrap, "group.id": GROUP})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def make(handle: ClusterHandle, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": handle.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config=configs)])[topic].result(20)


def settings_of(source: ClusterHandle, target: ClusterHandle) -> dict[str, object]:
    internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "config.storage")
    return {
        "clusters": "a, b",
        "a.bootstrap.servers": source.bootstrap,
        "b.bootstrap.servers": target.bootstrap,
        "a->b.enabled": "true",
        "b->a.enabled": "false",
        "a->b.topics": f"{TOPIC}|{LATER}",
        "a->b.groups": GROUP,
        "replication.factor": 1,
        **{f"{name}.replication.factor": 1 for name in (*internal, "status.storage")},
        "refresh.topics.interval.seconds": 1,
        "refresh.groups.interval.seconds": 1,
        "sync.topic.configs.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "offset.lag.max": 0,
        "tasks.max": 2,
    }


def mirrored(jars: Path, source: ClusterHandle, target: ClusterHandle, folder: Path, records: int) -> None:
    make(source, TOPIC, **{"retention.ms": RETENTION_MS})
    send(source, TOPIC, 0, records)
    worker = Worker(jars, folder / "mirror", MIRROR_MAKER, settings_of(source, target))
    copy = f"a.{TOPIC}"
    try:
        until(lambda: read(target, copy) == read(source, TOPIC), "the records", worker)
        resource = ConfigResource(ResourceType.TOPIC, copy)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        until(
            lambda: admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == RETENTION_MS,
            "the configuration",
            worker,
        )
        # Offsets can be translated from where the mirror has been since it runs.
        send(source, TOPIC, records, records)
        until(lambda: len(read(target, copy)) == 2 * records, "the records after that", worker)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": source.bootstrap, "group.id": "ends"})
        ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, k), timeout=20)[1] for k in range(2)]
        consumer.close()
        commit(source, [TopicPartition(TOPIC, k, end) for k, end in enumerate(ends)])
        until(lambda: offset_of(target, copy) == sum(ends), "the group's offsets", worker)
        make(source, LATER)
        send(source, LATER, 0, records)
        until(lambda: read(target, f"a.{LATER}") == read(source, LATER), "a topic that was made later", worker)
    finally:
        worker.end()
    assert read(target, copy) == read(source, TOPIC)
    print(f"mirrored: {3 * records} records of two topics, a configuration, a group's offsets", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200)
    options = parser.parse_args()
    try:
        jars = systems.install_connect()
    except NotInstalledError as error:
        print(f"scripts/trials/ecosystem/mirror-maker: MirrorMaker 2 cannot be had: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="mirror-") as folder, cluster(1) as source, cluster(1) as target:
        mirrored(jars, source, target, Path(folder), options.records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
