"""A log knows the members of its group after restarts, crashes, truncations and snapshots."""

from random import Random

import pytest
from raftlog.log.frames import data_frame
from raftlog.log.node import Node, fill

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.raft.membership import NOBODY, Configuration, Member, configuration_of
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import ControlKind, control_frame

FIRST = configuration_of(frozenset({1, 2, 3}))
SECOND = Configuration(FIRST.voters, (Member(4, bytes(range(16))),))
THIRD = configuration_of(frozenset({2, 3}))

both_modes = pytest.mark.parametrize("mode", ["fsync", "page-cache"])


def changed(log: ReplicaLog, configuration: Configuration, term: int = 1) -> None:
    log.append_control(term, ControlKind.MEMBERSHIP, configuration.encode())


def restarted(node: Node, end: str) -> Node:
    """Return the node that starts after this one was closed, killed, or lost its power."""
    if end == "close":
        node.close()
    elif end == "kill":
        node.files.kill()
    else:
        node.files.lose_power(Random(1))
    return Node(node.files)


def known(log: ReplicaLog) -> tuple[Configuration, int]:
    return log.configuration, log.configuration_index


@both_modes
def test_a_configuration_holds_from_its_entry_on(mode: Mode) -> None:
    log = Node().log(mode=mode)
    assert known(log) == (NOBODY, 0)
    log.begin_with(FIRST)
    assert known(log) == (FIRST, 0)
    fill(log, 2)
    changed(log, SECOND)
    assert known(log) == (SECOND, 3)
    assert [log.configuration_at(index) for index in range(4)] == [FIRST, FIRST, FIRST, SECOND]
    log.begin_with(THIRD)
    assert known(log) == (SECOND, 3), "the log knows better than whoever adds the group"


@both_modes
def test_truncation_takes_it_back(mode: Mode) -> None:
    node = Node()
    log = node.log(mode=mode)
    log.begin_with(FIRST)
    changed(log, SECOND)
    fill(log, 1)
    log.truncate_from(1)
    assert known(log) == (FIRST, 0)
    frame = control_frame(log.log_end_offset, 2, ControlKind.MEMBERSHIP, THIRD.encode())
    log.append([Entry(1, 2, memoryview(frame))])
    assert known(log) == (THIRD, 1)
    node.work()
    node = restarted(node, "kill")
    assert known(node.log(mode=mode)) == (THIRD, 1)


@both_modes
@pytest.mark.parametrize("end", ["close", "kill", "power"])
def test_it_is_found_again_after_a_restart(mode: Mode, end: str) -> None:
    node = Node()
    log = node.log(mode=mode)
    log.begin_with(FIRST)
    fill(log, 1)
    changed(log, SECOND)
    fill(log, 1)
    node.work()
    if mode == "page-cache":
        node.storage.checkpoint()
        node.work()
    node = restarted(node, end)
    assert known(node.log(mode=mode)) == (SECOND, 2)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_alone", [True, False])
def test_in_page_cache_mode_a_change_that_counted_survives_a_loss_of_power(seed: int, *, is_alone: bool) -> None:
    """All before it is synced, too, so that no log ever comes back older than its members."""
    node = Node(boot_id="before")
    log = node.log(mode="page-cache")
    log.begin_with(FIRST)
    fill(log, 1 + 30 * (seed % 2))  # in one segment or several
    node.work()
    if is_alone:
        changed(log, SECOND)
    else:
        frames = [
            control_frame(log.log_end_offset, 1, ControlKind.NO_OP, b""),
            control_frame(log.log_end_offset, 1, ControlKind.MEMBERSHIP, SECOND.encode()),
            control_frame(log.log_end_offset, 1, ControlKind.NO_OP, b""),
        ]
        log.append([Entry(log.last_index + 1 + i, 1, memoryview(frame)) for i, frame in enumerate(frames)])
    index = log.configuration_index
    assert log.durable_index < index, "it waits for the disk"
    fill(log, 1)
    assert log.durable_index < index, "and so does what follows it"
    node.work()
    assert log.durable_index == log.last_index
    fill(log, 5)
    assert log.durable_index == log.last_index, "which is over when it is there"
    node.files.lose_power(Random(seed))
    log = Node(node.files, boot_id="after").log(mode="page-cache")
    assert log.is_uncertain
    assert log.failed is None
    assert log.last_index >= index
    assert known(log) == (SECOND, index)


