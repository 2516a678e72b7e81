"""A log that refuses appends keeps nothing of those that it refused."""

from traceback import walk_tb

import pytest

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.log.replica.write_behind import fail
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import stamp

from .frames import data_frame
from .node import Node, fill


def test_what_is_refused_again_and_again_keeps_nobody_alive() -> None:
    """One error is raised for all: with every frame that it went through, requests would stay until there is room."""
    node = Node()
    log = node.log()
    fill(log, 3)
    node.work()
    node.files.full_at_bytes = sum(len(inode.data) for inode in node.files.names.values() if inode is not None)
    while node.storage.shared.refusal is None:
        fill(log, 1)
        node.work()
    lengths = set[int]()
    for _ in range(5):
        with pytest.raises(DiskFullError) as refused:
            fill(log, 1)
        lengths.add(len(list(walk_tb(refused.value.__traceback__))))
    assert len(lengths) == 1
    fail(log, "a test")
    for _ in range(5):
        with pytest.raises(StorageFailedError) as failed:
            log.truncate_from(2)
        assert len(list(walk_tb(failed.value.__traceback__))) == 2


@pytest.mark.parametrize(("offset_ahead", "term_ahead"), [(1, 0), (-1, 0), (1 << 40, 3), (0, -1)])
def test_entries_of_a_leader_that_cannot_follow_change_nothing(offset_ahead: int, term_ahead: int) -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    before = (log.last_index, log.last_term, log.log_end_offset, log.size_bytes)

    def entry(offset: int, term: int) -> Entry:
        frame = data_frame(2, 10)
        stamp(frame, offset, term)
        return Entry(log.last_index + 1, term, frame)

    wrong = entry(log.log_end_offset + offset_ahead, log.last_term + term_ahead)
    with pytest.raises(CorruptBatchError, match=f"entry 4 at offset {before[2] + offset_ahead} and of term"):
        log.append([wrong])
    assert (log.last_index, log.last_term, log.log_end_offset, log.size_bytes) == before
    log.append([entry(log.log_end_offset, log.last_term)])
    assert log.last_index == 4
    assert log.failed is None
