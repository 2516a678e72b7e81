"""Compares clients: records a second, processor time and memory of three of them.

They are Barnabas', aiokafka and librdkafka. One cluster serves all of it, by default three Barnabas brokers with the
page cache's durability; topics of 6 partitions without replicas, because the clients are measured and not the brokers.
Every measurement runs in a process of its own (`bench.loads.client_load`), the clients in an order that alternates from
round to round. Consumers read records that librdkafka has produced once. On a shared machine ratios and processor time
say more than records a second.

*Alike*: values of one size, no keys. *Varied*: with keys, and sizes from a quarter of the mean to seven quarters of it.
"ratio" is records a second; "memory" is the client's peak as a share of aiokafka's, measured as the whole process.
"""

import argparse
import json
import statistics
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from machines import held_memory
from machines.modules import module_command, module_environment
from rich.console import Console
from rich.table import Table

from bench import systems
from bench.loads import client_load

PARTITIONS = 6
PROCESS_LIMIT_S = 300
TABLE_WIDTH = 160
SHAPES = ("alike", "varied")
CLIENTS = ("barnabas", "aiokafka", "confluent-kafka")


class Sample(NamedTuple):
    """One measurement."""

    records_s: float
    cpu_us: float
    """Processor time for a record, in microseconds."""
    peak_mib: float


Key = tuple[str, str, int, str]  # what, shape, size of a record, client
Samples = dict[Key, list[Sample]]


class Topics:
    """Makes topics and drops them; knows how many records are in one."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    @contextmanager
    def new(self) -> Iterator[str]:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        try:
            yield topic
        finally:
            self._admin.delete_topics([topic])[topic].result(30)

    def count(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused", "log_level": 0})
        try:
            places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
        finally:
            consumer.close()


def measure(what: str, client: str, load: client_load.Load, *, uvloop: bool) -> Sample:
    """Run one measurement in a process of its own."""
    options = ["--uvloop"] if uvloop else []
    words = module_command("bench.loads.client_load", what, client, json.dumps(load._asdict()), *options)
    done = subprocess.run(
        words, env=module_environment(), capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or "no output").splitlines()[-1])
    found = json.loads(done.stdout)
    return Sample(
        load.records / found["seconds"], found["cpu_seconds"] / load.records * 1e6, found["peak_bytes"] / 2**20
    )


def collect(options: argparse.Namespace, clients: list[str], topics: Topics, console: Console) -> tuple[Samples, int]:
    """Measure everything in every round; return the samples, and the number of failed measurements."""
    samples: Samples = defaultdict(list)
    failed = 0

    def note(what: str, client: str, load: client_load.Load, number: int) -> None:
        nonlocal failed
        try:
            sample = measure(what, client, load, uvloop=options.uvloop)
            if what == "produce" and (there := topics.count(load.topic)) != load.records + load.warm_records:
                raise RuntimeError(f"{there} records are in the topic, not {load.records + load.warm_records}")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed += 1  # The others still count; the exit status tells.
            shape = SHAPES[load.is_varied]
            console.print(f"round {number + 1}: {what}, {shape}, {load.record_bytes} B: {client} failed: {error}")
            return
        shape = SHAPES[load.is_varied]
        samples[what, shape, load.record_bytes, client].append(sample)
        console.print(
            f"round {number + 1}: {what}, {shape}, {load.record_bytes} B: {client} {sample.records_s:,.0f} records/s, "
            f"{sample.cpu_us:.1f} µs each, {sample.peak_mib:.0f} MiB"
        )

    for shape, size in loads(options):
        warm = options.records // 10
        with topics.new() as filled:
            load = client_load.Load(
                bootstrap=topics.bootstrap,
                topic=filled,
                records=options.records,
                record_bytes=size,
                warm_records=0,
                is_varied=shape == "varied",
            )
            measure("produce", "confluent-kafka", load, uvloop=False)
            for number in range(options.rounds):
                for client in clients if number % 2 == 0 else reversed(clients):
                    with topics.new() as topic:
                        note("produce", client, load._replace(topic=topic, warm_records=warm), number)
                    for what in ("consume by 500", "consume one by one"):
                        note(what, client, load, number)
    return samples, failed


def loads(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    for shape in options.shapes.split(","):
        for size in map(int, options.bytes.split(",")):
            yield shape, size


def summary(options: argparse.Namespace, clients: list[str], samples: Samples) -> Table:
    """Return medians, and their ratios to the other two clients."""
    table = Table(title=f"{options.records:,} records, {PARTITIONS} partitions, {options.rounds} rounds, medians")
    table.add_column("what")
    table.add_column("client")
    for heading in ("records/s", "min to max", "CPU µs each", "peak MiB", "to aiokafka", "to confluent", "memory"):
        table.add_column(heading, justify="right")
    for what in dict.fromkeys(what for what, _ in client_load.MEASUREMENTS):
        for shape, size in loads(options):
            for client in clients:
                found = samples.get((what, shape, size, client), [])
                if not found:
                    table.add_row(f"{what}, {shape}, {size} B", client, "not measured")
                    continue
                rates = [sample.records_s for sample in found]
                table.add_row(
                    f"{what}, {shape}, {size} B",
                    client,
                    f"{statistics.median(rates):,.0f}",
                    f"{min(rates):,.0f} to {max(rates):,.0f}",
                    f"{statistics.median(sample.cpu_us for sample in found):.1f}",
                    f"{statistics.median(sample.peak_mib for sample in found):.0f}",
                    _ratio(samples, (what, shape, size, client), "aiokafka", "records_s"),
                    _ratio(samples, (what, shape, size, client), "confluent-kafka", "records_s"),
                    _ratio(samples, (what, shape, size, client), "aiokafka", "peak_mib"),
                )
    return table


def _ratio(samples: Samples, key: Key, to: str, field: str) -> str:
    base = samples.get((*key[:3], to))
    if not base:
        return ""
    middle = statistics.median(getattr(sample, field) for sample in samples[key])
    return f"{middle / statistics.median(getattr(sample, field) for sample in base):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000, help="records of a measurement")
    parser.add_argument("--bytes", default="100,1024", help="sizes of a record, comma separated")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="alike or varied, comma separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(CLIENTS), help="clients, comma separated")
    parser.add_argument("--bootstrap", help="measure against this cluster instead of starting one")
    parser.add_argument("--uvloop", action="store_true", help="run the asyncio clients on uvloop, all of them")
    parser.add_argument("--json", type=Path, help="write the raw samples to this file")
    held_memory.add_option(parser)
    options = parser.parse_args()
    clients = options.only.split(",")
    console = Console(width=TABLE_WIDTH)
    if unknown := set(clients) - set(CLIENTS):
        parser.error(f"unknown client: {', '.join(sorted(unknown))}")
    if unknown := set(options.shapes.split(",")) - set(SHAPES):
        parser.error(f"unknown shape: {', '.join(sorted(unknown))}")
    with held_memory.holding(options.hold_memory):
        if options.bootstrap:
            samples, failed = collect(options, clients, Topics(options.bootstrap), console)
        else:
            with systems.barnabas(synced=False) as brokers:
                samples, failed = collect(options, clients, Topics(brokers.address), console)
    console.print(summary(options, clients, samples))
    if options.json:
        raw = [
            dict(zip(("what", "shape", "bytes", "client"), key, strict=True)) | sample._asdict()
            for key, found in samples.items()
            for sample in found
        ]
        options.json.write_text(json.dumps(raw, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
