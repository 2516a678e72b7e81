"""A page-cache log is uncertain after a loss of power, until it has caught up."""

from random import Random

import pytest
from raftlog.log.memory_files import MemoryFiles
from raftlog.log.node import Node, fill

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.replica.state import Mode


def node_with(*modes: Mode, boot_id: str | None = "boot 1") -> Node:
    node = Node(boot_id=boot_id)
    for number, mode in enumerate(modes, 1):
        fill(node.log(number, mode), 5)
    node.work()
    return node


def uncertain(files: MemoryFiles, boot_id: str | None, *modes: Mode) -> list[bool]:
    again = Node(files, boot_id=boot_id)
    logs = [again.log(number, mode) for number, mode in enumerate(modes, 1)]
    assert not any(log.is_blank for log in logs), "changes of members are durable in both modes"
    return [log.is_uncertain for log in logs]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_power_loss_makes_page_cache_replicas_uncertain_and_no_others(has_checkpoint: bool) -> None:
    node = node_with("page-cache", "fsync")
    if has_checkpoint:
        node.storage.checkpoint()
        node.work()
    node.files.lose_power(Random(1))
    assert uncertain(node.files, "boot 2", "page-cache", "fsync") == [True, False]


def test_a_kill_makes_nobody_uncertain() -> None:
    node = node_with("page-cache")
    node.files.kill()
    assert uncertain(node.files, "boot 1", "page-cache") == [False]


def test_a_clean_stop_makes_nobody_uncertain_whatever_happens_then() -> None:
    node = node_with("page-cache")
    node.close()
    node.files.lose_power(Random(1))
    again = Node(node.files, boot_id="boot 2")
    assert not again.log(mode="page-cache").is_uncertain
    fill(again.log(2, "page-cache"), 1)
    again.work()
    again.files.kill()
    assert uncertain(again.files, "boot 2", "page-cache", "page-cache") == [False, False]


def test_where_the_system_names_no_boot_every_unclean_stop_is_one_that_may_have_lost_power() -> None:
    node = node_with("page-cache", boot_id="")
    node.files.kill()
    assert uncertain(node.files, "", "page-cache") == [True]


def test_it_stays_uncertain_over_restarts_until_it_has_caught_up() -> None:
    node = node_with("page-cache")
    node.files.lose_power(Random(1))
    for _ in range(3):
        node = Node(node.files, boot_id="boot 2")
        assert node.log(mode="page-cache").is_uncertain
        node.files.kill()
    node = Node(node.files, boot_id="boot 2")
    log = node.log(mode="page-cache")
    node.close()
    node = Node(node.files, boot_id="boot 2")
    log = node.log(mode="page-cache")
    assert log.is_uncertain, "a clean stop does not bring anything back"
    log.became_certain()
    node.storage.checkpoint()
    node.work()
    node.files.kill()
    assert uncertain(node.files, "boot 2", "page-cache") == [False]


def test_a_power_loss_during_the_start_after_a_power_loss_changes_nothing() -> None:
    node = node_with("page-cache")
    node.files.lose_power(Random(1))
    for seed in range(3):
        node = Node(node.files, boot_id=f"boot {seed + 2}")
        node.files.lose_power(Random(seed))
    assert uncertain(node.files, "boot 9", "page-cache") == [True]


def test_a_disk_that_fails_during_recovery_condemns_no_replica() -> None:
    node = node_with("fsync", boot_id=None)
    node.files.kill()
    node.files.failing = lambda call, path: call == "sync" and "replicas" in path
    with pytest.raises(StorageFailedError, match="cannot write"):
        Node(node.files)
    node.files.kill()
    log = Node(node.files).log()
    assert (log.failed, log.last_index) == (None, 5)
