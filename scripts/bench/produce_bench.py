"""Produce throughput: 1 KiB records, 6 partitions, RF 3, acks=all, one client, three nodes, all on this machine.

Every system runs in every round, one after the other in an order that alternates from round to round, each started
afresh and warmed up before it is measured. Printed are the median of the rounds and its ratio to Apache Kafka's in the
same mode. Absolute figures mean little on a shared machine; the ratios are the result.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path

import systems
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

PARTITIONS, REPLICAS = 6, 3
KAFKA_WARM_RECORDS = 1_000_000  # its figures keep rising for about that long: the JVM compiles
WARM_RECORDS = 100_000
DELIVERY_LIMIT_S = 180.0
Key = tuple[str, str]  # mode and system


def produce(bootstrap: str, records: int, record_bytes: int) -> float:
    """Produce `records` to a new topic and return MB/s, from the first record to the last acknowledgement."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, REPLICAS)])[topic].result(30)
    deadline = time.monotonic() + 30
    while any(p.leader < 0 for p in admin.list_topics(topic, timeout=10).topics[topic].partitions.values()):
        if time.monotonic() > deadline:
            raise RuntimeError("the topic has no leaders")
        time.sleep(0.05)
    failures: list[str] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256_000,
            "delivery.report.only.error": True,
            "on_delivery": report,
        }
    )
    half = record_bytes // 2
    values = [os.urandom(half) + bytes(record_bytes - half) for _ in range(64)]
    began = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % 64], partition=number // 512 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1024:
            producer.poll(0)
    undelivered = producer.flush(DELIVERY_LIMIT_S)
    took_s = time.perf_counter() - began
    if undelivered or failures:
        raise RuntimeError(f"{undelivered + len(failures)} records were not delivered: {failures[:1]}")
    admin.delete_topics([topic])[topic].result(30)
    return records * record_bytes / took_s / 1e6


def publish(urls: str, records: int, record_bytes: int) -> float:
    """Publish the same to NATS and return MB/s."""
    _, load = systems.install_nats()
    words = ["-url", urls, "-records", records, "-bytes", record_bytes, "-streams", PARTITIONS, "-replicas", REPLICAS]
    out = subprocess.run([str(load), *map(str, words)], check=True, capture_output=True, text=True).stdout
    answer = json.loads(out)
    if answer["failed"]:
        raise RuntimeError(f"NATS refused {answer['failed']} records")
    return float(answer["mb_s"])


def measure(name: str, *, synced: bool, records: int, record_bytes: int) -> float:
    """Start one system, warm it up, and return its MB/s."""
    start = {"barnabas": systems.barnabas, "kafka": systems.kafka, "nats": systems.nats}[name]
    load = publish if name == "nats" else produce
    with start(synced=synced) as address:
        load(address, KAFKA_WARM_RECORDS if name == "kafka" else WARM_RECORDS, record_bytes)
        return load(address, records, record_bytes)


def collect(options: argparse.Namespace, names: list[str], console: Console) -> tuple[dict[Key, list[float]], int]:
    """Measure every system in every mode and round; return the samples, and how many measurements failed."""
    samples: dict[Key, list[float]] = defaultdict(list)
    missing, failed = set[str](), 0
    for mode in options.modes.split(","):
        for number in range(options.rounds):
            for name in names if number % 2 == 0 else reversed(names):
                if name in missing:
                    continue
                try:
                    rate = measure(name, synced=mode == "synced", records=options.records, record_bytes=options.bytes)
                except systems.NotInstalledError as error:
                    missing.add(name)
                    console.print(f"{name}: not measured: {error}")
                except (RuntimeError, subprocess.SubprocessError) as error:
                    failed += 1  # The other systems and rounds still count; the exit status tells.
                    console.print(f"{mode} round {number + 1}: {name} failed: {error}")
                else:
                    samples[mode, name].append(rate)
                    console.print(f"{mode} round {number + 1}: {name} {rate:.1f} MB/s")
    return samples, failed


def summary(options: argparse.Namespace, names: list[str], samples: dict[Key, list[float]]) -> Table:
    """Return medians and their ratios to Kafka's."""
    table = Table(title=f"produce, {options.bytes}-byte records, {PARTITIONS} partitions, RF {REPLICAS}, acks=all")
    for heading in ("mode", "system", "MB/s (median)", "min to max", "ratio to Kafka"):
        table.add_column(heading)
    for mode in options.modes.split(","):
        base = samples.get((mode, "kafka"))
        for name in names:
            if not (found := samples.get((mode, name), [])):
                table.add_row(mode, name, "not measured", "", "")
                continue
            middle = statistics.median(found)
            ratio = f"{middle / statistics.median(base):.2f}" if base else "not measured"
            table.add_row(mode, name, f"{middle:.1f}", f"{min(found):.1f} to {max(found):.1f}", ratio)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=600_000, help="records of a measurement")
    parser.add_argument("--bytes", type=int, default=1024, help="size of a record")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="barnabas,kafka,nats", help="systems, comma separated")
    parser.add_argument("--modes", default="page-cache,synced", help="durability modes, comma separated")
    parser.add_argument("--json", type=Path, help="write the raw samples to this file")
    options = parser.parse_args()
    names, console = options.only.split(","), Console()
    if unknown := set(names) - {"barnabas", "kafka", "nats"}:
        parser.error(f"unknown system: {', '.join(sorted(unknown))}")
    if unknown := set(options.modes.split(",")) - {"page-cache", "synced"}:
        parser.error(f"unknown mode: {', '.join(sorted(unknown))}")
    samples, failed = collect(options, names, console)
    console.print(summary(options, names, samples))
    if options.json:
        options.json.write_text(json.dumps({f"{mode}/{name}": found for (mode, name), found in samples.items()}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
