"""Entries of large batches are written once, to their segments, as the journal says."""

from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace
from raftlog.log.frames import data_frame
from raftlog.log.memory_files import MemoryFiles
from raftlog.log.node import ROOMY, Node, fill, replayed

from barnabas_raftlog.log.journal.format import RecordKind
from barnabas_raftlog.log.journal.scan import JournalScan
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.raft.messages import Buffer, Entry

CONFIG = replace(ROOMY, stored_bytes_min=3000)
MUCH = 10  # entries of 500 bytes
LITTLE = 1


class Counting(MemoryFiles):
    """Counts the bytes that are written, by the kind of file."""

    def __init__(self) -> None:
        super().__init__()
        self.journal_bytes = self.segment_bytes = 0

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        size_bytes = sum(map(len, buffers))
        if self._open[fd].endswith(".journal"):
            self.journal_bytes += size_bytes
        elif self._open[fd].endswith(".log"):
            self.segment_bytes += size_bytes
        super().write(fd, buffers, position)


def started(files: MemoryFiles | None = None, count: int = 1) -> tuple[Node, list[ReplicaLog]]:
    node = Node(files, CONFIG)
    logs = [node.log(number) for number in range(1, count + 1)]
    for log in logs:
        fill(log, 1)
    node.work()
    assert [log.durable_index for log in logs] == [1] * count
    return node, logs


def kinds(files: MemoryFiles) -> list[RecordKind]:
    """Return the kinds of records in the only journal file, but for hard states and the like."""
    (data,) = [inode.data for name, inode in files.names.items() if inode and name.endswith(".journal")]
    scan = JournalScan(lambda position, size: data[position : position + size], len(data), 1, 512, 0)
    wanted = {RecordKind.ENTRY, RecordKind.STORED, RecordKind.TRUNCATE}
    return [RecordKind(record.kind) for record in scan.records() if record.kind in wanted]


def after_power_loss(files: MemoryFiles, seed: int = 1) -> list[tuple[int, int, bytes]]:
    files.lose_power(Random(seed))
    again = Node(files, CONFIG)
    log = again.log()
    assert log.failed is None, log.failed
    return again.run(replayed(log))


def test_what_is_much_is_written_once_and_there_after_a_loss_of_power() -> None:
    files = Counting()
    node, (log,) = started(files)
    files.journal_bytes = files.segment_bytes = 0
    for _ in range(5):
        fill(log, MUCH)
        node.work()
        assert log.durable_index == log.last_index
    assert files.segment_bytes > 5 * MUCH * 500
    assert files.journal_bytes < 0.2 * files.segment_bytes
    assert kinds(files) == [RecordKind.ENTRY] + 5 * MUCH * [RecordKind.STORED]
    before = node.run(replayed(log))
    assert after_power_loss(files) == before


def test_what_is_little_is_in_the_journal_and_both_follow_each_other() -> None:
    files = Counting()
    node, (log,) = started(files)
    for count in (MUCH, LITTLE, LITTLE, MUCH, LITTLE):
        fill(log, count)
        node.work()
    much = MUCH * [RecordKind.STORED]
    little = [RecordKind.ENTRY]
    assert kinds(files) == [*little, *much, *little, *little, *much, *little]
    before = node.run(replayed(log))
    assert after_power_loss(files) == before


def test_in_one_batch_each_log_is_looked_at_by_itself() -> None:
    files = Counting()
    node, (large, small) = started(files, 2)
    fill(large, MUCH)
    fill(small, LITTLE)
    node.work()
    assert kinds(files) == [*2 * [RecordKind.ENTRY], *MUCH * [RecordKind.STORED], RecordKind.ENTRY]
    assert (large.durable_index, small.durable_index) == (1 + MUCH, 1 + LITTLE)


def test_a_loss_of_power_in_the_middle_takes_nothing_that_was_durable() -> None:
    for seed in range(40):
        files = MemoryFiles()
        node, (log,) = started(files)
        fill(log, MUCH)
        node.work()
        durable = log.durable_index
        before = node.run(replayed(log))
        files.failing = lambda what, path: what == "sync" and path.endswith(".journal")
        fill(log, MUCH)
        node.storage.flush()
        node.sync_worker.run_one()
        assert log.durable_index == durable
        after = after_power_loss(files, seed)
        assert after[:durable] == before
        assert durable <= len(after) <= durable + MUCH


def test_nothing_is_stored_behind_a_truncation_that_the_journal_has_not() -> None:
    files = MemoryFiles()
    node, (log,) = started(files)
    fill(log, MUCH)
    node.work()
    log.truncate_from(5)
    fill(log, MUCH, term=2)
    node.work()
    assert kinds(files)[-MUCH - 1 :] == [RecordKind.TRUNCATE] + MUCH * [RecordKind.ENTRY]
    fill(log, MUCH, term=2)
    node.work()
    assert kinds(files)[-MUCH:] == MUCH * [RecordKind.STORED]
    before = node.run(replayed(log))
    assert len(before) == 4 + 2 * MUCH
    assert after_power_loss(files) == before


