"""Risk: a crash brings truncated entries back, behind acknowledged ones or in their place."""

from random import Random

import pytest
from raftlog.log.frames import data_frame
from raftlog.log.node import Node, fill

from barnabas_raftlog.log.replica.replica_log import ReplicaLog

SEEDS = range(40)


def terms(node: Node) -> list[int | None]:
    log = node.log()
    return [log.term_at(index) for index in range(1, log.last_index + 1)]


def truncated() -> tuple[Node, ReplicaLog]:
    """Return a node whose log had five entries of term 1 on the disk, and now two of them and one of term 2."""
    node = Node()
    log = node.log()
    fill(log, 5)
    node.work()
    assert log.durable_index == 5
    log.truncate_from(3)
    log.append_batch(2, data_frame(1, 100))
    return node, log


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_after_a_truncation_survives_a_loss_of_power_and_what_was_cut_does_not(seed: int) -> None:
    node, log = truncated()
    rng = Random(seed)
    node.storage.flush()
    node.sync_worker.run()  # The journal has it; the segments may have any of what is written behind it.
    assert log.durable_index == 3, "the moment of the acknowledgement"
    if rng.random() < 0.5:
        node.write_worker.run()
    node.files.lose_power(rng)
    assert terms(Node(node.files)) == [1, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_before_that_a_crash_shows_the_log_before_or_after_and_nothing_between(seed: int) -> None:
    node, _ = truncated()
    rng = Random(seed)
    for _ in range(rng.randrange(3)):
        node.storage.flush()
        if rng.random() < 0.5:
            node.sync_worker.run_one()
    node.files.lose_power(rng)
    assert terms(Node(node.files)) in ([1, 1, 1, 1, 1], [1, 1], [1, 1, 2])
