"""A bit that flips in a page-cache log while its node is down, where nobody wrote down what there should be."""

import pytest
from raftlog.log.memory_files import Inode
from raftlog.log.node import Node, fill

from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.records.header import ControlKind

STARTS = (0, 62, 623, 1_184, 1_745)  # of the frames in the file
TERM_BYTE = 12


def log_of(node: Node) -> tuple[ReplicaLog, Inode]:
    """Return a log of a control frame and of batches of 561 bytes, and its file."""
    log = node.log(mode="page-cache")
    log.append_control(1, ControlKind.NO_OP)
    fill(log, 4)
    node.work()
    inode = node.files.names[log.active.log.path]
    assert inode is not None
    return log, inode


def again(node: Node) -> ReplicaLog:
    return node.killed().log(mode="page-cache")


def test_a_log_that_was_killed_is_whole_and_certain() -> None:
    node = Node()
    log_of(node)
    log = again(node)
    assert (log.last_index, log.is_uncertain) == (5, False)


@pytest.mark.parametrize(("byte", "bit"), [(0, 1), (8, 64), (10, 1), (12, 64), (13, 32), (30, 1)])
@pytest.mark.parametrize("frame", [0, 2, 4])
def test_what_is_damaged_is_cut_off_and_may_have_been_acknowledged(frame: int, byte: int, bit: int) -> None:
    node = Node()
    _, inode = log_of(node)
    inode.data[STARTS[frame] + byte] ^= bit
    log = again(node)
    assert (log.last_index, log.is_uncertain) == (frame, True)
    assert again(node).is_uncertain, "until it has caught up"


@pytest.mark.parametrize("written", [1, 11, 12, 20, 60, 61, 62, 300, 560])
def test_a_frame_whose_write_was_under_way_was_not_acknowledged(written: int) -> None:
    """A replica that is uncertain for it could not help to elect: a kill would cost a partition a voter."""
    node = Node()
    _, inode = log_of(node)
    del inode.data[STARTS[4] + written :]
    log = again(node)
    assert (log.last_index, log.is_uncertain) == (4, False)


def test_a_segment_that_ends_within_a_frame_and_is_followed_by_another_one_has_lost_something() -> None:
    node = Node()
    log, _ = log_of(node)
    sealed = log.active.log.path
    while log.active.log.path == sealed:
        fill(log, 1)
        node.work()
    inode = node.files.names[sealed]
    assert inode is not None
    del inode.data[STARTS[4] + 300 :]
    log = again(node)
    assert (log.last_index, log.is_uncertain) == (4, True)


def test_a_low_bit_of_a_term_is_left_to_the_group() -> None:
    node = Node()
    _, inode = log_of(node)
    inode.data[STARTS[4] + TERM_BYTE + 3] ^= 4
    log = again(node)
    assert (log.last_index, log.is_uncertain) == (5, False)
