"""Kills brokers under load with SIGKILL: first one at a time, then all three.

The load is `confluent-kafka` with acks=all and idempotence; each partition's records are numbered, so that a reading of
all of them at the end shows every loss, duplicate and change of order. A second client follows the high watermarks all
the while: they may stand still, never go back. The pause of a round is the longest time that any partition went without
an acknowledgement after the kill, from the last acknowledgement before it.

Before the first kill, and after the last, the load runs for twice `replica.lag.time.max.ms` (4 s, unless --set says
otherwise) without a fault. All the while a third client looks at the in-sync replicas ten times a second
(`in_sync_watch`), of a second topic, too, to which records come without a pause. With three replicas
`min.insync.replicas` is 2.

Exit status: 1 when a record or an order was lost, a replica was out of sync without a fault, or a record was refused
for that; otherwise 0.
"""

import argparse
import statistics
import sys
import threading
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from machines.cluster_handle import ClusterHandle, add_link_options, cluster, link_settings, run

from .in_sync_watch import InSyncWatch, Steady
from .times import percentile

TOPIC = "kill-rounds"
PARTITIONS = 6
RECORD_BYTES = 256
RECORDS_PER_SECOND = 3_000
POLL_S = 0.001  # librdkafka counts in milliseconds, and spins if it has to wait for less
SETTLE_S = 1.0  # of load before each kill and after each return
EVENTS_SHOWN = 40
ROUND_LIMIT_S = 60.0
LAG_MAX = "replica.lag.time.max.ms"
LAG_MAX_MS = 4_000  # by default 30 s, in which a round would be over before anybody is missed


class Load(threading.Thread):
    """Produces numbered records at a steady rate until told to stop, and remembers the time of each acknowledgement."""

    def __init__(
        self,
        bootstrap: str,
        topic: str = TOPIC,
        partitions: int = PARTITIONS,
        records_per_second: int = RECORDS_PER_SECOND,
    ) -> None:
        super().__init__(name="load")
        self._topic = topic
        self._records_per_second = records_per_second
        self.sent = [0] * partitions
        self.acked = [0] * partitions
        self.last_ack = [time.perf_counter()] * partitions
        self.gaps: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.failures: list[str] = []
        self.moved = threading.Condition()
        self._stop_asked = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "log_level": 0,
                "on_delivery": self._delivered,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        now = time.perf_counter()
        if error is not None:
            self.failures.append(str(error))
            return
        number = int(message.value()[:12])
        if number != self.acked[partition]:
            self.failures.append(f"partition {partition}: {number} acknowledged, {self.acked[partition]} was due")
        self.acked[partition] = number + 1
        if now - self.last_ack[partition] > 0.05:
            self.gaps[partition].append((self.last_ack[partition], now))
        self.last_ack[partition] = now
        with self.moved:
            self.moved.notify_all()

    def run(self) -> None:
        padding = b"x" * (RECORD_BYTES - 12)
        due = time.perf_counter()
        partition = 0
        while not self._stop_asked.is_set():
            due += 1 / self._records_per_second
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(max(left, POLL_S))
            try:
                self._producer.produce(self._topic, b"%012d" % self.sent[partition] + padding, partition=partition)
                self.sent[partition] += 1
            except BufferError:
                self._producer.poll(0.05)
            partition = (partition + 1) % len(self.sent)
            self._producer.poll(0)
        if left_over := self._producer.flush(120):
            self.failures.append(f"{left_over} records were never delivered")

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()

    def pause_around(self, killed_at: float) -> float:
        """Return the longest wait of any partition that was going on at or began after `killed_at`."""
        waits = [end - begin for found in self.gaps.values() for begin, end in found if end > killed_at]
        return max(waits, default=0.0)

    def wait_all_acked_after(self, moment: float) -> None:
        """Wait until every partition has an acknowledgement later than `moment`."""
        deadline = time.perf_counter() + ROUND_LIMIT_S
        with self.moved:
            while min(self.last_ack) <= moment:
                if not self.moved.wait(timeout=max(0.0, deadline - time.perf_counter())):
                    stuck = [p for p, acked_at in enumerate(self.last_ack) if acked_at <= moment]
                    raise SystemExit(f"partitions {stuck} acknowledged nothing for {ROUND_LIMIT_S:.0f} s")