def test_in_page_cache_mode_a_change_that_cannot_be_synced_counts_for_nothing() -> None:
    node = Node()
    log = node.log(mode="page-cache")
    log.begin_with(FIRST)
    fill(log, 1)
    node.work()
    node.files.failing = lambda call, path: call == "sync" and path.endswith(".log")
    changed(log, SECOND)
    node.work()
    assert log.durable_index < log.configuration_index
    assert log.failed is not None


def test_an_entry_that_the_disk_lost_changes_nothing() -> None:
    node = Node()
    log = node.log()
    log.begin_with(FIRST)
    fill(log, 1)
    node.work()
    changed(log, SECOND)
    node = restarted(node, "power")  # before anything was written
    assert known(node.log()) == (FIRST, 0)


@both_modes
def test_it_outlives_the_entry_that_brought_it(mode: Mode) -> None:
    node = Node()
    log = node.log(mode=mode)
    log.begin_with(FIRST)
    fill(log, 2)
    changed(log, SECOND)
    fill(log, 40)
    node.work()
    if mode == "page-cache":
        node.storage.checkpoint()
        node.work()
    log.drop_prefix(log.last_index)
    assert log.first_index > 4
    assert known(log) == (SECOND, 3)
    node.work()
    node = restarted(node, "power")
    log = node.log(mode=mode)
    assert log.first_index > 4
    assert known(log) == (SECOND, 3)
    assert log.configuration_at(log.first_index - 1) == SECOND


@both_modes
@pytest.mark.parametrize("end", ["close", "kill", "power"])
def test_a_snapshot_brings_its_own(mode: Mode, end: str) -> None:
    node = Node()
    log = node.log(mode=mode)
    log.begin_with(FIRST)
    fill(log, 3)
    changed(log, THIRD)
    node.work()
    log.install_snapshot(100, 9, 555, b"state", SECOND)
    assert known(log) == (SECOND, 100)
    node.work()
    node = restarted(node, end)
    log = node.log(mode=mode)
    assert (log.last_index, *known(log)) == (100, SECOND, 100)


def test_a_snapshot_that_a_crash_undid_leaves_the_old_members() -> None:
    node = Node()
    log = node.log()
    log.begin_with(FIRST)
    fill(log, 3)
    node.work()
    log.install_snapshot(2, 9, 2, b"", SECOND)
    node = restarted(node, "power")
    log = node.log()
    assert (log.last_index, *known(log)) == (3, FIRST, 0)


def test_a_change_of_the_mode_keeps_the_members() -> None:
    node = Node()
    log = node.log()
    log.begin_with(FIRST)
    changed(log, SECOND)
    node.work()
    node = restarted(node, "close")
    log = node.log(mode="page-cache")
    changed(log, THIRD)
    node.work()
    node = restarted(node, "kill")
    assert known(node.log()) == (THIRD, 2)


def test_members_that_cannot_be_read_fail_the_replica_alone() -> None:
    node = Node()
    log = node.log()
    other = node.log(2)
    frame = control_frame(0, 1, ControlKind.MEMBERSHIP, b"\x09 from the future")
    with pytest.raises(StorageFailedError, match="cannot be read: configuration format 9"):
        log.append([Entry(1, 1, memoryview(frame))])
    assert log.failed is not None
    other.append_batch(1, data_frame(1, 10))
    node.work()
    assert other.durable_index == 1
