"""What a log refuses for as long as something is wrong keeps nothing of whoever was refused."""

from traceback import walk_tb

import pytest

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.errors import DiskFullError

from .node import Node, fill


def test_what_is_refused_again_and_again_keeps_nobody_alive() -> None:
    """One error is raised for all: with every frame that it went through, requests would stay until there is room."""
    node = Node()
    log = node.log()
    fill(log, 3)
    node.work()
    node.files.full_at_bytes = sum(len(inode.data) for inode in node.files.names.values() if inode is not None)
    while node.storage.host.refusal is None:
        fill(log, 1)
        node.work()
    lengths = set[int]()
    for _ in range(5):
        with pytest.raises(DiskFullError) as refused:
            fill(log, 1)
        lengths.add(len(list(walk_tb(refused.value.__traceback__))))
    assert len(lengths) == 1
    log._fail("a test")
    for _ in range(5):
        with pytest.raises(StorageFailedError) as failed:
            log.truncate_from(2)
        assert len(list(walk_tb(failed.value.__traceback__))) == 2
