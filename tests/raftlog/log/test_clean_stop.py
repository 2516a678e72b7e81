"""A stop of a node with many replicas: one sync for all of them, and what becomes of it when that fails."""

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


def test_a_failed_call_for_all_condemns_only_the_replica_whose_own_sync_fails() -> None:
    node = Node(config=MANY)
    node.files.failing = lambda call, path: call == "sync_file_system" or (call == "sync" and "t-2/" in path)
    stopped(node, 6)
    node.files.kill()
    again = Node(node.files, MANY)
    assert [again.log(number).failed is None for number in range(1, 7)] == [True, False, True, True, True, True]


def test_a_running_node_does_not_wait_for_what_others_write() -> None:
    node = Node(config=MANY)
    for number in range(1, 7):
        fill(node.log(number), 3)
    node.work()
    node.storage.checkpoint()
    node.work()
    assert "sync_file_system" not in [call for call, _ in node.files.calls]


def test_a_stop_that_cannot_be_marked_is_one_like_a_crash() -> None:
    node = Node(config=MANY)
    node.files.failing = lambda call, path: call == "write" and "clean-stop" in path
    stopped(node, 2)
    assert "clean" in node.storage.last_error
    node.files.failing = lambda call, path: False
    again = after_power_loss(node, 2)
    assert not again.storage.was_clean
