"""Spark's own connector on Barnabas and on Kafka: the same query, one cluster up at a time, in turns.

The query is stateless, from topic to topic of the same cluster, with Spark's Kafka source and sink; once in real-time
mode, which needs a task slot for each partition, and once in micro-batches. Both clusters write to the page cache. The
latency is that from a record's timestamp to the timestamp of the record that the sink makes of it.

Kafka beside itself, from round to round, is the noise of the comparison.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from bench import systems
from bench.pipeline.flow import flow
from bench.pipeline.lines import Latencies, Line, at_most, noise_of
from bench.pipeline.spark_process import SparkProcess, spark_process
from bench.pipeline.stage import THEIRS, Sizes
from bench.pipeline.streams import EVERY_MICRO_BATCH
from bench.pipeline.topics import Topics

__all__ = ["PARTITIONS", "TRIGGERS", "measure"]

PARTITIONS = 5  # as in Spark's own benchmark of real-time mode
# A batch of real-time mode lasts so long, and longer than a round: records wait where one ends and the next begins.
TRIGGERS = {"real-time": {"realTime": "5 minutes"}, "micro-batches": EVERY_MICRO_BATCH}
LIMITS = {"p50_ms": at_most(1.1), "p99_ms": at_most(1.25)}
SYSTEMS = {"barnabas": partial(systems.barnabas, synced=False), "kafka": partial(systems.kafka, synced=False)}
WARM_SHARE = 5


def measure(jars: list[Path], sizes: Sizes, triggers: Sequence[str], console: Console) -> Iterator[Line]:
    """Run the rounds; `sizes.stream_s` seconds of each system and trigger are measured in each."""
    found: dict[tuple[str, str], list[Latencies]] = {}
    with spark_process(jars, slots=PARTITIONS) as spark:
        for number in range(sizes.rounds):
            for system in SYSTEMS if number % 2 == 0 else reversed(SYSTEMS):
                with SYSTEMS[system]() as running:
                    topics = Topics(running.address)
                    # As in the comparison of brokers: what a JVM has not compiled yet is slow.
                    with topics.filled([1] * PARTITIONS, sizes.wide_rows // WARM_SHARE):
                        pass
                    for trigger in triggers:
                        latencies = _measured(spark, topics, sizes, trigger, f"round {number + 1}: {system}", console)
                        found.setdefault((system, trigger), []).append(latencies)
    for trigger in triggers:
        for metric, limit in LIMITS.items():
            ours, theirs = ([getattr(one, metric) for one in found[system, trigger]] for system in SYSTEMS)
            remark = f"Kafka beside itself: {noise_of(theirs)}"
            what = f"{trigger}, {sizes.rate:,} records/s, {metric[:3]}"
            yield Line("connector", what, "page-cache", "ms", ours, theirs, "the same on Kafka", limit, remark)


def _measured(
    spark: SparkProcess, topics: Topics, sizes: Sizes, trigger: str, where: str, console: Console
) -> Latencies:
    latencies, told = flow(spark, topics, sizes, THEIRS, PARTITIONS, TRIGGERS[trigger], into_topic=True)
    console.print(
        f"connector: {where}, {trigger}: p50 {latencies.p50_ms:.0f} ms, p99 {latencies.p99_ms:.0f} ms, "
        f"{latencies.records:,} records; the load was {told['late_p99_ms']:.0f} ms late at p99, and its records were "
        f"acknowledged after {told['acked_p50_ms']:.0f} ms at p50" + "".join(f"; {text}" for text in told["pauses"])
    )
    return latencies
