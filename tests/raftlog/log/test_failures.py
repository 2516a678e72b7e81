"""Disks that fail, run full and lie still: nothing is acknowledged that may be lost."""

import errno
from random import Random

import pytest

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.log.replica.reading import bytes_in_file
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.storage import StorageConfig
from barnabas_raftlog.records.header import ControlKind, parse_header

from .frames import data_frame
from .memory_files import CrashError, Inode, MemoryFiles
from .node import Node, fill


def used(files: MemoryFiles) -> int:
    return sum(len(inode.data) for inode in files.names.values() if inode is not None)


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("power", [False, True])
def test_a_journal_file_that_fails_is_replaced_and_nothing_is_lost(call: str, power: bool) -> None:
    node = Node()
    log = node.log()
    fill(log, 5)
    node.work()
    bad = next(name for name in node.files.names if name.endswith(".journal"))
    node.files.failing = lambda what, path: what == call and path == bad
    fill(log, 5)
    node.work()
    assert log.durable_index == 10
    assert node.storage.stats.journal_reopened == 1
    assert node.failures == []
    fill(log, 5)
    node.work()
    assert bad not in node.files.names, "a checkpoint makes it unnecessary"
    if power:
        node.files.lose_power(Random(1))
    assert node.killed().log().last_index == 15


def test_a_crash_right_after_the_replacement_finds_both_files() -> None:
    node = Node()
    log = node.log()
    fill(log, 5)
    node.work()
    bad = next(name for name in node.files.names if name.endswith(".journal"))
    node.files.failing = lambda what, path: what == "sync" and path == bad
    fill(log, 5)
    node.storage.flush()
    node.sync_worker.run_one()
    assert log.durable_index == 10
    node.files.lose_power(Random(2))
    assert Node(node.files).log().last_index == 10


