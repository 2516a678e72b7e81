"""Brokers with prepared transactions: a driver that was away for longer than their timeout commits its batch still."""

from collections.abc import Iterator

import pytest
from machines import cluster_handle
from pyspark.sql import SparkSession

from barnabas_clients.producer.producer import Producer
from barnabas_spark import clusters as connections
from barnabas_spark.writing.exactly_once.decisions import Decision
from barnabas_spark.writing.exactly_once.plan import End, begin, commit
from barnabas_spark.writing.exactly_once.requests import carry_out

from .sink import Sink, once, stop_before

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
TIMEOUT_MS = 200


@pytest.fixture(scope="module")
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster(1, SETTINGS) as found:
        yield found


@pytest.fixture
def sink(spark: SparkSession, brokers: cluster_handle.ClusterHandle) -> Sink:
    return Sink(spark, brokers.bootstrap, replicas=1)


def outlive_the_timeout(sink: Sink) -> None:
    """Return when a transaction that was begun only now, with the same timeout, but not prepared, was aborted."""
    witness = f"witness-{sink.name}"

    async def open_one() -> None:
        producer = Producer(sink.bootstrap, transactional_id=witness, transaction_timeout_s=TIMEOUT_MS / 1000)
        await producer.start()
        await producer.transaction().begin()
        await (await producer.send(sink.topic, b"-1", partition=0))
        await producer.prepare()
        await producer.close(5)

    connections.run(open_one(), 60)
    sink.await_state(witness, "CompleteAbort")


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_driver_that_was_away_for_longer_than_the_timeout_commits(sink: Sink, is_decided: bool) -> None:
    sink.more = {"kafka.transaction.timeout.ms": str(TIMEOUT_MS)}
    begun = carry_out(begin(sink.name), sink.options())
    prepared = tuple(sink.attempt(begun, number, str(number), number) for number in range(3))
    decision = Decision(sink.name, 0, prepared)
    if is_decided:
        carry_out(stop_before(commit(begun, decision), End), sink.options())
    outlive_the_timeout(sink)
    if is_decided:
        carry_out(begin(sink.name), sink.options())
    else:
        assert carry_out(commit(begun, decision), sink.options())
    assert sink.read() == once(range(3))


def test_spark_writes_there_and_what_was_not_decided_is_aborted_by_the_next_batch(sink: Sink) -> None:
    """It is prepared, so time would never end it."""
    begun = carry_out(begin(sink.name), sink.options())
    sink.attempt(begun, 0, "99")
    sink.write(sink.rows(0, 20), 0)
    sink.write(sink.rows(0, 20, 2), 0)
    assert sink.read() == once(range(20))
