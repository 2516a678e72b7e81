"""A deleted replica leaves its vote behind, and the doubt about its entries."""

import pytest

from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.raft.messages import HardState

from .node import Node, fill, group

VOTE = HardState(7, 2)


def moved_away(node: Node) -> None:
    """Make a replica that votes and acknowledges, and delete it as one that has moved elsewhere."""
    log = node.log()
    node.storage.save_hard_state(log.group, VOTE)
    fill(log, 5)
    node.work()
    assert not log.is_uncertain
    node.storage.delete_log(log.group, for_good=False)
    node.work()


@pytest.mark.parametrize("checkpoint_after", ["nothing", "the deletion", "both"])
@pytest.mark.parametrize("kills", [False, True])
def test_a_replica_made_again_keeps_the_vote_and_is_uncertain(checkpoint_after: str, kills: bool) -> None:
    node = Node()
    moved_away(node)
    if checkpoint_after != "nothing":
        node.storage.checkpoint()
        node.work()
    if kills:
        node = node.killed()
    assert node.storage.left_behind() == [group(1)]
    log = node.log()
    assert log.is_uncertain
    assert log.is_blank
    node.work()
    if checkpoint_after == "both":
        node.storage.checkpoint()
        node.work()
    again = node.killed()
    assert again.storage.hard_state(group(1)) == VOTE
    kept = again.log()
    assert (kept.is_uncertain, kept.is_blank) == (True, True)
    assert again.storage.left_behind() == []


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_replica_made_again_that_was_made_certain_stays_so(has_checkpoint: bool) -> None:
    node = Node()
    moved_away(node)
    log = node.log()
    node.work()
    if has_checkpoint:
        node.storage.checkpoint()
        node.work()
    log.became_certain()
    fill(log, 1)
    node.work()
    kept = node.killed().log()
    assert (kept.is_uncertain, kept.is_blank) == (False, False)


def test_a_checkpoint_that_began_before_the_replica_was_made_again_loses_neither() -> None:
    node = Node()
    moved_away(node)
    node.storage.checkpoint()
    node.work()
    node.storage.checkpoint()
    node.log()
    node.work()
    again = node.killed()
    assert again.storage.hard_state(group(1)) == VOTE
    assert again.log().is_uncertain


def test_a_new_replica_is_not_taken_for_one_that_came_back() -> None:
    """That holds also if a checkpoint that is being made meanwhile knows its vote."""
    node = Node()
    node.log(2)
    node.work()
    node.storage.checkpoint()
    log = node.log()
    node.storage.save_hard_state(log.group, VOTE)
    node.work()
    again = node.killed()
    assert again.storage.hard_state(group(1)) == VOTE
    assert not again.log().is_uncertain


def test_with_its_group_everything_is_forgotten() -> None:
    node = Node()
    moved_away(node)
    node.storage.forget(group(1))
    node.storage.forget(group(2))
    node.work()
    for storage in (node.storage, node.killed().storage):
        assert storage.left_behind() == []
        assert storage.hard_state(group(1)) == HardState(0, None)


def test_a_hard_state_that_is_in_use_is_not_forgotten() -> None:
    node = Node()
    node.log()
    node.storage.save_hard_state(group(1), VOTE)
    node.storage.forget(group(1))
    assert node.storage.hard_state(group(1)) == VOTE


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_log_that_was_emptied_is_uncertain_until_it_is_certain_again(has_checkpoint: bool) -> None:
    node = Node()
    log = node.log()
    fill(log, 5)
    node.work()
    log.install_snapshot(0, 0, 0)
    node.work()
    if has_checkpoint:
        node.storage.checkpoint()
        node.work()
    again = node.killed()
    log = again.log()
    assert (log.last_index, log.is_uncertain, log.is_blank) == (0, True, True)
    log.became_certain()
    again.work()
    last = again.killed()
    for kept in (last.log(), last.killed().log()):
        assert (kept.is_uncertain, kept.is_blank) == (False, False)


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_deletion_that_a_crash_overtakes_is_carried_out_at_the_next_start(
    mode: Mode, is_made_again: bool, has_checkpoint: bool
) -> None:
    node = Node()
    log = node.log(mode=mode)
    node.storage.save_hard_state(log.group, VOTE)
    fill(log, 20)
    node.work()
    if has_checkpoint:
        node.storage.checkpoint()
        node.work()
    fill(log, 5)
    node.work()
    node.storage.delete_log(log.group, for_good=False)  # The journal does not hear of it.
    if is_made_again:
        fresh = node.log(mode=mode)
        node.write_worker.run()
        assert fresh.is_uncertain
    node = node.killed().killed()
    assert node.storage.hard_state(group(1)) == VOTE
    again = node.log(mode=mode)
    assert (again.failed, again.last_index, again.is_uncertain, again.is_blank) == (None, 0, True, True)
    fill(again, 3)
    node.work()
    node = node.killed()
    assert node.log(mode=mode).last_index == 3
    assert not [name for name in node.files.names if "deleted" in name or "removed" in name]


def test_the_files_of_a_deleted_replica_stay_until_the_journal_has_the_deletion() -> None:
    node = Node()
    log = node.log()
    fill(log, 20)
    node.work()
    node.storage.delete_log(log.group)
    node.write_worker.run()
    assert [name for name in node.files.names if name.endswith(".log")]
    node.work()
    assert not [name for name in node.files.names if "t-1" in name]


def test_a_deleted_directory_that_could_not_be_renamed_says_nothing_of_its_successor() -> None:
    """The name of the directory said that the deletion might not be in the journal, in a run that knew better."""
    node = Node()
    log = node.log()
    fill(log, 5)
    node.work()
    left = 1

    def fails(call: str, path: str) -> bool:
        nonlocal left
        left -= call == "rename" and path.endswith(".deleted")
        return left == 0 and call == "rename" and path.endswith(".deleted")

    node.files.failing = fails
    node.storage.delete_log(log.group)
    node.work()
    again = node.log()
    fill(again, 3)
    node.work()
    node.storage.checkpoint()
    node.work()
    fill(again, 3)
    node.work()
    assert left < 1, "it was tried, and tried again"
    again = node.killed().log()
    assert (again.failed, again.last_index, again.is_uncertain) == (None, 6, False)