def test_a_start_without_room_condemns_no_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Want of room was written down as the replica's own failure, if there was room enough to write that down."""
    node = Node()
    log = node.log()
    fill(log, 5)
    node.storage.flush()
    node.sync_worker.run()  # They are in the journal, and the segment file has not been begun.
    node.files.kill()

    def refuse_segments(inode: Inode, _end: int) -> None:
        if any(path.endswith(".log") and known is inode for path, known in node.files.names.items()):
            raise OSError(errno.ENOSPC, "full on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(node.files, "_need_room", refuse_segments)
        with pytest.raises(StorageFailedError, match="full on purpose"):
            Node(node.files)
    assert Node(node.files).log().last_index == 5


def journal_files(files: MemoryFiles) -> list[str]:
    return [name for name in files.names if name.endswith(".journal")]


def test_a_failed_fdatasync_and_no_file_in_its_place_acknowledges_nothing_until_there_is_one() -> None:
    node = Node()
    log = node.log(1)
    other = node.log(2)
    recovered: list[bool] = []
    node.storage.on_recovered = lambda: recovered.append(True)
    fill(log, 5)
    node.work()
    node.files.failing = lambda what, path: what == "sync" and path.endswith(".journal")
    fill(log, 1)
    ticket = node.storage.ticket()
    node.work()
    for full_at_bytes in (None, used(node.files), None):  # An attempt that finds no room is not the last one.
        node.files.full_at_bytes = full_at_bytes
        node.wait()
    assert log.durable_index == 5
    assert node.storage.durable_ticket < ticket
    assert len(node.failures) == 1, "one story is told once"
    assert len(journal_files(node.files)) == 1, "attempts leave nothing behind"
    for known in (log, other):
        with pytest.raises(StorageFailedError, match="journal"):
            known.append_batch(1, data_frame(1, 10))
    node.files.failing = lambda what, path: False
    node.work()
    assert log.durable_index == 5, "it is tried at an interval, not all the time"
    node.wait()
    assert (log.durable_index, node.storage.durable_ticket >= ticket, recovered) == (6, True, [True])
    assert node.storage.failed is None
    fill(log, 1)
    node.work()
    assert log.durable_index == 7
    assert node.killed().log(1).last_index == 7


@pytest.mark.parametrize("call", ["write", "sync", "open", "preallocate", "sync_directory"])
@pytest.mark.parametrize("can_remove", [False, True])
def test_what_attempts_at_a_new_journal_file_left_behind_is_not_part_of_the_journal(
    call: str, can_remove: bool
) -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    node.work()
    bad = journal_files(node.files)[0]

    def fails(what: str, path: str) -> bool:
        if what == "remove":
            return not can_remove
        return what in {"sync", "write"} if path == bad else what == call and "journal" in path

    node.files.failing = fails
    fill(log, 2)
    node.work()
    for _ in range(3):
        node.wait()
    assert (log.durable_index, node.storage.failed is None) == (3, False)
    node.files.failing = lambda what, path: path == bad and what in {"sync", "write"}
    node.wait()
    assert (log.durable_index, node.storage.failed) == (5, None)
    fill(log, 2)
    node.storage.flush()
    node.sync_worker.run()
    assert log.durable_index == 7
    node.files.lose_power(Random(4))
    again = Node(node.files).log()
    assert (again.failed, again.last_index) == (None, 7)


def test_a_crash_while_the_journal_fails_keeps_what_was_acknowledged() -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    node.work()
    node.files.failing = lambda what, path: (what == "sync" and path.endswith(".journal")) or what == "remove"
    fill(log, 2)
    node.work()
    node.wait()
    assert node.storage.failed is not None
    node.files.lose_power(Random(6))
    again = Node(node.files).log()
    assert again.failed is None
    assert 3 <= again.last_index <= 5


def test_a_close_while_the_journal_fails_is_no_clean_stop() -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    node.work()
    node.files.failing = lambda what, path: what == "sync" and path.endswith(".journal")
    fill(log, 2)
    node.work()
    node.close()
    again = node.killed()
    assert not again.storage.was_clean
    assert 3 <= again.log().last_index <= 5


def test_a_bad_segment_file_fails_its_replica_only_and_for_good() -> None:
    node = Node()
    bad = node.log(1)
    good = node.log(2)
    told: list[StorageFailedError] = []
    bad.on_failed = lambda group, error: told.append(error)
    fill(bad, 5)
    fill(good, 5)
    node.work()
    node.files.failing = lambda what, path: what == "write" and "t-1" in path
    fill(bad, 5)
    fill(good, 5)
    node.work()
    assert bad.failed is not None
    assert len(told) == 1
    with pytest.raises(StorageFailedError):
        fill(bad, 1)
    assert good.durable_index == 10
    node.files.failing = lambda what, path: False
    node.storage.checkpoint()
    node.work()
    again = node.killed()
    assert again.log(1).failed is not None
    assert again.log(2).failed is None


def test_a_full_disk_refuses_before_anything_changes_and_recovers_by_itself() -> None:
    node = Node()
    log = node.log()
    fill(log, 5)
    node.work()
    node.files.full_at_bytes = used(node.files)
    for _ in range(100):
        if node.storage.shared.refusal is None:
            fill(log, 1)
            node.work()
    accepted = log.last_index
    end = log.log_end_offset
    with pytest.raises(DiskFullError):
        log.append_batch(1, data_frame(1, 10))
    assert (log.last_index, log.log_end_offset) == (accepted, end)
    node.files.full_at_bytes = None
    node.wait()
    fill(log, 1)
    node.work()
    assert log.durable_index == accepted + 1
    assert node.killed().log().last_index == accepted + 1


def test_room_on_a_full_disk_is_looked_for_although_nothing_else_happens() -> None:
    """The driver has no reason to flush while everything is refused."""
    node = Node()
    log = node.log()
    fill(log, 5)
    node.storage.flush()
    node.sync_worker.run()
    node.files.full_at_bytes = used(node.files)
    node.write_worker.run()
    assert node.storage.refusal
    node.sync_worker.run()
    node.files.full_at_bytes = None
    timers = node.timers
    node.timers = []
    for action in timers:
        action()
    node.sync_worker.run()
    node.write_worker.run()
    assert not node.storage.refusal
    fill(log, 1)
    node.work()
    assert log.durable_index == 6


@pytest.mark.parametrize("has_room_again", [False, True])
def test_in_page_cache_mode_one_entry_waits_for_room_and_the_next_are_refused(has_room_again: bool) -> None:
    node = Node()
    log = node.log(mode="page-cache")
    fill(log, 2)
    node.work()
    node.files.full_at_bytes = used(node.files) + 100
    fill(log, 1)
    node.work()
    assert (log.last_index, log.durable_index) == (3, 2), "it is not acknowledged"
    assert node.storage.lacks_room
    with pytest.raises(DiskFullError):
        fill(log, 1)
    assert log.last_index == 3
    if has_room_again:
        node.files.full_at_bytes = None
        node.wait()
        assert (log.durable_index, node.storage.refusal) == (3, "")
    assert node.killed().log(mode="page-cache").last_index == (3 if has_room_again else 2)


def test_damage_in_what_was_synced_fails_the_replica_and_is_not_cut() -> None:
    node = Node()
    log = node.log()
    fill(log, 5)
    node.work()
    node.storage.checkpoint()
    node.work()
    path = log.active.log.path
    inode = node.files.names[path]
    assert inode is not None
    size = len(inode.data)
    inode.truncate(size - 700)
    inode.sync()
    log = node.killed().log()
    assert log.failed is not None
    assert "shorter" in str(log.failed)
    assert len(inode.data) == size - 700


def test_a_damaged_frame_is_found_when_it_is_read_for_a_follower() -> None:
    node = Node()
    log = node.log()
    fill(log, 60)
    node.work()
    inode = node.files.names[log.segments[0].log.path]
    assert inode is not None
    inode.data[300] ^= 1
    assert log.entries(1, 1000) is None
    assert list(node.storage.shared.suspects) == [(log, log.segments[0])]
    assert log.failed is None, "a sealed segment can be mended"


FRAME_BYTES = 561  # of those that `fill` appends


@pytest.mark.parametrize("frame", [0, 1, 3])
@pytest.mark.parametrize("byte", range(61))
@pytest.mark.parametrize("bit", [1, 4])
def test_damage_in_a_header_is_found_by_every_read(frame: int, byte: int, bit: int) -> None:
    """A header is not all under the checksum, and a reader that believed it could pass by records."""
    node = Node()
    log = node.log()
    fill(log, 60)
    node.work()
    segment = log.segments[0]
    inode = node.files.names[segment.log.path]
    assert inode is not None
    inode.data[frame * FRAME_BYTES + byte] ^= bit
    if not 12 <= byte < 16:  # Consumers get the term as it is; the scrub finds it, and so do followers.
        with pytest.raises(StorageFailedError):
            node.run(read_all(log))
        assert list(node.storage.shared.suspects) == [(log, segment)]
    node.storage.shared.suspects.clear()
    index = 1
    while found := log.entries(index, 4 * FRAME_BYTES):
        index += len(found)
    assert found is None
    assert index <= frame + 1, "what is before the damage is as it was"
    assert list(node.storage.shared.suspects) == [(log, segment)]


@pytest.mark.parametrize("is_active", [False, True])
@pytest.mark.parametrize("by_time", [False, True])
def test_a_length_that_leads_exactly_to_the_end_is_no_end_of_records(is_active: bool, by_time: bool) -> None:
    """A frame that takes no offset seems to be the whole segment: there would be nothing to read in it."""
    node = Node(config=StorageConfig(segment_bytes=1 << 20 if is_active else 8 << 10, tail_cache_bytes=4 << 10))
    log = node.log()
    log.append_control(1, ControlKind.NO_OP)
    fill(log, 60)
    node.work()
    segment = log.segments[0]
    assert (segment is log.active) == is_active
    end = bytes_in_file(log, segment) if by_time else segment.size_bytes
    inode = node.files.names[segment.log.path]
    assert inode is not None
    inode.data[8:12] = (end - 12).to_bytes(4, "big")
    with pytest.raises(StorageFailedError):
        node.run(log.offset_for_timestamp(0, 8) if by_time else log.read_cold(0, 8, 1_000))


async def read_all(log: ReplicaLog) -> None:
    """Read a log from its beginning as a consumer does; each record must be the one that is due."""
    offset = 0
    while offset < log.log_end_offset:
        found = await log.read_cold(offset, log.log_end_offset, 2_000)
        assert found, offset
        for run in found:
            for start in range(0, len(run), FRAME_BYTES):
                header = parse_header(run, start)
                assert header.base_offset == offset
                offset = header.end_offset


def test_damage_in_the_synced_journal_refuses_to_start() -> None:
    node = Node()
    log = node.log()
    for _ in range(4):
        fill(log, 2)
        node.work()
    path = next(name for name in node.files.names if name.endswith(".journal"))
    inode = node.files.names[path]
    assert inode is not None
    inode.data[1500] ^= 1
    with pytest.raises(StorageFailedError, match="is damaged at"):
        node.killed()


def test_a_torn_last_batch_is_cut_silently() -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    node.work()
    fill(log, 3)
    node.storage.flush()
    node.files.failing = lambda what, path: False
    node.files.crash_in = 1
    with pytest.raises(Exception, match="journal"):
        node.sync_worker.run()
    node.files.lose_power(Random(5))
    assert 3 <= Node(node.files).log().last_index <= 6


def test_a_lost_index_costs_a_walk_and_nothing_else() -> None:
    node = Node()
    fill(node.log(), 60)
    node.close()
    for name, inode in node.files.names.items():
        if name.endswith("index") and inode is not None:
            inode.data[:] = b"\xff" * len(inode.data)
    log = Node(node.files).log()
    assert log.read(3, 120, 1) is None
    frames = node.run(log.read_cold(3, 120, 1))
    assert len(frames) == 1
    assert log.offset_after(17) == 34


def test_a_journal_file_that_cannot_be_begun_is_replaced() -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    failed: list[str] = []

    def fails(call: str, path: str) -> bool:
        if call == "write" and path.endswith(".journal") and not failed:
            failed.append(path)
            return True
        return False

    node.files.failing = fails
    node.work()
    assert (log.durable_index, node.failures) == (3, [])
    assert failed[0] not in node.files.names


def test_a_checkpoint_over_a_truncation_that_is_not_durable_yet_is_followed_by_a_true_one() -> None:
    node = Node()
    log = node.log(mode="page-cache")
    fill(log, 3)
    node.work()
    log.truncate_from(2)
    for _ in range(2):
        node.storage.checkpoint()
    node.work(8)
    log = node.killed().log(mode="page-cache")
    assert log.failed is None
    assert log.last_index == 1


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
def test_no_file_shows_a_truncation_before_the_journal_has_it(mode: Mode) -> None:
    node = Node()
    log = node.log(mode=mode)
    fill(log, 3)
    node.work()
    node.storage.checkpoint()
    node.work()
    log.truncate_from(2)
    node.storage._writes.flush()
    node.write_worker.run()  # it gets ahead of the sync worker
    log = node.killed().log(mode=mode)
    assert (log.failed, log.last_index) == (None, 3)


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
def test_what_was_appended_after_a_truncation_survives_a_kill(mode: Mode) -> None:
    node = Node()
    log = node.log(mode=mode)
    fill(log, 3)
    node.work()
    log.truncate_from(2)
    fill(log, 2, term=2)
    node.work(8)
    assert log.durable_index == 3
    log = node.killed().log(mode=mode)
    assert (log.failed, log.last_index, log.last_term) == (None, 3, 2)


def test_names_made_before_a_kill_are_durable_after_the_restart() -> None:
    node = Node()
    fill(node.log(), 3)
    node.files.crash_in = 1  # the journal file has a name by then, and its directory was not synced
    node.storage.flush()
    with pytest.raises(CrashError):
        node.sync_worker.run()
    node = node.killed()
    log = node.log()
    fill(log, 2)
    node.storage.flush()
    node.sync_worker.run()
    durable = log.durable_index
    assert durable == log.last_index
    node.files.lose_power(Random(3))
    assert Node(node.files).log().last_index == durable


def test_an_adopted_directory_survives_a_crash_before_the_next_checkpoint() -> None:
    node = Node()
    log = node.log(mode="page-cache")
    fill(log, 3)
    node.write_worker.inline = True
    node.storage.flush()
    assert log.durable_index == 3
    for _ in range(2):
        node = node.killed()
        log = node.log()
        assert (log.failed, log.last_index) == (None, 3)
        fill(log, 1)
        node.storage._commits.flush()
        node.sync_worker.run()
        assert log.durable_index == 4
        log.truncate_from(4)
        node.storage._commits.flush()
        node.sync_worker.run()


@pytest.mark.parametrize("seed", range(4))
def test_a_file_made_after_a_restart_with_an_empty_segment_has_a_durable_name(seed: int) -> None:
    node = Node()
    node.log()
    node.storage.flush()
    node.sync_worker.run()
    node = node.killed()
    fill(node.log(), 2)
    node.work()
    node.storage.checkpoint()
    node.work()
    node.files.lose_power(Random(seed))
    log = Node(node.files).log()
    assert (log.failed, log.last_index) == (None, 2)


def test_want_of_room_is_told_once_and_its_end_once_and_a_failing_journal_is_neither() -> None:
    node = Node()
    log = node.log()
    told: list[str] = []
    node.storage.on_room = told.append
    fill(log, 5)
    node.work()
    node.files.full_at_bytes = used(node.files)
    for _ in range(100):
        if node.storage.shared.refusal is None:
            fill(log, 1)
            node.work()
    for _ in range(3):
        node.wait()
    assert told == ["no room for data"]
    assert node.storage.shared.is_busy(), "leaders are to send nothing"
    node.files.failing = lambda call, path: call == "open" or (call == "sync" and path.endswith(".journal"))
    node.files.full_at_bytes = None
    for _ in range(3):
        node.wait()
    node.files.failing = lambda call, path: 0
    for _ in range(4):
        node.wait()
    assert told == ["no room for data", ""]
    assert (node.storage.lacks_room, node.storage.shared.is_busy()) == (False, False)
