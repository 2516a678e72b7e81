"""The two ways to the journal: by loop and kernel, or by the sync worker."""

from random import Random

import pytest
from raftlog.log.memory_files import MemoryFiles
from raftlog.log.node import ROOMY, Node, fill

from barnabas_raftlog.log.journal.commit_queue import MIDDLING_BYTES, PROMPT_S, SMALL_BYTES
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.storage import StorageConfig


def started(config: StorageConfig = ROOMY) -> tuple[Node, ReplicaLog]:
    """Return a node whose first journal file and first segment are there, and its only log.

    Its disk takes no time, however long this process waits for a processor.
    """
    node = Node(config=config, has_syncer=True)
    node.storage.shared.commits._clock = lambda: 0.0
    log = node.log()
    fill(log, 1)
    node.work()
    assert log.durable_index == 1
    assert node.syncer.syncs == 0, "a file has to be made: that may block"
    return node, log


def test_a_small_batch_is_durable_when_the_kernel_says_so_and_not_before() -> None:
    node, log = started()
    fill(log, 3)
    node.storage.flush()
    assert node.syncer.syncs == 1
    assert log.durable_index == 1
    fill(log, 1)  # it waits for the next one
    node.storage.flush()
    assert node.syncer.syncs == 1
    node.sync_worker.run_one()
    assert log.durable_index == 4
    assert node.storage.take_durable() == [log.group]
    node.sync_worker.run()
    assert (log.durable_index, node.syncer.syncs) == (5, 2)
    node.files.lose_power(Random(1))
    assert Node(node.files).log().last_index == 5


def test_a_small_batch_goes_past_the_page_cache_where_blocks_were_written_before() -> None:
    node, log = started()
    fill(log, 3)
    node.work()
    assert (node.syncer.syncs, node.syncer.writes, log.durable_index) == (1, 1, 4)
    node.close()

    again = Node(node.files, ROOMY, has_syncer=True)
    log = again.log()
    for writes in (0, 1, 2):  # the first one has a file to begin, and what a former run wrote to it nobody knows
        fill(log, 1)
        again.work()
        assert again.syncer.writes == writes
    again.files.lose_power(Random(1))
    assert Node(again.files).log().last_index == 7


def test_a_file_system_that_has_nothing_but_the_page_cache_gets_small_batches_through_it() -> None:
    files = MemoryFiles()
    files.has_direct = False
    node = Node(files, ROOMY, has_syncer=True)
    log = node.log()
    for syncs in (0, 1, 2):
        fill(log, 1)
        node.work()
        assert (node.syncer.syncs, node.syncer.writes) == (syncs, 0)
    files.lose_power(Random(2))
    assert Node(files).log().last_index == 3


def test_what_failed_past_the_page_cache_goes_through_it_from_then_on() -> None:
    node, log = started()
    bad = next(name for name in node.files.names if name.endswith(".journal"))
    node.files.failing = lambda what, path: what == "write" and path == bad
    for count in (1, 2, 3):
        fill(log, 1)
        node.work()
        assert node.syncer.writes == 1
        assert log.durable_index == log.last_index == 1 + count
    assert node.storage.stats.journal_reopened == 1
    assert node.syncer.syncs == 3
    node.files.lose_power(Random(3))
    assert Node(node.files).log().last_index == 4


def test_a_journal_file_that_cannot_be_opened_twice_is_given_back() -> None:
    node = Node(config=ROOMY, has_syncer=True)
    log = node.log()
    node.files.failing = lambda what, _path: what == "open_direct"
    before = set(node.files._open)
    fill(log, 1)
    node.storage.flush()
    node.sync_worker.run()
    assert log.durable_index == 0
    assert not {node.files._open[fd] for fd in set(node.files._open) - before if ".journal" in node.files._open[fd]}
    node.files.failing = lambda _what, _path: False
    node.timers.pop()()
    node.work()
    assert log.durable_index == 1


def test_a_loss_of_power_before_the_sync_takes_at_most_what_was_not_durable() -> None:
    for seed in range(20):
        node, log = started()
        fill(log, 3)
        node.storage.flush()
        node.files.lose_power(Random(seed))
        assert 1 <= Node(node.files).log().last_index <= 4


