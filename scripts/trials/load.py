"""The clients of torture, power cuts and the soak, and the history that they write.

They are clients of `confluent-kafka`. Producers: idempotent, acks=all, records of a known content, numbered for each
partition. Consumers: one that follows every partition without a group; a group of two that commits the records that it
has read, one member of which leaves and comes back all the time. A watcher asks for high watermarks. An *audit* reads
every partition from an offset to its end.

Each of them is a thread. `Recorder` is the one place where all of them tell their actions and findings: it numbers the
lines, writes the file, and feeds the checker at once, so that a violation is known in the round in which it shows.

Clients here ask again sooner than by default (requests end after a second or two without an answer, metadata is asked
for every 20 ms while a leader is missing): the measure is the brokers' time, not a client's patience.
"""

import contextlib
import hashlib
import json
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_broker.history import Checker, Event, HistoryError, encode
from barnabas_broker.history import events as e

TOPIC = "torture"
GROUP = "torture-group"
PARTITIONS = 6
WAIT_LIMIT_S = 180.0  # sixty times the longest wait on a quiet computer
STATISTICS_MS = 2_000
# For every client here. Twice the brokers' liveness timeout: a slow answer is not yet a lost one.
IMPATIENT = {
    "socket.timeout.ms": 2_000,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}


class HangError(RuntimeError):
    """An event that had to come did not, within a limit far beyond anything reasonable."""


class Recorder:
    """Writes the history and judges it while it grows. Any thread may call; lines are in the order of calls."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checker = Checker()
        # Wrong lines of this load itself: a mistake of it, or of the client library. The run means nothing then.
        self.contradictions: list[str] = []
        self._file = path.open("wb")
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def tell(self, event: Event) -> None:
        with self._lock:
            self._file.write(encode(event))
            try:
                self.checker.feed(event)
            except HistoryError as error:
                # Not raised: this may be a callback of librdkafka, which would lose it.
                self.contradictions.append(f"{error}: {event}")

    def now_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)

    def fault(self, kind: str, target: str) -> None:
        self.tell(e.FaultBegun(kind=kind, target=target, at_ms=self.now_ms()))

    def fault_ended(self, kind: str, target: str) -> None:
        self.tell(e.FaultEnded(kind=kind, target=target, at_ms=self.now_ms()))

    def close(self) -> None:
        with self._lock:
            self._file.close()


def name_of(partition: int) -> str:
    return f"{TOPIC}-{partition}"


def value_of(producer: str, sequence: int, size_bytes: int) -> bytes:
    """Return a record's value: it names the record, and every byte of it follows from the name."""
    head = f"{producer} {sequence} ".encode()
    body = hashlib.shake_128(head).digest(max(0, size_bytes - len(head)))
    return head + body


def digest_of(value: bytes) -> str:
    return hashlib.blake2b(value, digest_size=8).hexdigest()


def consumed(consumer: str, message: Message) -> e.Consumed:
    """Return a consumer's record as an event: its producer and number follow from its value alone."""
    value = message.value() or b""
    words = value.split(b" ", 2)
    known = len(words) == 3 and words[1].isdigit() and len(words[1]) < 19
    return e.Consumed(
        consumer=consumer,
        partition=name_of(message.partition()),
        offset=message.offset(),
        producer=words[0].decode("ascii", "replace") if known else None,
        sequence=int(words[1]) if known else 0,
        digest=digest_of(value),
    )


def what_waits(statistics: str) -> str:
    """Say what keeps a producer of librdkafka, out of its own statistics: its state, partitions that have records left.

    "" if there are none yet. That is all there is to learn from a client that does not end and says nothing.
    """
    found = json.loads(statistics)
    partitions = found.get("topics", {}).get(TOPIC, {}).get("partitions", {})
    kept = ("leader", "msgq_cnt", "xmit_msgq_cnt", "msgs_inflight", "next_ack_seq", "next_err_seq", "acked_msgid")
    waiting = {
        number: {name: one.get(name) for name in kept}
        for number, one in partitions.items()
        if one.get("msgq_cnt") or one.get("xmit_msgq_cnt") or one.get("msgs_inflight")
    }
    brokers = {
        one.get("nodeid"): (one.get("state"), one.get("outbuf_cnt"), one.get("waitresp_cnt"))
        for one in found.get("brokers", {}).values()
    }
    return f"{found['eos']}, partitions {waiting}, brokers {brokers}" if "eos" in found else ""


