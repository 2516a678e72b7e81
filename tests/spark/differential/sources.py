"""Reads with the same options through both sources, and tells what came of it."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import parse_read_options

__all__ = ["Outcome", "Pair", "told"]

# Spark's source waits for what is not there, again and again, and both wait for records that are.
IMPATIENT = {
    "kafka.fetch.max.wait.ms": "10",
    "kafkaConsumer.pollTimeoutMs": "5000",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "1",
}


class Outcome(NamedTuple):
    """Sorted rows and how they are called, or the text of the error instead."""

    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    error: str = ""

    @property
    def kind(self) -> str:
        return "refused" if self.error else "rows"


class Pair:
    """Both sources in one session, against one cluster."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def kafka(self, options: Mapping[str, str]) -> Outcome:
        return self._read("kafka", options)

    def ours(self, options: Mapping[str, str]) -> Outcome:
        try:
            # What `load` does first. Spark would end a Python process for each refusal, and start another one.
            parse_read_options(self._given(options))
        except OptionError as error:
            return Outcome(error=str(error))
        return self._read("barnabas", options)

    def _given(self, options: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap} | IMPATIENT | dict(options)

    def _read(self, name: str, options: Mapping[str, str]) -> Outcome:
        try:
            frame = self.spark.read.format(name).options(**self._given(options)).load()
            rows = sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))
        except PySparkException as error:
            return Outcome(error=str(error))
        except Exception as error:
            if type(error).__name__ != "Py4JJavaError":
                raise
            return Outcome(error=told(error.java_exception))  # type: ignore[attr-defined]
        return Outcome(tuple(frame.columns), tuple(rows))


def told(problem: object) -> str:
    """Return the messages of a Java exception and of its causes."""
    found = []
    while problem is not None:
        found.append(str(problem.toString()))  # type: ignore[attr-defined]
        problem = problem.getCause()  # type: ignore[attr-defined]
    return "\n".join(found)
