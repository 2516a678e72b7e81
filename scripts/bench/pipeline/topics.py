"""Makes, fills and deletes the topics of the Spark benchmark."""

import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from machines.modules import module_command, module_environment

from .load import Writing, Written

__all__ = ["Topics", "Under", "written_by"]

REPLICAS = 3
LEADERS_LIMIT_S = 90.0
OFFSETS_LIMIT_S = 30.0
WRITE_LIMIT_S = 900.0
LOOK_S = 0.1


class Topics:
    """The topics of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    @contextmanager
    def new(self, partitions: int) -> Iterator[str]:
        """Make a topic of three replicas with a leader for each partition; delete it at the end."""
        name = f"spark-{uuid.uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(name, partitions, REPLICAS)])[name].result(LEADERS_LIMIT_S)
        deadline = time.monotonic() + LEADERS_LIMIT_S
        while not self._is_led(name, partitions):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} has no leaders")
            time.sleep(LOOK_S)
        yield name
        self._admin.delete_topics([name])[name].result(LEADERS_LIMIT_S)

    @contextmanager
    def filled(
        self, shares: Sequence[int], records: int, kind: str = "bytes", record_bytes: int = 1024
    ) -> Iterator[str]:
        """Make a topic and fill it: a partition for each share."""
        with self.new(len(shares)) as topic:
            writing = Writing(
                bootstrap=self.bootstrap,
                topic=topic,
                shares=list(shares),
                records=records,
                kind=kind,
                record_bytes=record_bytes,
            )
            with written_by(writing) as under:
                under.wait()
            if (found := self.records(topic, len(shares))) != records:
                raise RuntimeError(f"{found} records are in {topic}, not {records}")
            yield topic

    def records(self, topic: str, partitions: int) -> int:
        """Return the sum of the high watermarks; errors as `end_offsets`."""
        return sum(self.end_offsets(topic, partitions))

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """Return the high watermark of each partition.

        Raises:
            KafkaException: they could not be had for half a minute, in which leaders may have moved.
        """
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        deadline = time.monotonic() + OFFSETS_LIMIT_S
        while True:
            told = self._admin.list_offsets(asked, request_timeout=OFFSETS_LIMIT_S)
            try:
                return [told[one].result(OFFSETS_LIMIT_S).offset for one in asked]
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            self._admin.list_topics(topic, timeout=OFFSETS_LIMIT_S)  # where the leaders are now
            time.sleep(LOOK_S)

    def _is_led(self, name: str, partitions: int) -> bool:
        found = self._admin.list_topics(name, timeout=30).topics[name].partitions
        return len(found) == partitions and all(one.leader >= 0 for one in found.values())


class Under:
    """A load that is under way."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def wait(self) -> Written:
        """Return its answer.

        Raises:
            RuntimeError: it failed; the message is the last thing that it said.
        """
        told, errors = self._process.communicate(timeout=WRITE_LIMIT_S)
        if self._process.returncode:
            raise RuntimeError(f"the load has failed: {(errors.strip() or 'no output').splitlines()[-1]}")
        return msgspec.json.decode(told, type=Written)


@contextmanager
def written_by(writing: Writing) -> Iterator[Under]:
    """Run the load in a process of its own, which is gone at the end in any case."""
    words = module_command("bench.pipeline.load", msgspec.json.encode(writing).decode())
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=module_environment()
    ) as process:
        try:
            yield Under(process)
        finally:
            if process.poll() is None:
                process.kill()