class Watermarks(threading.Thread):
    """Asks for the high watermark of every partition over and over; it may never be lower than before."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="watermarks")
        self.seen = [0] * PARTITIONS
        self.answers = 0
        self.went_back: list[str] = []
        self._stop_asked = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "watermarks", "socket.timeout.ms": 2000, "log_level": 0}
        )

    def run(self) -> None:
        while not self._stop_asked.wait(0.01):
            for partition in range(PARTITIONS):
                try:
                    _, high = self._consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=2)
                except KafkaException:
                    continue  # No leader just now. The next answer must still not be lower.
                self.answers += 1
                if high < self.seen[partition]:
                    self.went_back.append(f"partition {partition}: from {self.seen[partition]} to {high}")
                self.seen[partition] = high

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()
        self._consumer.close()


def create_topic(brokers: ClusterHandle, topic: str = TOPIC, partitions: int = PARTITIONS, replicas: int = 3) -> None:
    words = ["--partitions", partitions, "--replication-factor", replicas, "--bootstrap-server", brokers.bootstrap]
    if replicas == 3:
        words += ["--config", "min.insync.replicas=2"]
    run("topic", "create", topic, *words)


def wait_whole(
    brokers: ClusterHandle, topic: str = TOPIC, partitions_wanted: int = PARTITIONS, replicas: int = 3
) -> None:
    """Wait until every replica of every partition is in sync again, as any client sees it."""
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "whole", "log_level": 0})
    deadline = time.perf_counter() + ROUND_LIMIT_S
    partitions: dict[int, Any] = {}
    asked = -1
    while True:
        try:
            answer = consumer.list_topics(topic, timeout=5)
            partitions = answer.topics[topic].partitions
            asked = answer.orig_broker_id
            if len(partitions) == partitions_wanted and all(
                len(p.isrs) == replicas and p.leader > 0 for p in partitions.values()
            ):
                break
        except KafkaException:
            pass  # The broker asked has just been restarted; the next answer counts.
        if time.perf_counter() > deadline:
            state = {p.id: (p.leader, list(p.isrs)) for p in partitions.values()}
            text = f"not in sync {ROUND_LIMIT_S:.0f} s after the restart; broker {asked} says of leaders and replicas: "
            text += str(state)
            brokers.keeps_files = True
            raise SystemExit("\n".join([text, *last_words(brokers)]))
        time.sleep(0.05)
    consumer.close()


def last_words(brokers: ClusterHandle) -> list[str]:
    """Return each broker's view of its peers, and its latest events: the fates of peers and replicas."""
    lines = []
    for broker in brokers.status()["brokers"]:
        lines.append(f"broker {broker['node_id']} is {broker['state']}, its peers and latest events:")
        lines += [f"    {peer}" for peer in broker.get("peers", [])]
        lines += [f"    {event}" for event in broker.get("events", [])[-EVENTS_SHOWN:]]
    return lines


def one_at_a_time(
    brokers: ClusterHandle, load: Load, watch: InSyncWatch, rounds: int, replicas: int = 3
) -> list[float]:
    pauses = []
    for number in range(rounds):
        victim = number % 3 + 1
        time.sleep(SETTLE_S)
        led = next(b["leaders"] for b in brokers.status()["brokers"] if b["node_id"] == victim)
        with watch.fault([victim]):
            killed_at = time.perf_counter()
            brokers.kill(victim)
            time.sleep(SETTLE_S)
            load.wait_all_acked_after(killed_at + SETTLE_S / 2)
            pauses.append(load.pause_around(killed_at))
            took = brokers.start()
        wait_whole(brokers, replicas=replicas)
        print(
            f"round {number + 1:2}: killed broker {victim} (led {led}): pause {pauses[-1]:.3f} s, back in {took:.2f} s"
        )
    return pauses


