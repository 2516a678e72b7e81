"""Runs MirrorMaker 2 between two clusters of Barnabas, and compares what it has made there with what is here.

This is `scripts/trials/ecosystem/mirror`. It copies a topic of three partitions in transactions (KIP-618). It is
killed in the midst of the numbers, and started again, and then a broker of the cluster that it writes to. The copy must
have each number once, in its partition, in order, for who reads what is committed; it must have the settings of the
topic, and as many partitions, also after there were made more; and a group must have a position there that leaves
nothing out, and is not far behind.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from machines.cluster_handle import ClusterHandle, cluster, free_port

from .jars import install_connect, status_of
from .numbers import committed, consumer_of, produce
from .workers import Worker, properties, until

__all__ = ["main"]

MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
TOPIC = "numbers"
COPY = f"here.{TOPIC}"
GROUP = "readers"
PARTITIONS = 3
MORE_PARTITIONS = 5
LATE = 30
# As many as come in a burst, of which MirrorMaker notes few positions.
BEHIND_MAX = 1_000
RETENTION_MS = "123456789"


class Mirror:
    """MirrorMaker between the two, through all of its lives."""

    def __init__(self, jars: Path, folder: Path, here: ClusterHandle, there: ClusterHandle) -> None:
        self._jars = jars
        self._folder = folder
        # What is told of here is so of one broker.
        settings = {
            "clusters": "here, there",
            "here.bootstrap.servers": here.bootstrap,
            "there.bootstrap.servers": there.bootstrap,
            "here->there.enabled": "true",
            "here->there.topics": TOPIC,
            "there->here.enabled": "false",
            "there.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_port(1)}",
            "tasks.max": 2,
            "refresh.topics.interval.seconds": 1,
            "sync.topic.configs.interval.seconds": 1,
            "refresh.groups.interval.seconds": 1,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "emit.heartbeats.interval.seconds": 1,
            "offset.lag.max": 10,
            "replication.factor": 3,
            "offset-syncs.topic.replication.factor": 1,
            "here.consumer.isolation.level": "read_committed",
            # Of the heartbeats, which it writes to both.
            "heartbeats.topic.replication.factor": 1,
            "checkpoints.topic.replication.factor": 3,
        }
        self._file = properties(folder / "mirror.properties", settings)
        self.start()

    def start(self) -> None:
        self.worker = Worker(f"{self._jars}/*", self._folder / "mirror", MAIN, self._file)


def copied(bootstrap: str) -> list[int]:
    """Return how many records, also of transactions' ends, each partition of the copy has; nothing if there is none."""
    with consumer_of(bootstrap) as consumer:
        topic = consumer.list_topics(COPY, timeout=30).topics[COPY]
        if topic.error is not None:
            return []
        return [consumer.get_watermark_offsets(TopicPartition(COPY, k), timeout=30)[1] for k in topic.partitions]


def commit_late(bootstrap: str, count: int) -> dict[int, int]:
    """Give the group positions near the ends of its partitions, and return them."""
    positions = dict.fromkeys(range(PARTITIONS), count // PARTITIONS - LATE)
    places = [TopicPartition(TOPIC, partition, offset) for partition, offset in positions.items()]
    with consumer_of(bootstrap, GROUP) as consumer:
        consumer.commit(offsets=places, asynchronous=False)
    return positions


def positions_there(bootstrap: str) -> dict[int, int]:
    with consumer_of(bootstrap, GROUP) as consumer:
        found = consumer.committed([TopicPartition(COPY, partition) for partition in range(PARTITIONS)], timeout=30)
    return {place.partition: place.offset for place in found if place.offset >= 0}


def first_from(bootstrap: str, partition: int, offset: int) -> int:
    """Return the first number that who reads committed records finds in the copy from there on."""
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(COPY, partition, offset)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        return int(message.value() or b"")


def setting_there(admin: AdminClient, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, COPY)
    return str(admin.describe_configs([resource])[resource].result(30)[name].value)


def run(mirror: Mirror, here: ClusterHandle, there: ClusterHandle, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": here.bootstrap})
    theirs = AdminClient({"bootstrap.servers": there.bootstrap})
    watched = partial(until, limit_s=300)
    watched(lambda: sum(copied(there.bootstrap)) > count // 2, "the first numbers", mirror.worker)
    mirror.worker.kill()
    produce(here.bootstrap, TOPIC, range(count, 2 * count), PARTITIONS)
    mirror.start()
    watched(lambda: sum(copied(there.bootstrap)) > count + count // 2, "numbers after its death", mirror.worker)
    there.kill(2)
    produce(here.bootstrap, TOPIC, range(2 * count, 3 * count), PARTITIONS)
    watched(lambda: sum(copied(there.bootstrap)) > 3 * count, "numbers after a broker's death", mirror.worker)
    there.start()
    wanted = [[*range(k, 3 * count, PARTITIONS)] for k in range(PARTITIONS)]

    def found() -> list[list[int]]:
        return [committed(there.bootstrap, COPY, k) for k in range(PARTITIONS)]

    watched(lambda: sum(map(len, found())) >= 3 * count, "all numbers", mirror.worker)
    assert found() == wanted, "numbers are missing in the copy, or there twice, or in another order"
    print(f"{3 * count} numbers in {PARTITIONS} partitions of the copy, each once, in order", flush=True)
    ours = commit_late(here.bootstrap, 3 * count)
    watched(lambda: len(positions_there(there.bootstrap)) == PARTITIONS, "the group's positions", mirror.worker)
    for partition, offset in positions_there(there.bootstrap).items():
        number = first_from(there.bootstrap, partition, offset)
        print(f"partition {partition}: the group is at {ours[partition]} here, at number {number} there", flush=True)
        # It may be behind, because MirrorMaker notes only some pairs of positions.
        assert number <= wanted[partition][ours[partition]], "the position leaves numbers out"
        assert number >= wanted[partition][max(0, ours[partition] - BEHIND_MAX)], "the position is far behind"
    watched(lambda: setting_there(theirs, "retention.ms") == RETENTION_MS, "the topic's setting", mirror.worker)
    admin.create_partitions([NewPartitions(TOPIC, MORE_PARTITIONS)])[TOPIC].result(30)
    watched(lambda: len(copied(there.bootstrap)) == MORE_PARTITIONS, "more partitions", mirror.worker)
    names = theirs.list_topics(timeout=30).topics
    assert {"heartbeats", "here.checkpoints.internal"} <= names.keys(), sorted(names)
    print(
        "the copy has the topic's setting, and more partitions when the topic has; heartbeats, checkpoints", flush=True
    )


def _work() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3_000, help="of numbers before each death")
    options = parser.parse_args()
    jars = install_connect()
    with tempfile.TemporaryDirectory(prefix="mirror-") as folder, cluster(1) as here, cluster() as there:
        admin = AdminClient({"bootstrap.servers": here.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": RETENTION_MS})
        admin.create_topics([topic])[TOPIC].result(30)
        produce(here.bootstrap, TOPIC, range(options.count), PARTITIONS)
        mirror = Mirror(jars, Path(folder), here, there)
        try:
            run(mirror, here, there, options.count)
        finally:
            mirror.worker.end()
    return 0


def main() -> int:
    return status_of("mirror", "MirrorMaker 2", _work)


if __name__ == "__main__":
    sys.exit(main())