class Worker(threading.Thread):
    """A client on a thread of its own: `work` is called until `finish`; its errors are kept for the report."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.trouble: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.work()
            self.close()
        except (KafkaException, RuntimeError, ValueError, SystemError) as error:
            # SystemError: the client library's C part passes on an exception of a callback so.
            self.trouble.append(f"{self.name}: {type(error).__name__}: {error}")

    def work(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called on the worker's thread when it is told to finish."""

    def finish(self) -> None:
        self.stopping.set()
        self.join(WAIT_LIMIT_S * 2)
        if self.is_alive():
            raise HangError(f"{self.name} does not end")


class Producing(Worker):
    """An idempotent producer at a steady rate over all partitions. A fatal error ends it; the next has another name.

    The library tells that error by an exception, in the midst of a poll. If there is a report of a delivery in the same
    poll, its callback is called all the same, and what comes out is a SystemError, caused by that exception.
    """

    def __init__(
        self, recorder: Recorder, bootstrap: str, name: str, partitions: int, records_per_s: int, value_bytes: int = 200
    ) -> None:
        super().__init__(name)
        self._recorder = recorder
        self._servers = bootstrap
        self._partitions = partitions
        self._interval_s = 1 / records_per_s
        self._value_bytes = value_bytes
        self._due = time.monotonic()
        self._turn = 0
        self._life = 0
        self.acknowledged = 0
        self.lost_lives = 0
        self._moved = threading.Condition()
        self._first_after: dict[int, tuple[int, float]] = {}
        self._statistics = "{}"
        self._begin_life()

    def _begin_life(self) -> None:
        self._life += 1
        self._producer_name = f"{self.name}.{self._life}"
        self._sequences = [0] * self._partitions
        self._undecided: set[tuple[int, int]] = set()
        self._producer = Producer(
            {
                **IMPATIENT,
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                # Only so it notices that it is cut off with a broker: it waits as long as brokers do for each other.
                "socket.timeout.ms": 1_000,
                "request.timeout.ms": 1_000,
                # Connections to brokers that lead nothing, too: otherwise librdkafka connects up to a second too late.
                "enable.sparse.connections": False,
                "message.timeout.ms": 0,  # never: librdkafka would begin a new epoch and send later records again
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "error_cb": lambda _: None,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._take_statistics,
            }
        )

    def _take_statistics(self, text: str) -> None:
        self._statistics = text

    def work(self) -> None:
        try:
            self._produce()
        except (KafkaException, KafkaError, SystemError) as error:
            # Fatal: this producer will never take a record again. The first call after it raises.
            if isinstance(error, SystemError) and not isinstance(error.__cause__, KafkaException):
                raise
            self.trouble.append(f"{self._producer_name}: {error}")
            self._end_life()
            self.lost_lives += 1
            self._begin_life()

    def _produce(self) -> None:
        self._due = max(self._due + self._interval_s, time.monotonic() - 1.0)
        while (left_s := self._due - time.monotonic()) > 0:
            self._producer.poll(left_s)
        partition = self._turn
        self._turn = (partition + 1) % self._partitions
        sequence = self._sequences[partition]
        value = value_of(self._producer_name, sequence, self._value_bytes)
        name = self._producer_name
        self._recorder.tell(
            e.Invoked(producer=name, partition=name_of(partition), sequence=sequence, digest=digest_of(value))
        )
        self._sequences[partition] = sequence + 1
        self._undecided.add((partition, sequence))
        sent_at = time.monotonic()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._delivered(name, partition, sequence, sent_at, error, message)

        while True:
            try:
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=on_delivery)
            except BufferError:
                self._producer.poll(0.05)
            else:
                break
        self._producer.poll(0)

    def _end_life(self) -> None:
        """Let go of the producer; the fate of records without a report is unknown."""
        name = self._producer_name
        ended = self._producer
        self._producer_name = ""
        for partition, sequence in sorted(self._undecided):
            self._recorder.tell(e.Unknown(producer=name, partition=name_of(partition), sequence=sequence))
        self._undecided.clear()
        with contextlib.suppress(KafkaException, KafkaError):
            ended.purge()

    def _delivered(
        self,
        name: str,
        partition: int,
        sequence: int,
        sent_at: float,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        partition_name = name_of(partition)
        if name != self._producer_name:
            return  # Of a life that has ended; its fate has been told.
        self._undecided.discard((partition, sequence))
        if error is not None:
            # A record that was ever handed over may be there, in spite of librdkafka's report.
            self.trouble.append(f"{name} {sequence} of {partition_name}: {error.name()}")
            self._recorder.tell(e.Unknown(producer=name, partition=partition_name, sequence=sequence))
            return
        # An answer that says "had it already" may not say where.
        offset = None if message.offset() is None or message.offset() < 0 else message.offset()
        self._recorder.tell(e.Acknowledged(producer=name, partition=partition_name, sequence=sequence, offset=offset))
        self.acknowledged += 1
        with self._moved:
            marked = self._first_after.get(partition)
            if marked is not None and marked[1] == 0.0 and sent_at >= marked[0] / 1e9:
                self._first_after[partition] = (marked[0], time.monotonic())
                self._moved.notify_all()

    def mark(self, moment: float) -> None:
        """From now on look, in every partition, for the first acknowledgement of a record sent after `moment`."""
        with self._moved:
            self._first_after = {partition: (int(moment * 1e9), 0.0) for partition in range(self._partitions)}

    def wait_for_marks(self, limit_s: float = WAIT_LIMIT_S) -> dict[int, float]:
        """Wait for all of them; return for each partition the seconds from the moment to its first one.

        Raises:
            HangError: a partition acknowledged nothing within the limit.
        """
        deadline = time.monotonic() + limit_s
        with self._moved:
            while waiting := [partition for partition, (_, at) in self._first_after.items() if not at]:
                if not self._moved.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise HangError(f"partitions {waiting} acknowledged nothing for {limit_s:.0f} s")
            return {partition: at - moment / 1e9 for partition, (moment, at) in self._first_after.items()}

    def close(self) -> None:
        try:
            if left := self._producer.flush(WAIT_LIMIT_S):
                self.trouble.append(f"{self.name}: {left} records never delivered; {what_waits(self._statistics)}")
        except (KafkaException, KafkaError, SystemError) as error:
            self.trouble.append(f"{self._producer_name}: {error}")
        self._end_life()


class Following(Worker):
    """Reads every partition from the start, and goes on at the end. A refusal begins a new session."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: int) -> None:
        super().__init__("follower")
        self._recorder = recorder
        self._partitions = partitions
        self._consumer = Consumer(
            {
                **IMPATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": "follower",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._go_to(range(partitions), 0)

    def _go_to(self, partitions: Sequence[int], offset: int) -> None:
        for partition in partitions:
            self._recorder.tell(e.Positioned(consumer=self.name, partition=name_of(partition), offset=offset))
        self._consumer.assign([TopicPartition(TOPIC, partition, offset) for partition in range(self._partitions)])

    def work(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if (error := message.error()) is None:
                self._recorder.tell(consumed(self.name, message))
            elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
                # The end lies before where we have been: the audit will tell what is missing.
                self.trouble.append(f"{self.name}: {error.str()}")
                self._go_to(range(self._partitions), 0)
                return

    def close(self) -> None:
        self._consumer.close()


class Watching(Worker):
    """Asks for high watermarks, one question at a time."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: int) -> None:
        super().__init__("watcher")
        self._recorder = recorder
        self._partitions = partitions
        self._consumer = Consumer({**IMPATIENT, "bootstrap.servers": bootstrap, "group.id": "watcher"})

    def work(self) -> None:
        for partition in range(self._partitions):
            try:
                _, high = self._consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=2)
            except KafkaException:
                continue  # No leader just now; the next answer must still not be lower.
            event = e.HighWatermarkSeen(observer=self.name, partition=name_of(partition), offset=high)
            self._recorder.tell(event)
        self.stopping.wait(0.1)

    def close(self) -> None:
        self._consumer.close()


