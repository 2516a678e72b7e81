"""A member of librdkafka, through confluent-kafka. Its epoch is nothing that it tells: it says -1."""

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from trials.groups.worker import Job, say

__all__: list[str] = []

POLL_S = 0.1
RECORDS_MAX = 500


class Member:
    """One member, until standard input ends."""

    def __init__(self, job: Job) -> None:
        self._topic = job.topic
        ((self._name, self._group),) = job.members
        is_classic = job.protocol == "classic"
        classic: dict[str, Any] = {
            "session.timeout.ms": int(job.session_timeout_s * 1_000),
            "heartbeat.interval.ms": int(job.heartbeat_interval_s * 1_000),
            "partition.assignment.strategy": ",".join(job.assignors),
        }
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "group.id": self._group,
                "client.id": self._name,
                "group.protocol": job.protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **(classic if is_classic else {}),
            }
        )
        self._consumer.subscribe(
            [job.topic],
            on_assign=lambda _, places: self._tell("assigned", places),
            on_revoke=lambda _, places: self._tell("revoked", places),
            on_lost=lambda _, places: self._tell("lost", places),
        )

    def _tell(self, what: str, places: list[TopicPartition]) -> None:
        self._say({"what": what, "partitions": sorted(place.partition for place in places)})

    def _say(self, line: dict[str, Any]) -> None:
        say({"member": self._name, "group": self._group, "at": time.monotonic()} | line)

    def work(self) -> None:
        messages = self._consumer.consume(RECORDS_MAX, POLL_S)
        handed: dict[int, list[int]] = {}
        for message in messages:
            if message.error() is None:
                handed.setdefault(message.partition(), []).append(message.offset())
        if handed:
            rows = {partition: [offsets[0], offsets[-1]] for partition, offsets in handed.items()}
            self._say({"what": "handed", "handed": rows, "generation": -1})
        places = [place for place in self._consumer.position(self._consumer.assignment()) if place.offset >= 0]
        if places:
            self._commit(places)

    def _commit(self, places: list[TopicPartition]) -> None:
        began = time.monotonic()
        line: dict[str, Any] = {"generation": -1, "began": began}
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
            failed = [place.error for place in done if place.error is not None]
            if failed:
                raise KafkaException(failed[0])
        except KafkaException as error:
            self._say(line | {"what": "refused", "error": repr(error)})
        else:
            self._say(line | {"what": "committed", "committed": {one.partition: one.offset for one in places}})

    def close(self) -> None:
        self._consumer.close()


def main() -> None:
    job = Job(**json.loads(sys.stdin.readline()))
    member = Member(job)
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    while not over.is_set():
        member.work()
    member.close()


if __name__ == "__main__":
    main()
