"""Storage and its logs: the ordinary life, restarts, deletion, snapshots, and what clients read."""

import asyncio
from uuid import UUID

import pytest

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.errors import StorageBusyError
from barnabas_raftlog.log.storage import StorageConfig
from barnabas_raftlog.raft.messages import GroupId, HardState
from barnabas_raftlog.records.header import ControlKind

from .frames import data_frame
from .node import Node, fill, group, replayed


def test_an_entry_is_durable_only_after_the_sync() -> None:
    node = Node()
    log = node.log()
    entry = log.append_batch(1, data_frame(3, 100))
    ticket = node.storage.ticket()
    assert (entry.index, log.last_index, log.log_end_offset, log.durable_index) == (1, 1, 3, 0)
    node.storage.flush()
    assert log.durable_index == 0
    node.sync_worker.run()
    assert (log.durable_index, node.storage.durable_ticket) == (1, ticket)
    assert node.storage.take_durable() == [log.group]
    assert node.storage.take_durable() == []


def test_a_thousand_groups_share_one_sync() -> None:
    node = Node(config=StorageConfig(journal_file_bytes=8 << 20, journal_step_bytes=8 << 20))
    logs = [node.log(number) for number in range(1000)]
    node.work()
    before = node.storage.stats.journal_syncs
    calls = node.durable_calls
    for log in logs:
        log.append_batch(1, data_frame(1, 50))
    node.storage.flush()
    node.sync_worker.run()
    assert all(log.durable_index == 1 for log in logs)
    assert node.storage.stats.journal_syncs == before + 1
    assert node.durable_calls == calls + 1


def test_work_accumulates_while_a_sync_runs() -> None:
    node = Node()
    log = node.log()
    log.append_batch(1, data_frame(1, 10))
    node.storage.flush()
    for _ in range(5):
        log.append_batch(1, data_frame(1, 10))
        node.storage.flush()
    node.sync_worker.run_one()
    assert log.durable_index == 1
    node.sync_worker.run_one()
    assert log.durable_index == 6


def test_page_cache_appends_are_durable_at_once_when_nothing_is_queued() -> None:
    node = Node()
    log = node.log(mode="page-cache")
    fill(log, 1)
    assert log.durable_index == 0
    node.work()
    assert log.durable_index == 1
    fill(log, 3)
    assert log.durable_index == 4


def test_control_frames_take_an_index_and_no_offset_and_are_not_served() -> None:
    node = Node()
    log = node.log()
    log.append_control(1, ControlKind.NO_OP)
    first = log.append_batch(1, data_frame(2, 20))
    log.append_control(2, ControlKind.NO_OP)
    log.append_control(2, ControlKind.PREFIX_TRUNCATION, bytes(8))
    second = log.append_batch(2, data_frame(1, 20))
    assert (log.last_index, log.log_end_offset) == (5, 3)
    assert [log.offset_after(index) for index in range(6)] == [0, 0, 2, 2, 2, 3]
    assert log.read(0, 3, 1 << 20) == [first.frame, second.frame]
    assert log.read(2, 3, 1) == [second.frame]
    assert log.read(3, 3, 1) == []
    assert log.epoch_end_offset(1) == (1, 2)
    assert log.epoch_end_offset(7) == (2, 3)
    assert log.epoch_end_offset(0) is None


def test_a_clean_restart_opens_no_file_of_any_replica() -> None:
    node = Node()
    for number in range(5):
        fill(node.log(number), 30)
        node.work()
    node.storage.save_hard_state(group(3), HardState(7, 2))
    node.close()
    node.files.calls.clear()
    again = Node(node.files)
    logs = [again.log(number) for number in range(5)]
    assert not [path for call, path in node.files.calls if call in {"open", "read"} and "replicas" in path]
    assert again.storage.was_clean
    assert all((log.last_index, log.durable_index, log.log_end_offset) == (30, 30, 60) for log in logs)
    assert again.storage.hard_state(group(3)) == HardState(7, 2)
    assert len(asyncio.run(replayed(logs[2]))) == 30


def test_a_deleted_replica_is_gone_and_its_name_is_free() -> None:
    node = Node()
    log = node.log()
    fill(log, 20)
    node.storage.save_hard_state(log.group, HardState(4, 1))
    node.work()
    node.storage.delete_log(log.group)
    fresh = node.log()
    assert (fresh.last_index, node.storage.hard_state(log.group)) == (0, HardState(0, None))
    fill(fresh, 2, term=5)
    node.work()
    again = node.killed()
    log = again.log()
    assert (log.last_index, log.last_term, again.storage.hard_state(log.group)) == (2, 5, HardState(0, None))
    again.storage.delete_log(log.group)
    again.work()
    last = again.killed()
    assert not [name for name in last.files.names if "t-1" in name]