def test_nothing_is_stored_while_a_checkpoint_syncs_the_log() -> None:
    files = MemoryFiles()
    node, (log,) = started(files)
    node.storage.checkpoint()  # its sync waits for a worker that nobody lets go on
    assert log.under_way == 1
    fill(log, MUCH)
    node.storage.flush()
    node.sync_worker.run()
    assert log.durable_index == 1 + MUCH
    assert kinds(files) == [RecordKind.ENTRY] * (1 + MUCH)


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_segment_that_fails_fails_its_replica_only(call: str) -> None:
    files = MemoryFiles()
    node, (bad, good) = started(files, 2)
    files.failing = lambda what, path: what == call and "t-1/" in path
    fill(bad, MUCH)
    fill(good, MUCH)
    node.work()
    assert "t-1" in str(bad.failed)
    assert (good.failed, good.durable_index) == (None, 1 + MUCH)
    assert kinds(files)[2:] == MUCH * [RecordKind.ENTRY] + MUCH * [RecordKind.STORED]
    fill(good, MUCH)
    node.work()
    assert good.durable_index == 1 + 2 * MUCH


def test_a_full_disk_leaves_it_to_the_journal_and_the_segment_gets_it_when_there_is_room() -> None:
    files = MemoryFiles()
    node, (log,) = started(files)
    files.full_at_bytes = sum(len(inode.data) for inode in files.names.values() if inode is not None)
    fill(log, MUCH)
    node.work()
    assert log.durable_index == 1 + MUCH, "the journal has room that it keeps ahead"
    assert "no room" in node.storage.refusal
    assert RecordKind.STORED not in kinds(files)
    files.full_at_bytes = None
    node.wait()
    assert not node.storage.refusal
    fill(log, MUCH)
    node.work()
    assert kinds(files)[-MUCH:] == MUCH * [RecordKind.STORED]
    before = node.run(replayed(log))
    assert len(before) == 1 + 2 * MUCH
    assert after_power_loss(files) == before


def test_a_file_that_lacks_what_was_stored_is_damage_and_is_not_cut_any_further() -> None:
    files = MemoryFiles()
    node, (log,) = started(files)
    fill(log, MUCH)
    node.work()
    path = log.active.log.path
    files.kill()
    inode = files.names[path]
    assert inode is not None
    inode.truncate(len(inode.data) // 2)
    size_bytes = len(inode.data)
    again = Node(files, CONFIG)
    assert f"ends with entry 5, {1 + MUCH} had been synced" in str(again.log().failed)
    assert len(inode.data) == size_bytes


def test_enough_of_it_makes_a_checkpoint_though_the_journal_stays_small() -> None:
    node = Node(config=replace(CONFIG, checkpoint_bytes=4 * MUCH * 500))
    log = node.log()
    for _ in range(10):
        fill(log, MUCH)
        node.work()
    assert node.storage.stats.checkpoints == 2


def test_a_follower_stores_what_its_leader_sends_over_several_segments() -> None:
    files = Counting()
    node = Node(files, replace(CONFIG, segment_bytes=4000))
    log = node.log()
    frames = []
    for number in range(20):
        frame = data_frame(2, 500, 1000 + number)
        frame[:8] = (2 * number).to_bytes(8, "big")
        frame[12:16] = (7).to_bytes(4, "big")
        frames.append(frame)
    log.append([Entry(1 + number, 7, frame) for number, frame in enumerate(frames[:2])])
    node.work()
    log.append([Entry(3 + number, 7, frame) for number, frame in enumerate(frames[2:])])
    node.work()
    assert kinds(files)[2:] == 18 * [RecordKind.STORED]
    assert len(log.spans()) > 2
    assert [frame for _, _, frame in after_power_loss(files)] == [bytes(frame) for frame in frames]


def test_what_comes_while_something_is_stored_waits_for_its_own_batch() -> None:
    files = MemoryFiles()
    node, (log,) = started(files)
    fill(log, MUCH)
    node.storage.flush()
    for _ in range(5):
        fill(log, MUCH)
        node.storage.flush()
        assert not node.write_worker.run_one(), "else the next batch finds it under way"
        assert node.sync_worker.run_one()
    node.sync_worker.run()
    assert log.durable_index == 1 + 6 * MUCH
    assert kinds(files) == [RecordKind.ENTRY] + 6 * MUCH * [RecordKind.STORED]


def test_a_checkpoint_does_not_wait_for_a_batch_that_may_wait_for_it() -> None:
    node, (log, other) = started(count=2)
    fill(other, LITTLE)
    node.storage.flush()  # the sync worker has a batch, and does not go on
    fill(log, MUCH)
    node.storage.flush()
    assert not node.write_worker.run_one()
    node.storage.checkpoint()
    while node.write_worker.run_one() or node.checkpoint_worker.run_one():
        pass
    assert node.storage.stats.checkpoints == 1
    assert log.durable_index == 1