def all_at_once(brokers: ClusterHandle, load: Load, watch: InSyncWatch, rounds: int, replicas: int = 3) -> list[float]:
    pauses = []
    for number in range(rounds):
        time.sleep(SETTLE_S)
        with watch.fault([1, 2, 3]):
            killed_at = time.perf_counter()
            brokers.kill(1, 2, 3)
            took = brokers.start()
        load.wait_all_acked_after(time.perf_counter())
        pauses.append(load.pause_around(killed_at))
        wait_whole(brokers, replicas=replicas)
        print(f"round {number + 1:2}: killed all three: pause {pauses[-1]:.3f} s, of which restart {took:.2f} s")
    return pauses


def read_back(bootstrap: str, acked: list[int]) -> list[str]:
    """Read every partition from 0 and return all violations: numbers must be dense, once, in order, offsets too."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    wrong = []
    following = [0] * PARTITIONS
    at_end = set[int]()
    deadline = time.perf_counter() + 120
    while len(at_end) < PARTITIONS and time.perf_counter() < deadline:
        for message in consumer.consume(5000, 1.0):
            partition = message.partition()
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    at_end.add(partition)
                continue
            number = int(message.value()[:12])
            if number != following[partition] or message.offset() != following[partition]:
                wrong.append(f"{partition}: {number} at offset {message.offset()}, {following[partition]} was due")
            following[partition] = number + 1
    consumer.close()
    for partition, count in enumerate(acked):
        if following[partition] < count:
            wrong.append(f"partition {partition}: {count} acknowledged, {following[partition]} found")
    return wrong


def run_rounds(options: argparse.Namespace, brokers: ClusterHandle) -> list[str]:
    """Run all rounds, print their times, and return all violations."""
    replicas = options.replication_factor
    lag_max_s = int(brokers.settings[LAG_MAX]) / 1000
    create_topic(brokers, replicas=replicas)
    wait_whole(brokers, replicas=replicas)
    load = Load(brokers.bootstrap)
    watermarks = Watermarks(brokers.bootstrap)
    round_trip_s = 2 * (options.link_delay + options.link_jitter) / 1000
    watch = InSyncWatch(brokers.bootstrap, brokers.logs, brokers.running_pids, lag_max_s, round_trip_s)
    steady = Steady(brokers.bootstrap)
    for thread in (load, watermarks, steady, watch):
        thread.start()
    try:
        load.wait_all_acked_after(time.perf_counter())
        time.sleep(2 * lag_max_s)
        single = one_at_a_time(brokers, load, watch, options.rounds, replicas)
        every = all_at_once(brokers, load, watch, options.rounds, replicas)
        time.sleep(watch.excuses.grace_s + 2 * lag_max_s)
    finally:
        load.finish()
        watermarks.finish()
        steady.finish()
        without_excuse = watch.finish()
    for name, pauses in (("one broker", single), ("all three", every)):
        print(
            f"{name}: {len(pauses)} kills, pause median {statistics.median(pauses):.3f} s, "
            f"p99 {percentile(pauses, 0.99):.3f} s, longest {max(pauses):.3f} s"
        )
    print(f"{sum(load.acked):,} records acknowledged, {watermarks.answers:,} high watermarks seen; {watch.summary()}")
    lost = load.failures + watermarks.went_back + read_back(brokers.bootstrap, load.acked)
    print("nothing acknowledged was lost, doubled or reordered" if not lost else f"{len(lost)} violations")
    return lost + without_excuse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each kind")
    parser.add_argument(
        "--replication-factor", type=int, default=3, help="2 replicas have a witness on the third broker"
    )
    parser.add_argument("--keep", action="store_true", help="leave the brokers' data and logs")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    add_link_options(parser)
    options = parser.parse_args()
    settings = {LAG_MAX: str(LAG_MAX_MS), **link_settings(options.link_delay, options.link_jitter)}
    settings |= dict(item.split("=", 1) for item in options.settings)
    with cluster(settings=settings, keep=options.keep) as brokers:
        wrong = run_rounds(options, brokers)
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
