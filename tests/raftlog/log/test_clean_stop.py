"""A node that stops with many replicas syncs them in one call."""

from random import Random

import msgspec
import pytest

from .node import SMALL, Node, fill

MANY = msgspec.structs.replace(SMALL, synced_together_min=4)


def stopped(node: Node, count: int) -> list[str]:
    """Stop a node with so many dirty replicas; return the calls that were syncs of replicas, or of everything."""
    for number in range(1, count + 1):
        fill(node.log(number), 3)
    node.work()
    node.files.calls.clear()
    node.close()
    return [call for call, path in node.files.calls if call == "sync_file_system" or (call == "sync" and "t-" in path)]


def after_power_loss(node: Node, count: int) -> Node:
    node.files.lose_power(Random(3))
    again = Node(node.files, MANY)
    for number in range(1, count + 1):
        log = again.log(number)
        assert (log.failed, log.last_index) == (None, 3)
    return again


def test_many_replicas_are_synced_by_one_call() -> None:
    node = Node(config=MANY)
    assert stopped(node, 6) == ["sync_file_system"]
    assert after_power_loss(node, 6).storage.was_clean


def test_few_replicas_are_synced_one_by_one() -> None:
    node = Node(config=MANY)
    assert stopped(node, 3) == ["sync"] * 3
    assert after_power_loss(node, 3).storage.was_clean


@pytest.mark.parametrize("fails", [True, False])
def test_without_such_a_call_or_after_a_failed_one_they_are_synced_one_by_one(fails: bool) -> None:
    node = Node(config=MANY)
    if fails:
        node.files.failing = lambda call, path: call == "sync_file_system"
    else:
        node.files.has_syncfs = False
    assert stopped(node, 6)[-6:] == ["sync"] * 6
    assert after_power_loss(node, 6).storage.was_clean


def test_after_a_failed_call_for_all_only_the_file_whose_own_sync_fails_is_not_trusted() -> None:
    node = Node(config=MANY)
    node.files.failing = lambda call, path: call == "sync_file_system" or (call == "sync" and "t-2/" in path)
    stopped(node, 6)
    before = dict(node.files.names)
    node.files.kill()
    again = Node(node.files, MANY)
    paths = [again.log(number).active.log.path for number in range(1, 7)]
    is_same = [node.files.names[path] is before[path] for path in paths]
    assert is_same == [True, False, True, True, True, True], "a copy is synced in its place"
    assert {log.failed for log in again.storage.logs} == {None}


def test_a_checkpoint_of_a_running_node_syncs_many_logs_together() -> None:
    node = Node(config=MANY)
    for number in range(1, 7):
        fill(node.log(number), 3)
    node.work()
    node.storage.checkpoint()
    node.work()
    assert [call for call, _ in node.files.calls].count("sync_file_system") == 1
    assert node.storage.stats.checkpoints == 1


def test_what_is_written_does_not_wait_for_what_is_synced() -> None:
    node = Node(config=MANY)
    log = node.log(1)
    other = node.log(2)
    fill(log, 3)
    fill(other, 3)
    node.work()
    node.storage.checkpoint()
    fill(log, 2)
    fill(other, 2)
    node.storage.flush()
    node.sync_worker.run()
    node.write_worker.run_one()
    assert log.written.reached == other.written.reached == 5
    log.truncate_from(4)
    fill(log, 1)
    for _ in range(3):
        node.storage.flush()
        node.sync_worker.run()
        node.write_worker.run_one()
    assert log.written.reached == 3, "a truncation waits, for the checkpoint will say that its entries are there"
    assert node.storage.stats.checkpoints == 0
    node.work()
    assert log.written.reached == 4
    assert node.storage.stats.checkpoints == 1
    assert node.killed().log(1).last_index == 4


def test_a_log_whose_sync_fails_is_out_and_the_checkpoint_goes_on() -> None:
    node = Node(config=MANY)
    log = node.log(1)
    other = node.log(2)
    fill(log, 3)
    fill(other, 3)
    node.work()
    node.files.failing = lambda call, path: call == "sync" and "/t-1/" in path
    node.storage.checkpoint()
    fill(log, 1)
    node.work()
    assert log.failed is not None
    assert other.failed is None
    assert node.storage.stats.checkpoints == 1


def test_a_stop_that_cannot_be_marked_is_one_like_a_crash() -> None:
    node = Node(config=MANY)
    node.files.failing = lambda call, path: call == "write" and "clean-stop" in path
    stopped(node, 2)
    assert "clean" in node.storage.last_error
    node.files.failing = lambda call, path: False
    again = after_power_loss(node, 2)
    assert not again.storage.was_clean
