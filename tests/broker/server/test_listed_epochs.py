"""ListOffsets tells the epoch of the record that it has found, which may be an old one, and not that of the leader."""

from types import SimpleNamespace
from typing import Any

import pytest
from raftlog.log.node import Node

from barnabas_broker.server.handlers.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    _look_up,
)
from barnabas_clients.protocol.list_offsets import ListOffsetsPartitionResponse
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.records.builder import NewRecord, build_batch

EPOCH = 7
BATCHES = ((1, 1_000), (1, 2_000), (4, 9_000), (6, 3_000))  # two records each; the leader has written nothing yet


Leader = tuple[Node, ReplicaLog]


@pytest.fixture
def leader() -> Leader:
    node = Node()
    log = node.log()
    for epoch, timestamp in BATCHES:
        log.append_batch(epoch, build_batch([NewRecord(None, b"v", timestamp)] * 2, leader_epoch=epoch))
    node.work()
    return node, log


def found(leader: Leader, asked: int) -> tuple[int, int]:
    """Return the offset and the epoch that a leader answers."""
    node, log = leader
    result = ListOffsetsPartitionResponse()
    partition: Any = SimpleNamespace(log=log, term=EPOCH)
    node.run(_look_up(partition, asked, log.log_end_offset, result, 1_000_000))
    return result.offset, result.leader_epoch


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (EARLIEST, (0, 1)),
        (EARLIEST_LOCAL, (0, 1)),
        (1_500, (2, 1)),
        (2_001, (4, 4)),
        (MAX_TIMESTAMP, (4, 4)),
        (LATEST, (8, EPOCH)),
        (LATEST_TIERED, (-1, -1)),
        (9_001, (-1, -1)),
    ],
)
def test_w4_the_epoch_is_that_of_the_record(leader: Leader, asked: int, expected: tuple[int, int]) -> None:
    """A consumer that begins there would else believe that it has read what a later leader has written."""
    assert found(leader, asked) == expected


@pytest.mark.parametrize(("start", "epoch"), [(3, 1), (5, 4), (6, 6)])
def test_w4_a_log_that_begins_later_begins_in_the_epoch_of_its_first_record(
    leader: Leader, start: int, epoch: int
) -> None:
    _, log = leader
    log.drop_before(start, log.last_index)
    assert found(leader, EARLIEST) == (start, epoch)
