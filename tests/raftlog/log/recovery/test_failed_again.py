"""A failed replica counts again after a start if it holds all that was durable."""

import errno
from random import Random

import pytest
from raftlog.log.memory_files import Inode, MemoryFiles
from raftlog.log.node import Node, fill, replayed

from barnabas_raftlog.log.checkpoint import decode, encode, encode_row
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode

MODES: list[Mode] = ["fsync", "page-cache"]


def failing_read(node: Node, log: ReplicaLog) -> None:
    """Let the disk refuse to read the newest file of `log` once, and the replica be marked for it."""
    node.files.failing = lambda call, path: errno.EIO if (call, path) == ("read", log.active.log.path) else 0
    log.tail.drop_before(log.last_index)
    log.entries(log.last_index - 1, 10)
    node.files.failing = lambda call, path: 0
    assert log.failed is not None


def marked(mode: Mode, count: int = 8) -> tuple[Node, ReplicaLog, list[tuple[int, int, bytes]]]:
    """Return a node with a log that has failed, after a checkpoint says so, and the durable entries in it."""
    node = Node()
    log = node.log(1, mode)
    fill(log, 3)
    node.work()
    node.storage.checkpoint()
    node.work()
    fill(log, count - 3)
    node.work()
    held = node.run(replayed(log))
    failing_read(node, log)
    node.storage.checkpoint()
    node.work()
    return node, log, held


def stop(node: Node, how: str) -> None:
    if how == "stopped":
        node.close()
    elif how == "killed":
        node.files.kill()
    else:
        node.files.lose_power(Random(5))


def inode_of(files: MemoryFiles, log: ReplicaLog) -> Inode:
    inode = files.names[log.active.log.path]
    assert inode is not None
    return inode


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_one_whose_files_are_whole_is_back_after_a_restart_and_stays(how: str, mode: Mode) -> None:
    node, _, held = marked(mode)
    stop(node, how)
    for number in range(3):
        node = Node(node.files)
        log = node.log(1, mode)
        assert (log.failed, log.is_uncertain) == (None, False)
        assert node.run(replayed(log))[: len(held)] == held
        fill(log, 2, term=2 + number)
        node.work()
        held = node.run(replayed(log))
        assert log.durable_index == log.last_index
        node.files.kill()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("damage", ["bit in the synced part", "bit behind it", "cut", "gone"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_one_that_lacks_something_stays_failed_and_its_files_stay_as_they_are(
    how: str, damage: str, mode: Mode
) -> None:
    node, log, _ = marked(mode)
    inode = inode_of(node.files, log)
    path = log.active.log.path
    stop(node, how)
    if damage == "gone":
        node.files.remove(path)
    elif damage == "cut":
        inode.truncate(len(inode.data) - 1)
    else:
        inode.data[100 if damage == "bit in the synced part" else len(inode.data) - 10] ^= 4
    data = bytes(inode.data)
    for _ in range(2):
        again = Node(node.files)
        assert again.log(1, mode).failed is not None
        assert bytes(inode.data) == data, "it may be the last copy"
        node.files.kill()


def test_what_other_terms_wrote_in_the_place_of_what_was_durable_is_not_taken_for_it() -> None:
    """The files show entries that were truncated, and the journal, which had others in their place, is gone."""
    node = Node()
    log = node.log()
    fill(log, 6)
    node.work()
    node.storage.checkpoint()
    node.work()
    path = log.active.log.path
    node.files.failing = lambda call, where: errno.EIO if (call, where) == ("truncate", path) else 0
    log.truncate_from(4)
    fill(log, 3, term=2)
    node.work()
    assert log.failed is not None
    assert log.durable_when_failed == (6, [(1, 1, 0), (2, 4, 6)])
    node.files.failing = lambda call, where: 0
    node.storage.checkpoint()
    node.work()
    node.files.kill()
    assert Node(node.files).log().failed is not None


@pytest.mark.parametrize("mode", MODES)
def test_one_of_which_nobody_knows_what_was_durable_comes_back_uncertain(mode: Mode) -> None:
    node, _, held = marked(mode)
    node.files.kill()
    inode = node.files.names["data/checkpoint"]
    assert inode is not None
    known = decode(inode.data)
    for row in known.rows.values():
        row.durable = None  # as in a checkpoint of an older version
    rows = [encode_row(row) for row in known.rows.values()]
    inode.data[:] = encode(known.number, known.journal, rows, known.hard_states)
    again = Node(node.files)
    log = again.log(1, mode)
    assert (log.failed, log.is_uncertain) == (None, True)
    found = again.run(replayed(log))
    assert found == held[: len(found)]
    assert len(found) == len(held), "all of it was in the files"