def test_a_batch_that_is_not_small_is_the_workers() -> None:
    node, log = started()
    fill(log, MIDDLING_BYTES // 1000 + 1, body_bytes=1000)
    node.work()
    assert node.syncer.syncs == 0
    assert log.durable_index == log.last_index


@pytest.mark.parametrize(("part_bytes", "is_the_workers"), [(1_000, False), (3_900, False), (5_000, True)])
def test_a_batch_of_middling_size_is_the_workers_unless_it_is_made_of_small_parts(
    part_bytes: int, is_the_workers: bool
) -> None:
    node, log = started(StorageConfig(journal_file_bytes=4 << 20, journal_step_bytes=4 << 20))
    fill(log, 3 * SMALL_BYTES // part_bytes, body_bytes=part_bytes)
    assert SMALL_BYTES < log.shared.commits.waiting_bytes <= MIDDLING_BYTES
    node.work()
    assert node.syncer.syncs == (not is_the_workers)
    assert log.durable_index == log.last_index


def test_room_is_made_by_the_worker_before_there_is_none() -> None:
    node, log = started(StorageConfig(journal_file_bytes=64 << 10, journal_step_bytes=16 << 10))
    for _ in range(150):
        fill(log, 1)
        node.storage.flush()
        node.sync_worker.run()
        assert log.durable_index == log.last_index
    assert 0 < node.syncer.syncs < 150
    assert node.storage.stats.checkpoints == 0
    node.work()
    assert node.storage.stats.checkpoints > 0, "a file was full"
    assert node.killed().log().last_index == 151


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_file_that_fails_on_the_loop_is_replaced_by_the_worker(call: str) -> None:
    node, log = started()
    bad = next(name for name in node.files.names if name.endswith(".journal"))
    node.files.failing = lambda what, path: what == call and path == bad
    fill(log, 5)
    node.storage.flush()
    assert log.durable_index == 1
    node.sync_worker.run()
    assert log.durable_index == 6
    assert node.storage.stats.journal_reopened == 1
    fill(log, 1)
    node.storage.flush()
    node.sync_worker.run()
    assert log.durable_index == 7
    node.files.lose_power(Random(3))
    assert Node(node.files).log().last_index == 7


def test_a_kernel_that_takes_nothing_leaves_it_to_the_worker() -> None:
    node, log = started()
    node.syncer.is_busy = True
    fill(log, 3)
    node.storage.flush()
    assert log.durable_index == 1
    node.sync_worker.run()
    assert log.durable_index == 4
    assert node.killed().log().last_index == 4


def test_who_stops_waits_for_the_sync_that_is_under_way() -> None:
    node, log = started()
    fill(log, 3)
    node.storage.flush()
    node.close()
    assert log.durable_index == 4
    again = Node(node.files)
    assert again.storage.was_clean
    assert again.log().last_index == 4


class SlowFiles(MemoryFiles):
    """A disk on which every sync takes so long, on a clock of its own."""

    now_s = 0.0
    sync_s = 0.0

    def sync(self, fd: int) -> None:
        self.now_s += self.sync_s
        super().sync(fd)

    def write_and_sync(self, fd: int, data: bytes, position: int) -> None:
        self.now_s += self.sync_s
        super().write_and_sync(fd, data, position)


def test_nothing_is_written_on_the_loop_while_the_disk_keeps_people_waiting() -> None:
    files = SlowFiles()
    node = Node(files, ROOMY, has_syncer=True)
    node.storage.shared.commits._clock = lambda: files.now_s
    log = node.log()
    fill(log, 1)
    node.work()
    written = log.written
    fill(log, 1)
    assert written.reached == 2, "into the page cache, on the loop"
    node.storage.flush()
    assert node.syncer.syncs == 1
    files.now_s += PROMPT_S * 1.1  # and it is not done yet
    fill(log, 1)
    assert written.reached == 2
    node.work()
    assert (log.durable_index, written.reached, node.syncer.syncs) == (3, 3, 1), "the second one was the worker's"
    fill(log, 1)
    files.sync_s = PROMPT_S * 1.1
    node.work()
    assert node.syncer.syncs == 2, "the disk was prompt again, as far as anybody knew"
    files.sync_s = 0.0
    for syncs in (2, 3):  # the worker finds out that the disk is well again
        fill(log, 1)
        node.work()
        assert node.syncer.syncs == syncs
    assert log.durable_index == log.last_index == 6
