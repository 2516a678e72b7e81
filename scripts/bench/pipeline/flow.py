"""Measures how long records take through a streaming query, while a load writes them at a fixed rate."""

import time
from typing import Any

from .lines import Latencies, latencies_of, pauses_of
from .load import Writing
from .spark_process import SparkProcess
from .stage import Sizes
from .topics import Topics, written_by

__all__ = ["flow"]

DRAIN_LIMIT_S = 180.0
RECORD_BYTES = 1024
LOOK_S = 0.2
# Of a load beside which Kafka's brokers run, which a request for each record would keep busy by itself.
LINGER_MS = 10


def flow(
    spark: SparkProcess,
    topics: Topics,
    sizes: Sizes,
    source: str,
    partitions: int,
    trigger: dict[str, str],
    into_topic: bool = False,
) -> tuple[Latencies, dict[str, Any]]:
    """Start a query over a new topic, write to it, and return the latencies of the records of `stream_s` seconds.

    Before these, records are written for `warm_s` seconds, and waited for: a query that starts, on a cluster that does,
    can be many seconds behind. The sink is `memory`, or with `into_topic` a topic of the same cluster through Spark's
    own sink. Also returned: how late the load was, what it cost, and what the query tells of its micro-batches.

    Raises:
        RuntimeError: not every record came to the sink.
    """
    with topics.new(partitions) as topic, topics.new(partitions) as target:
        options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        sink_options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target} if into_topic else {}
        sink = "kafka" if into_topic else "memory"
        spark.ask("start", source=source, options=options, sink=sink, sink_options=sink_options, trigger=trigger)
        records = 0
        written = None
        before_s = 0.0
        for seconds in (sizes.warm_s, sizes.stream_s):
            before_s = spark.cpu_s
            load = Writing(
                bootstrap=topics.bootstrap,
                topic=topic,
                shares=[1] * partitions,
                record_bytes=RECORD_BYTES,
                rate=sizes.rate,
                seconds=seconds,
                linger_ms=LINGER_MS if into_topic else 0,
            )
            with written_by(load) as under:
                written = under.wait()
            records += written.records
            if into_topic:
                _wait_for(topics, target, partitions, records)
            else:
                spark.ask("wait", rows=records, limit_s=DRAIN_LIMIT_S)
        spent_s = spark.cpu_s - before_s
        told = spark.ask("stop")
    assert written is not None
    arrivals = [(int(sent), int(at)) for sent, at in told.pop("arrivals")]
    if len(arrivals) < records:
        raise RuntimeError(f"{len(arrivals)} records came to the sink, not {records}")
    found = latencies_of(arrivals, written.start_ms, written.end_ms + 1)
    told["pauses"] = [one.text for one in pauses_of(arrivals, written.start_ms, written.end_ms + 1)]
    told |= {"late_p99_ms": written.late_p99_ms, "acked_p50_ms": written.acked_p50_ms}
    return found, told | {"load_cpu_s": written.cpu_s, "cpu_s": spent_s}


def _wait_for(topics: Topics, topic: str, partitions: int, records: int) -> None:
    deadline = time.monotonic() + DRAIN_LIMIT_S
    while topics.records(topic, partitions) < records:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topics.records(topic, partitions)} records came to the sink, not {records}")
        time.sleep(LOOK_S)
