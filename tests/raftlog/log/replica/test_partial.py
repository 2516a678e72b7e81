"""A witness's log says that it lacks its beginning, also after any crash."""

import pytest
from raftlog.log.node import Node, fill

from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode

from .test_members import FIRST, restarted

SINCE = (2, 1 << 40)

both_modes = pytest.mark.parametrize("mode", ["fsync", "page-cache"])
all_ends = pytest.mark.parametrize("end", ["close", "kill", "power"])


def founded(node: Node, mode: Mode) -> ReplicaLog:
    """Return a log of several segments, on the disk."""
    log = node.log(mode=mode)
    log.begin_with(FIRST)
    fill(log, 40)
    node.work()
    if mode == "page-cache":
        node.storage.checkpoint()
        node.work()
    return log


@both_modes
@all_ends
def test_a_log_whose_beginning_a_witness_dropped_is_partial(mode: Mode, end: str) -> None:
    node = Node()
    log = founded(node, mode)
    assert log.partial_since is None
    log.drop_prefix(log.last_index, partial_since=SINCE)
    assert log.first_index > 1
    node.work()
    log = restarted(node, end).log(mode=mode)
    assert (log.first_index > 1, log.partial_since) == (True, SINCE)


@both_modes
def test_a_witness_that_dropped_nothing_has_a_whole_log(mode: Mode) -> None:
    node = Node()
    log = node.log(mode=mode)
    fill(log, 1)
    log.drop_prefix(log.last_index, partial_since=SINCE)
    assert (log.first_index, log.partial_since) == (1, None)


@both_modes
@all_ends
def test_a_log_that_begins_as_a_witness_s_is_partial_and_has_no_state(mode: Mode, end: str) -> None:
    node = Node()
    log = founded(node, mode)
    log.install_snapshot(100, 9, 555, b"", FIRST, partial_since=SINCE)
    node.work()
    log = restarted(node, end).log(mode=mode)
    assert (log.last_index, log.log_end_offset, log.partial_since) == (100, 555, SINCE)
    assert log.load_state() is None


@both_modes
@all_ends
def test_a_log_that_begins_anew_is_whole(mode: Mode, end: str) -> None:
    node = Node()
    log = founded(node, mode)
    log.drop_prefix(log.last_index, partial_since=SINCE)
    log.install_snapshot(0, 0, 0, b"", FIRST)
    assert log.durable_index == 0, "nothing negative is ever acknowledged"
    node.work()
    log = restarted(node, end).log(mode=mode)
    assert (log.first_index, log.last_index, log.partial_since) == (1, 0, None)
    log.install_snapshot(7, 1, 14, b"state", FIRST)
    assert log.partial_since is None
