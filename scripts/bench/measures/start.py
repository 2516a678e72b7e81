"""Times `barnabas cluster start` until ready, and until the first acks=all record is answered.

Three situations: an empty directory, the same cluster with data after a clean stop, and again after `kill -9` of all
three brokers at once. The clock starts before the command does; the client is made when the command has returned, and
on the empty cluster it creates its topic first. It is not idempotent: librdkafka spends half a second on its first
producer id, with any broker, and that is not measured here.
"""

import argparse
import statistics
import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from machines.cluster_handle import ClusterHandle, cluster
from rich.console import Console
from rich.table import Table

TOPIC = "start"
PARTITIONS = 6


def produce(bootstrap: str, records: int) -> None:
    """Return when `records` of 1 KiB, spread over the partitions, are acknowledged by all."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    value = b"x" * 1024
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120):
        raise RuntimeError("not everything was acknowledged")


def start(brokers: ClusterHandle) -> tuple[float, float]:
    """Start the cluster; return the seconds until ready, and until a record to each partition was acknowledged."""
    began = time.perf_counter()
    ready_s = brokers.start()
    produce(brokers.bootstrap, PARTITIONS)
    return ready_s, time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000, help="records in the cluster before the restarts")
    options = parser.parse_args()
    samples: dict[str, list[tuple[float, float]]] = {"empty": [], "after a clean stop": [], "after kill -9 of all": []}
    for _ in range(options.rounds):
        began = time.perf_counter()
        with cluster() as brokers:
            admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
            produce(brokers.bootstrap, PARTITIONS)
            samples["empty"].append((brokers.ready_s, time.perf_counter() - began))
            produce(brokers.bootstrap, options.records)
            brokers.stop()
            samples["after a clean stop"].append(start(brokers))
            brokers.kill(1, 2, 3)
            samples["after kill -9 of all"].append(start(brokers))
    table = Table(title=f"start of three brokers, {options.records} records of 1 KiB, {options.rounds} rounds, medians")
    for heading in ("situation", "ready", "longest", "first ack", "longest"):
        table.add_column(heading)
    for name, found in samples.items():
        ready = [pair[0] for pair in found]
        first = [pair[1] for pair in found]
        table.add_row(
            name,
            f"{statistics.median(ready):.2f} s",
            f"{max(ready):.2f} s",
            f"{statistics.median(first):.2f} s",
            f"{max(first):.2f} s",
        )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