class Member(Worker):
    """A member of the group: reads its partitions from the committed offsets, and commits twice a second."""

    def __init__(self, recorder: Recorder, bootstrap: str, name: str, stays_s: float) -> None:
        super().__init__(name)
        self._recorder = recorder
        self._servers = bootstrap
        self._stays_s = stays_s
        self._life = 0
        self.commits = 0
        self._consumer: Any = None
        self._leaves_at = 0.0
        self._commit_due = 0.0
        self._positions: dict[int, int] = {}

    def work(self) -> None:
        now = time.monotonic()
        if self._consumer is None:
            self._join(now)
        for message in self._consumer.consume(200, 0.1):
            # Records that were fetched before a rebalance may come after it.
            if message.error() is None and message.partition() in self._positions:
                self._recorder.tell(consumed(self.name, message))
                self._positions[message.partition()] = message.offset() + 1
        if now >= self._commit_due:
            self._commit_due = now + 0.5
            self._commit()
        if now >= self._leaves_at:
            self.close()

    def _join(self, now: float) -> None:
        self._leaves_at = now + self._stays_s
        self._life = self._life + 1
        self._consumer = Consumer(
            {
                **IMPATIENT,
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        generation, member = _identity(consumer.consumer_group_metadata())
        names = [name_of(partition.partition) for partition in partitions]
        self._recorder.tell(e.Assigned(group=GROUP, generation=generation, member=member, partitions=names))
        for name in names:
            self._recorder.tell(e.CommittedAsked(reader=self.name, group=GROUP, partition=name))
        try:
            found = consumer.committed(partitions, timeout=10)
        except KafkaException:
            # No coordinator to be had. Without a position it reads nothing in this generation.
            consumer.assign([])
            self._positions = {}
            return
        self._positions = {}
        for partition in found:
            name = name_of(partition.partition)
            if partition.error is not None:
                continue
            offset = partition.offset if partition.offset >= 0 else None
            self._recorder.tell(e.CommittedFetched(reader=self.name, group=GROUP, partition=name, offset=offset))
            self._recorder.tell(e.Positioned(consumer=self.name, partition=name, offset=offset or 0))
            self._positions[partition.partition] = offset or 0
        consumer.assign([TopicPartition(TOPIC, number, offset) for number, offset in self._positions.items()])

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._positions = {}

    def _commit(self) -> None:
        positions = dict(self._positions)
        if not positions:
            return
        for partition, offset in positions.items():
            self._recorder.tell(e.CommitInvoked(group=GROUP, partition=name_of(partition), offset=offset))
        offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in positions.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # Unknown: it may have been kept. Earlier acknowledgements stand.
        for partition in done or ():
            if partition.error is None:
                name = name_of(partition.partition)
                self._recorder.tell(e.CommitAcknowledged(group=GROUP, partition=name, offset=partition.offset))
                self.commits += 1

    def close(self) -> None:
        if self._consumer is not None:
            self._commit()
            self._consumer.close()
            self._consumer = None
            self._positions = {}


def _identity(metadata: bytes) -> tuple[int, str]:
    """Return generation and member id out of librdkafka's metadata for transactional producers."""
    head, _, rest = metadata[len(b"CGMDv2:") + 4 :].partition(b"\0")
    assert head == GROUP.encode()
    (generation,) = struct.unpack_from("<i", metadata, len(b"CGMDv2:"))
    return generation, rest.partition(b"\0")[0].decode()


class Load:
    """All clients of one run. `marked` is the producer whose first acknowledgements after a moment are timed."""

    def __init__(self, recorder: Recorder, marked: Producing, *others: Worker) -> None:
        self.recorder = recorder
        self.marked = marked
        self.workers: list[Worker] = [marked, *others]

    def start(self) -> None:
        for worker in self.workers:
            worker.start()
        self.wait_acknowledged()

    def wait_acknowledged(self) -> float:
        """Wait until every partition has acknowledged something sent from now on; return the slowest's seconds."""
        self.marked.mark(time.monotonic())
        return max(self.marked.wait_for_marks().values())

    def finish(self) -> None:
        for worker in self.workers:
            worker.stopping.set()
        for worker in self.workers:
            worker.finish()

    def trouble(self) -> list[str]:
        return [line for worker in self.workers for line in worker.trouble]

    def check_alive(self) -> None:
        """Raise HangError if a client has ended before its time, or has contradicted itself."""
        if dead := [worker.name for worker in self.workers if not worker.is_alive()]:
            raise HangError(f"ended before its time: {', '.join(dead)}: {self.trouble()[-3:]}")
        if self.recorder.contradictions:
            raise HangError(f"the load contradicts itself: {self.recorder.contradictions[0]}")


def whole_load(recorder: Recorder, bootstrap: str, records_per_s: int) -> Load:
    """Return clients of every kind: two producers, a follower, a watcher and a group of two."""
    marked, second = (Producing(recorder, bootstrap, name, PARTITIONS, records_per_s // 2) for name in ("p1", "p2"))
    return Load(
        recorder,
        marked,
        second,
        Following(recorder, bootstrap, PARTITIONS),
        Watching(recorder, bootstrap, PARTITIONS),
        Member(recorder, bootstrap, "m1", 30.0),
        Member(recorder, bootstrap, "m2", 8.0),
    )


def create_topic(bootstrap: str, **settings: str) -> None:
    """Create the topic; a setting's dots are written as underscores."""
    # Not impatient: nothing is measured yet, and a question that was given up would be asked again too late.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {name.replace("_", "."): value for name, value in settings.items()}
    topic = NewTopic(TOPIC, PARTITIONS, 3, config=config)
    for future in admin.create_topics([topic], operation_timeout=30).values():
        future.result(60)


def wait_whole(bootstrap: str, limit_s: float = WAIT_LIMIT_S) -> dict[int, int]:
    """Wait until every replica of every partition is in sync, as clients see it; return the leaders.

    Raises:
        HangError: they are not within the limit.
    """
    admin = AdminClient({**IMPATIENT, "bootstrap.servers": bootstrap})
    deadline = time.monotonic() + limit_s
    found: dict[int, Any] = {}
    while True:
        try:
            found = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
            if len(found) == PARTITIONS and all(len(p.isrs) == 3 and p.leader > 0 for p in found.values()):
                return {number: p.leader for number, p in found.items()}
        except KafkaException:
            pass  # The broker that was asked is not there, or not yet; the next answer counts.
        if time.monotonic() > deadline:
            state = {number: (p.leader, list(p.isrs)) for number, p in found.items()}
            raise HangError(f"not in sync after {limit_s:.0f} s; leader and in-sync replicas: {state}")
        time.sleep(0.05)


def log_starts(recorder: Recorder, bootstrap: str, partitions: int) -> list[int]:
    """Ask where every partition begins, and tell it."""
    consumer = Consumer({**IMPATIENT, "bootstrap.servers": bootstrap, "group.id": "log-starts"})
    starts = []
    for partition in range(partitions):
        low, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=WAIT_LIMIT_S)
        recorder.tell(e.LogStartSeen(partition=name_of(partition), offset=low))
        starts.append(low)
    consumer.close()
    return starts


def audit(
    recorder: Recorder, bootstrap: str, name: str, starts: Sequence[int], limit_s: float = WAIT_LIMIT_S
) -> list[int]:
    """Read every partition from its start to its end, tell it all, and return the ends.

    Raises:
        HangError: nothing came for longer than the limit.
    """
    consumer = Consumer(
        {
            **IMPATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    ends = list(starts)
    going = set(range(len(starts)))
    for partition, start in enumerate(starts):
        recorder.tell(e.Positioned(consumer=name, partition=name_of(partition), offset=start))
    consumer.assign([TopicPartition(TOPIC, partition, start) for partition, start in enumerate(starts)])
    deadline = time.monotonic() + limit_s
    try:
        while going:
            found = consumer.consume(5000, 0.5)
            if any(message.error() is None for message in found):
                deadline = time.monotonic() + limit_s
            for message in found:
                partition = message.partition()
                error = message.error()
                if error is None and partition in going:
                    recorder.tell(consumed(name, message))
                    ends[partition] = message.offset() + 1
                elif error is not None and partition in going and _is_end(error):
                    going.discard(partition)
                    # Out of range says the same as the end, of a log that is shorter than it was.
                    offset = message.offset() if error.code() == KafkaError._PARTITION_EOF else ends[partition]
                    recorder.tell(e.EndReached(consumer=name, partition=name_of(partition), offset=offset))
            if time.monotonic() > deadline:
                raise HangError(f"partitions {sorted(going)} have not ended, and nothing came for {limit_s:.0f} s")
    finally:
        consumer.close()
    return ends


def _is_end(error: KafkaError) -> bool:
    return error.code() in {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
