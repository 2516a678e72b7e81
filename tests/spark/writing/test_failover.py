"""Tasks write on when brokers die, and each row once; what cannot be written in time fails its task."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from machines import cluster_handle

from barnabas_spark import clusters as connections
from barnabas_spark.options.writes import parse_write_options
from barnabas_spark.writing import columns
from barnabas_spark.writing.layout import Layout
from barnabas_spark.writing.outcome import TaskOutcome
from barnabas_spark.writing.task import NoTopicError, NotWrittenError, write_rows

from .records_of import create, values_of

pytestmark = [pytest.mark.process, pytest.mark.slow]

LAYOUT = Layout(value=0)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let many pieces be on their way, and come to an end, while a task goes on."""
    monkeypatch.setattr(columns, "PIECE_BYTES", 200_000)


@pytest.fixture(scope="module")
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster(settings={"auto.create.topics.enable": "false"}) as handle:
        yield handle


def written(bootstrap: str, topic: str, batches: Iterator[Any], **given: str) -> TaskOutcome:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.batch.size": "50000"} | given
    return write_rows(batches, LAYOUT, parse_write_options(options), 0)


def batch_of(numbers: range) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([b"%08d" % number + bytes(200) for number in numbers])], ["value"])


def numbers_of(bootstrap: str, topic: str) -> list[int]:
    return [int(value[:8]) for value in values_of(bootstrap, topic) if value is not None]


def leader_of(bootstrap: str, topic: str) -> int:
    (opening,) = connections._this_process().clusters.values()
    leader = opening.result().producer._cluster.view.leader(topic, 0)
    assert leader is not None
    node_id: int = leader.node_id
    return node_id


def test_a_topic_that_nobody_creates_is_named(brokers: cluster_handle.ClusterHandle) -> None:
    with pytest.raises(NoTopicError, match=r"topic 'none': it does not exist, .* within 0.3 s \(kafka.max.block.ms\)"):
        written(brokers.bootstrap, "none", iter([batch_of(range(3))]), **{"kafka.max.block.ms": "300"})


def test_what_is_not_acknowledged_in_time_fails_the_task_and_says_which_row(
    brokers: cluster_handle.ClusterHandle,
) -> None:
    create(brokers.bootstrap, "late", 1)
    written(brokers.bootstrap, "late", iter([batch_of(range(1))]))
    leader = leader_of(brokers.bootstrap, "late")
    others = [pid for node_id, pid in brokers.pids().items() if node_id != leader]
    taken = 0

    def batches() -> Iterator[Any]:
        nonlocal taken
        for start in range(0, 1_000_000, 1_000):
            if start == 10_000:
                # Nothing is acknowledged without them.
                for pid in others:
                    os.kill(pid, signal.SIGSTOP)
            taken = start + 1_000
            yield batch_of(range(start, start + 1_000))

    patience = {"kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "1000"}
    try:
        with pytest.raises(NotWrittenError, match=r"row \d+ of the task was not written to late-0: ") as caught:
            written(brokers.bootstrap, "late", batches(), **patience)
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)
    # Only so much is taken from Spark meanwhile.
    assert caught.value.row < taken <= caught.value.row + 8_000


def test_a_leader_that_is_killed_while_a_task_writes_costs_no_row_and_doubles_none(
    brokers: cluster_handle.ClusterHandle,
) -> None:
    create(brokers.bootstrap, "killed", 1)

    def batches() -> Iterator[Any]:
        for start in range(0, 30_000, 1_000):
            if start == 10_000:
                brokers.kill(leader_of(brokers.bootstrap, "killed"))
            yield batch_of(range(start, start + 1_000))

    assert written(brokers.bootstrap, "killed", batches()).rows == 30_000
    assert numbers_of(brokers.bootstrap, "killed") == list(range(30_000))