def test_a_snapshot_empties_the_log_and_moves_its_start() -> None:
    node = Node()
    log = node.log()
    fill(log, 20)
    node.work()
    log.install_snapshot(100, 9, 555)
    assert (log.first_index, log.last_index, log.last_term, log.log_end_offset) == (101, 100, 9, 555)
    assert (log.term_at(100), log.term_at(99), log.term_at(101)) == (9, None, None)
    assert log.durable_index < 100
    fill(log, 2, term=9)
    node.work()
    assert log.durable_index == 102
    for restarted in (node.killed(), None):
        if restarted is not None:
            node = restarted
        else:
            node.close()
            node = Node(node.files)
        log = node.log()
        assert (log.first_index, log.last_index, log.log_start_offset, log.log_end_offset) == (101, 102, 555, 559)
        assert log.term_at(100) == 9
        assert [item[0] for item in asyncio.run(replayed(log))] == [101, 102]


def test_a_dropped_prefix_takes_whole_segments_only() -> None:
    node = Node()
    log = node.log()
    fill(log, 60)
    node.work()
    firsts = [segment.first_index for segment in log.segments]
    log.drop_prefix(firsts[2])
    assert log.first_index == firsts[2]
    assert log.term_at(firsts[2] - 1) == 1
    node.work()
    again = node.killed()
    log = again.log()
    assert (log.first_index, log.last_index) == (firsts[2], 60)
    assert log.failed is None


def test_saved_state_is_given_back_while_it_fits_the_log() -> None:
    node = Node()
    log = node.log()
    fill(log, 5)
    assert log.load_state() is None
    log.save_state(4, b"producers")
    node.work()
    assert log.load_state() == (4, b"producers")
    again = node.killed()
    log = again.log()
    assert log.load_state() == (4, b"producers")
    log.truncate_from(3)
    assert log.load_state() is None


def test_state_that_was_saved_before_a_truncation_is_not_given_back_after_new_appends() -> None:
    node = Node()
    log = node.log()
    fill(log, 5)
    log.save_state(4, b"producers")
    node.work()
    log.truncate_from(3)
    fill(log, 5, term=2)
    node.work()
    assert log.load_state() is None
    assert node.killed().log().load_state() is None


def test_leaders_are_refused_when_too_much_waits_for_the_disk() -> None:
    node = Node(config=StorageConfig(queued_bytes_max=5000))
    log = node.log()
    with pytest.raises(StorageBusyError):
        fill(log, 100)
    assert log.last_index < 12
    node.work()
    fill(log, 1)


def test_a_node_is_busy_from_half_of_what_may_wait_down_to_a_quarter() -> None:
    node = Node(config=StorageConfig(queued_bytes_max=8000))
    host = node.storage.shared
    log = node.log()
    while not host.is_busy():
        assert host.waiting_bytes <= 4000
        fill(log, 1)
    assert host.waiting_bytes > 4000
    node.work()
    assert (host.waiting_bytes, host.is_busy()) == (0, False)
    while host.waiting_bytes <= 2000:
        fill(log, 1)
    assert not host.is_busy()
    host._is_busy = True
    assert host.is_busy(), "it was busy, and more than a quarter waits"


def test_a_directory_can_be_used_by_one_process_and_one_node_only() -> None:
    node = Node()
    with pytest.raises(StorageFailedError, match="in use"):
        Node(node.files)
    node.close()
    with pytest.raises(StorageFailedError, match="belongs to cluster id one, this broker is configured with two"):
        Node(node.files, cluster_id="two")
    assert Node(node.files).storage.directory_id == UUID(int=7).bytes


def test_cold_entries_are_loaded_in_a_thread_and_announced() -> None:
    node = Node()
    log = node.log()
    fill(log, 60)
    node.work()
    announced: list[GroupId] = []
    log.on_loaded = announced.append
    node.files.cold = True
    assert log.entries(1, 3000) is None
    assert announced == [log.group]
    entries = log.entries(1, 3000)
    assert entries is not None
    assert [entry.index for entry in entries] == [1, 2, 3, 4, 5]
    frames = node.run(log.read_cold(0, 120, 2000))
    assert b"".join(frames) == b"".join([bytes(entry.frame) for entry in entries[:3]])


def test_a_mode_may_change_between_two_runs() -> None:
    node = Node()
    fill(node.log(), 10)
    node.work()
    node = node.killed()
    log = node.log(mode="page-cache")
    node.work()
    fill(log, 10)
    node.work()
    assert log.durable_index == 20
    node = node.killed()
    log = node.log()
    assert log.last_index == 20
    fill(log, 5)
    node.work()
    assert node.killed().log().last_index == 25


def test_a_large_frame_makes_its_journal_file_larger() -> None:
    node = Node()
    log = node.log()
    fill(log, 3)
    log.append_batch(1, data_frame(1, 100_000))
    fill(log, 3)
    node.work()
    assert log.durable_index == 7
    assert node.killed().log().last_index == 7


def test_journal_files_are_used_again() -> None:
    node = Node()
    log = node.log()
    for _ in range(40):
        fill(log, 5)
        node.work()
    assert log.durable_index == 200
    journals = [name for name in node.files.names if name.endswith(".journal")]
    assert len(journals) <= 3
    assert node.storage.stats.checkpoints > 3
    assert node.killed().log().last_index == 200
