"""The worker of librdkafka, through confluent-kafka: it speaks the first protocol of transactions."""

import sys
import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from .diary import Diary, Job, Taken, read_job

__all__: list[str] = []

RECORDS_MAX = 100
LIMIT_S = 60.0


class Worker:
    """One life. `positions` are the next offsets of the partitions that it has; all others' records are let go."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.positions: dict[int, int] = {}
        self.producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "transactional.id": job.name,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 0,
            }
        )
        self.consumer: Any = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "group.id": job.group,
                "client.id": job.life,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self.producer.init_transactions(LIMIT_S)
        self.diary = Diary(job)
        self.consumer.subscribe([job.input], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._go_to_committed(partitions)

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.positions = {}

    def _go_to_committed(self, partitions: list[TopicPartition]) -> None:
        """Begin where the group stands. An error ends this life: nobody knows where to begin."""
        places = [TopicPartition(place.topic, place.partition) for place in partitions]
        found = self.consumer.committed(places, timeout=LIMIT_S) if places else []
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
            place.offset = max(place.offset, 0)
        self.consumer.assign(found)
        self.positions = {place.partition: place.offset for place in found}
        self.diary.begin_anywhere()

    def work(self) -> None:
        """Work off what has come in one transaction."""
        messages: list[Message] = []
        for message in self.consumer.consume(RECORDS_MAX, 0.3):
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue
            messages.append(message)
        # What was fetched before a rebalance may come after it.
        due = dict(self.positions)
        taken = []
        for message in messages:
            partition = message.partition()
            if due.get(partition) == message.offset():
                due[partition] = message.offset() + 1
                taken.append(Taken(partition, message.offset(), message.value() or b""))
        if not taken:
            return
        self.diary.begin()
        self.producer.begin_transaction()
        try:
            self._copy(taken)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                self.diary.end("unknown")
                raise
            print(f"again: {error}", flush=True)
            self.diary.ask_for_end(commit=False)
            self._until_done(self.producer.abort_transaction)
            self.diary.end("aborted")
            self._go_to_committed(self.consumer.assignment())
        else:
            self.diary.end("committed")
            self.positions = due

    def _copy(self, taken: list[Taken]) -> None:
        failures = []

        def settle(partition: int, number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offset = message.offset()
                self.diary.acknowledge(partition, number, None if offset is None or offset < 0 else offset)

        ends: dict[int, tuple[int, int]] = {}
        for record in taken:
            number, value = self.diary.take(record)
            start, _ = ends.get(record.partition, (record.offset, 0))
            ends[record.partition] = (start, record.offset + 1)

            def on_delivery(
                error: KafkaError | None, message: Message, p: int = record.partition, n: int = number
            ) -> None:
                settle(p, n, error, message)

            self.producer.produce(self.job.output, value, partition=record.partition, on_delivery=on_delivery)
        self.producer.flush(LIMIT_S)
        if not failures:
            for partition, (start, end) in ends.items():
                self.diary.send_offset(partition, start, end)
        offsets = [TopicPartition(self.job.input, partition, end) for partition, (_, end) in ends.items()]
        member = self.consumer.consumer_group_metadata()
        # If a record has failed, this says that the transaction has to be aborted.
        self._until_done(lambda limit_s: self.producer.send_offsets_to_transaction(offsets, member, limit_s))
        self.diary.ask_for_end(commit=True)
        self._until_done(self.producer.commit_transaction)

    def _until_done(self, call: Any) -> None:
        """Repeat a call as long as librdkafka says that it may be repeated."""
        while True:
            try:
                call(LIMIT_S)
            except KafkaException as error:
                if not error.args[0].retriable() or error.args[0].txn_requires_abort():
                    raise
            else:
                return


def main() -> None:
    job = read_job()
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    worker = Worker(job)
    while not over.is_set():
        worker.work()
    worker.consumer.close()


if __name__ == "__main__":
    main()
