"""A bad file in a recovery fails its replica, a bad disk nothing for good."""

import pytest
from raftlog.log.memory_files import Inode, MemoryFiles
from raftlog.log.node import Node, fill

from barnabas_raftlog.errors import StorageFailedError


def killed_before_segments_were_written(count: int = 3) -> MemoryFiles:
    """Return the files of a node whose journal holds all that `count` replicas have."""
    node = Node()
    for number in range(1, count + 1):
        fill(node.log(number), 5)
    node.storage.flush()
    node.sync_worker.run()
    node.files.kill()
    return node.files


def recovered(node: Node, *numbers: int) -> list[tuple[StorageFailedError | None, int]]:
    logs = [node.log(number) for number in numbers]
    return [(log.failed, log.last_index) for log in logs]


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_file_that_fails_is_replaced_by_a_copy_and_its_replica_is_whole(call: str) -> None:
    files = killed_before_segments_were_written()
    bad: list[tuple[str, Inode | None]] = []

    def fails(what: str, path: str) -> bool:
        if bad or what != call or "t-1/" not in path or not path.endswith(".log"):
            return False
        bad.append((path, files.names[path]))
        return True

    files.failing = fails
    node = Node(files)
    path, inode = bad[0]
    assert files.names[path] is not inode, "it is never synced again"
    assert recovered(node, 1, 2, 3) == [(None, 5)] * 3
    assert not [path for path in files.names if path.endswith(".new")]


def test_a_replica_whose_files_cannot_be_written_fails_alone_until_a_start_that_can() -> None:
    files = killed_before_segments_were_written()
    files.failing = lambda call, path: call == "sync" and "t-1/" in path
    node = Node(files)
    assert "cannot write" in str(node.log(1).failed)
    assert recovered(node, 2, 3) == [(None, 5)] * 2
    inode = files.names[node.storage.logs[0].active.log.path]
    files.kill()
    files.failing = lambda call, path: call == "sync" and files.names[path] is inode
    assert recovered(Node(files), 1, 2, 3) == [(None, 5)] * 3, "the file that was not synced is not synced again"


def test_many_replicas_that_cannot_be_written_are_a_bad_disk_and_nothing_is_concluded_for_good() -> None:
    files = killed_before_segments_were_written()
    files.failing = lambda call, path: call == "sync" and ("t-1/" in path or "t-2/" in path)
    with pytest.raises(StorageFailedError, match="cannot write to data/replicas/t-1"):
        Node(files)
    files.kill()
    node = Node(files)
    assert recovered(node, 1, 2, 3) == [(None, 5)] * 3


@pytest.mark.parametrize("call", ["write", "sync", "rename", "sync_directory"])
def test_a_checkpoint_that_cannot_be_written_refuses_the_start_and_changes_nothing(call: str) -> None:
    files = killed_before_segments_were_written(1)
    at_fault = "data" if call == "sync_directory" else "data/checkpoint.new"
    files.failing = lambda what, path: what == call and path == at_fault
    with pytest.raises(StorageFailedError, match="on purpose"):
        Node(files)
    files.kill()
    left = files.names.get("data/checkpoint.new")
    log = Node(files).log()
    assert (log.failed, log.last_index) == (None, 5)
    assert left is None or files.names["data/checkpoint"] is not left, "a file whose sync failed is not used again"


def test_a_journal_that_cannot_be_read_refuses_the_start_and_changes_nothing() -> None:
    files = killed_before_segments_were_written(1)
    files.failing = lambda what, path: what == "read" and path.endswith(".journal")
    with pytest.raises(StorageFailedError, match="on purpose"):
        Node(files)
    files.kill()
    assert Node(files).log().last_index == 5
