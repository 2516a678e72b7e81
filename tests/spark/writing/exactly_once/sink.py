"""A topic and a sink of random names, and what Spark writes to it and reads from it."""

import uuid
from collections import Counter
from collections.abc import Generator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from spark.faults.processes import until
from spark.writing.records_of import create

from barnabas_clients import Admin, Producer
from barnabas_clients.admin.values import TransactionDescription
from barnabas_spark import clusters as connections
from barnabas_spark.options.writes import WriteOptions, parse_write_options
from barnabas_spark.writing.exactly_once.decisions import Decision, Prepared, Ticket
from barnabas_spark.writing.exactly_once.names import attempt_id
from barnabas_spark.writing.exactly_once.plan import Begun, Effect, begin, commit
from barnabas_spark.writing.exactly_once.requests import carry_out
from barnabas_spark.writing.exactly_once.vacancies import Attempt, vacant_of
from barnabas_spark.writing.producers import begin_attempt, prepare

__all__ = ["Sink", "once", "stop_before"]


class Sink:
    """A topic and a sink of random names."""

    def __init__(self, spark: SparkSession, bootstrap: str, replicas: int = 3) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = f"once-{uuid.uuid4().hex[:12]}"
        self.name = f"sink-{uuid.uuid4().hex[:12]}"
        create(bootstrap, self.topic, 3, replicas=replicas)
        self.more: dict[str, str] = {}

    def given(self, **more: str) -> dict[str, str]:
        return (
            {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, "exactlyOnce": "true"} | self.more | more
        )

    def options(self, **more: str) -> WriteOptions:
        return parse_write_options(self.given(txnAppId=self.name, **more))

    def write(self, frame: DataFrame, version: int) -> None:
        options = self.given(txnAppId=self.name, txnVersion=str(version))
        frame.write.format("barnabas").options(**options).mode("append").save()

    def rows(self, start: int, end: int, partitions: int = 4) -> DataFrame:
        return self.spark.range(start, end, 1, partitions).selectExpr("cast(id as string) as value")

    def read(self, level: str = "read_committed") -> Counter[int]:
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "kafka.isolation.level": level,
        }
        frame = self.spark.read.format("barnabas").options(**options).load().selectExpr("cast(value as string)")
        return Counter(int(row.value) for row in frame.collect())

    def attempt(self, begun: Begun, number: int, value: str, partition: int = 0) -> Prepared:
        """Do what a task does, with one row."""
        producer, ticket = self.begin(begun, number, partition)

        async def attempt() -> Prepared | None:
            await producer.send_and_wait(self.topic, value.encode(), partition=partition % 3)
            return await prepare(self.options(), producer, ticket)

        found = connections.run(attempt(), 60)
        assert found is not None
        return found

    def begin(self, begun: Begun, number: int, partition: int = 0) -> tuple[Producer, Ticket | None]:
        """Do what a task does before it writes."""
        name = attempt_id(self.name, partition, begun.owner, number)
        one = Attempt(self.name, partition, name, vacant_of(self.name, begun.vacant, partition))
        found, ticket = connections.run(begin_attempt(self.options(), one), 60)
        return found.producer, ticket

    def batch(self, version: int, values: Mapping[int, str]) -> tuple[Prepared, ...]:
        """Do what a driver and its tasks do, with a row for each of Spark's partitions; return its transactions."""
        begun = carry_out(begin(self.name), self.options())
        prepared = tuple(self.attempt(begun, each, values[each], each) for each in values)
        decision = Decision(self.name, version, prepared, vacant=begun.vacant)
        assert carry_out(commit(begun, decision), self.options())
        return prepared

    def ids(self) -> set[str]:
        """Return the transactional ids of the sink that brokers have."""

        async def listed() -> set[str]:
            async with Admin(self.bootstrap) as admin:
                rows = await admin.list_transactions()
                return {row.transactional_id for row in rows if row.transactional_id.startswith(f"{self.name}/")}

        return connections.run(listed(), 60)

    def transaction(self, transactional_id: str) -> TransactionDescription:
        """Return what its coordinator knows of an id."""

        async def described() -> TransactionDescription:
            async with Admin(self.bootstrap) as admin:
                return (await admin.describe_transactions([transactional_id]))[transactional_id]

        return connections.run(described(), 60)

    def await_state(self, transactional_id: str, state: str) -> None:
        """Return when an id's last transaction has come to this state."""
        until(f"{state} of {transactional_id}", lambda: self.transaction(transactional_id).state == state, 60)


def once(numbers: range) -> Counter[int]:
    return Counter(dict.fromkeys(numbers, 1))


def stop_before(plan: Generator[Effect, Any, Any], kind: type[Effect]) -> Generator[Effect, Any, None]:
    """Carry a plan out up to its first effect of a kind, and die before it."""
    effect = next(plan)
    while not isinstance(effect, kind):
        effect = plan.send((yield effect))
