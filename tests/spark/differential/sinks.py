"""Writes the same DataFrame through both sinks, each to topics of its own, and tells what came of it."""

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.writing.writers import batch_writer

from .sink_cases import FIRST, MADE, PARTITIONS, SECOND, SinkCase
from .sources import Pair, told

__all__ = ["Written", "write_all"]

DEADLINE_S = 30
# Both sinks wait so long for a topic that is not there.
PATIENCE = {"kafka.max.block.ms": "10000"}
WRITES_AT_ONCE = 4


class Record(NamedTuple):
    """What is stored. `partition` is None if neither a key nor a column has decided it."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Written(NamedTuple):
    """The records of the topics of a case, by the names that the case has for them; or the text of the error."""

    records: Mapping[str, Sequence[Record]] = {}
    error: str = ""

    @property
    def kind(self) -> str:
        return "refused" if self.error else "rows"


class Job(NamedTuple):
    """One case through one of the sinks; `topics` are the real names of those that it has."""

    sink: str
    case: SinkCase
    topics: Mapping[str, str]


def write_all(pair: Pair, cases: Sequence[SinkCase]) -> list[tuple[Written, Written]]:
    """Return what Spark's sink and ours made of each case. They write side by side, and are read at the end."""
    jobs = [Job(sink, case, _names()) for case in cases for sink in ("kafka", "barnabas")]
    admin = AdminClient({"bootstrap.servers": pair.bootstrap})
    wanted = [NewTopic(job.topics[name], PARTITIONS, 3) for job in jobs for name in (FIRST, SECOND)]
    for future in admin.create_topics(wanted).values():
        future.result(DEADLINE_S)
    with ThreadPoolExecutor(WRITES_AT_ONCE, initializer=lambda: _activate(pair.spark)) as threads:
        errors = list(threads.map(lambda job: _write(pair, job), jobs))
    stored = _read(pair.bootstrap, admin, [job.topics[name] for job in jobs for name in job.topics])
    found = [
        Written(error=_named(error, job.topics))
        if error
        else Written({name: _compared(stored.get(topic, []), job.case) for name, topic in job.topics.items()})
        for job, error in zip(jobs, errors, strict=True)
    ]
    return list(zip(found[::2], found[1::2], strict=True))


def _activate(spark: SparkSession) -> None:
    """Make the session that of this thread: Spark finds sinks that are written in Python only through it."""
    jvm: Any = spark.sparkContext._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)


def _named(text: str, topics: Mapping[str, str]) -> str:
    for name, topic in topics.items():
        text = text.replace(topic, name)
    return text


def _names() -> dict[str, str]:
    prefix = f"sinks-{uuid.uuid4().hex[:8]}"
    return {name: f"{prefix}.{name}" for name in (FIRST, SECOND, MADE)}


def _write(pair: Pair, job: Job) -> str:
    """Return the text of the error, if there is one."""
    case = job.case

    def real(text: str) -> str:
        for name, topic in job.topics.items():
            text = text.replace(name, topic)
        return text

    frame = pair.spark.range(0, case.rows, 1, 1).selectExpr(*map(real, case.columns))
    given = {"kafka.bootstrap.servers": pair.bootstrap} | PATIENCE | {k: real(v) for k, v in case.options.items()}
    given = {name: value for name, value in given.items() if value != "left out"}
    if job.sink == "barnabas" and case.mode == "append":
        try:
            # What Spark calls before any task. It would end a Python process for each refusal, and start another one.
            batch_writer(given, frame.schema, overwrite=False)
        except BarnabasError as error:
            return str(error)
    return _saved(frame, job.sink, case.mode, given)


def _saved(frame: DataFrame, sink: str, mode: str, given: Mapping[str, str]) -> str:
    try:
        frame.write.format(sink).options(**given).mode(mode).save()
    except PySparkException as error:
        return str(error)
    except Exception as error:
        if type(error).__name__ != "Py4JJavaError":
            raise
        return told(error.java_exception)  # type: ignore[attr-defined]
    return ""


def _read(bootstrap: str, admin: AdminClient, topics: Sequence[str]) -> dict[str, list[Record]]:
    """Return all records of topics, partition after partition."""
    there = admin.list_topics(timeout=DEADLINE_S).topics
    partitions = [(topic, k) for topic in topics if topic in there for k in there[topic].partitions]
    asked = admin.list_offsets({TopicPartition(*one): OffsetSpec.latest() for one in partitions})
    expected = sum(future.result(DEADLINE_S).offset for future in asked.values())
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "witness", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(*one, 0) for one in partitions])
        found: list[tuple[str, int, int, Record]] = []
        while len(found) < expected:
            messages = consumer.consume(expected - len(found), DEADLINE_S)
            assert messages, f"{len(found)} of {expected} records came"
            for one in messages:
                assert one.error() is None, one.error()
                record = Record(one.partition(), one.key(), one.value(), tuple(one.headers() or ()))
                found.append((one.topic(), one.partition(), one.offset(), record))
    finally:
        consumer.close()
    stored: dict[str, list[Record]] = {}
    for topic, _, _, record in sorted(found, key=lambda one: one[:3]):
        stored.setdefault(topic, []).append(record)
    return stored


def _compared(records: Sequence[Record], case: SinkCase) -> list[Record]:
    """Return records without what each sink may choose by itself."""
    if not case.is_spread:
        return list(records)
    return sorted((one._replace(partition=None) for one in records), key=repr)
