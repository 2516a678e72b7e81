"""A directory with forged terms is refused, and mended with all that was acknowledged."""

from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest
from raftlog.log.memory_files import CrashError, MemoryFiles
from raftlog.log.node import SMALL, Node, fill, group, replayed

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.recovery.forgery import TERMS_SKIPPED, TERMS_WITHOUT_ENTRY, mended_state
from barnabas_raftlog.log.recovery.startup import Started, start
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.raft.messages import INDEX_MAX, TERM_HONEST_MAX, TERM_MAX, HardState

FORGED = [4 + TERMS_WITHOUT_ENTRY + 1, 1 << 30, TERM_HONEST_MAX + 1, TERM_MAX, TERM_MAX + 1, 1 << 40, (1 << 63) - 1]
VOTE = HardState(9, 2)
ENDS: dict[str, Callable[[Node], None]] = {
    "stopped": Node.close,
    "killed": lambda node: node.files.kill(),
    "power lost": lambda node: node.files.lose_power(Random(1)),
}


def life(*, checkpoints: bool = False) -> tuple[Node, list[tuple[int, int, bytes]]]:
    """Return a node with two replicas and a vote, and the promises of the first one."""
    node = Node()
    log = node.log()
    other = node.log(2)
    fill(log, 5, term=4)
    fill(other, 2)
    node.storage.save_hard_state(group(2), HardState(1, 1))
    node.storage.save_hard_state(group(1), VOTE)
    node.work()
    if checkpoints:
        node.storage.checkpoint()
        node.work()
    return node, node.run(replayed(log))


def log_of(node: Node) -> ReplicaLog:
    return next(log for log in node.storage.logs if log.group == group(1))


def forge(node: Node, term: int, *, checkpoints: bool = False) -> None:
    """Act as a node did when it believed any term."""
    node.storage.save_hard_state(group(1), HardState(term, 3))
    node.work()
    if checkpoints:
        node.storage.checkpoint()
        node.work()


def refusal(files: MemoryFiles) -> str:
    files.locked.clear()
    with pytest.raises(StorageFailedError) as refused:
        Node(files)
    return str(refused.value)


def mend(files: MemoryFiles) -> Started:
    files.locked.clear()
    started = start(files, "data", SMALL, None, None, lambda: str(UUID(int=7)), mends=True)
    files.close(started.lock_fd)
    return started


def contents(files: MemoryFiles) -> dict[str, bytes | None]:
    return {name: None if inode is None else bytes(inode.data) for name, inode in files.names.items() if name != "data"}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("checkpoints", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("term", FORGED)
def test_a_forged_term_is_refused_and_mended(term: int, checkpoints: tuple[bool, bool], how: str) -> None:
    node, promised = life(checkpoints=checkpoints[0])
    forge(node, term, checkpoints=checkpoints[1])
    ENDS[how](node)
    before = contents(node.files)
    text = refusal(node.files)
    assert f"t-1 has term {term}, which no honest cluster reaches (1 groups have such)" in text
    assert "barnabas log mend --directory data" in text
    assert contents(node.files) == before, "a start that is refused changes nothing"
    assert mend(node.files).mended == (f"t-1 has term {term}",)
    again = Node(node.files)
    has_vote = not (checkpoints[1] or how == "stopped") and term > TERM_HONEST_MAX
    known = VOTE.term if has_vote else 4  # else only the log tells what was before
    assert again.storage.hard_state(group(1)) == HardState(known + TERMS_SKIPPED, None)
    assert again.storage.hard_state(group(2)) == HardState(1, 1)
    log = again.log()
    assert again.run(replayed(log)) == promised
    assert not log.is_uncertain
    fill(log, 1, term=known + TERMS_SKIPPED + 1)
    again.work()
    assert log.durable_index == 6
    assert mend(again.killed().files).mended == ()


@pytest.mark.parametrize("how", ENDS)
def test_an_honest_directory_is_left_as_it_is(how: str) -> None:
    node, _ = life()
    high = HardState(4 + TERMS_WITHOUT_ENTRY, 3), HardState(TERM_HONEST_MAX, 3)
    node.log(3)  # Its group may be far ahead of an empty log, and so may one that has no log here.
    for number, state in ((1, high[0]), (3, high[1]), (4, high[1])):
        node.storage.save_hard_state(group(number), state)
    node.work()
    ENDS[how](node)
    before = contents(node.files)
    assert mend(node.files).mended == ()
    assert contents(node.files) == before
    storage = Node(node.files).storage
    assert [storage.hard_state(group(number)) for number in (1, 3, 4)] == [high[0], high[1], high[1]]


@pytest.mark.parametrize("how", ENDS)
def test_high_terms_in_which_somebody_led_are_not_forged(how: str) -> None:
    node, _ = life()
    fill(log_of(node), 1, term=TERM_MAX)
    forge(node, TERM_MAX)
    ENDS[how](node)
    node.files.locked.clear()
    again = Node(node.files)
    assert again.storage.hard_state(group(1)) == HardState(TERM_MAX, 3)
    assert again.log().last_term == TERM_MAX


def test_a_vote_whose_log_has_gone_is_mended_too() -> None:
    node, _ = life()
    node.storage.delete_log(group(1), for_good=False)
    forge(node, 1 << 40)
    node.files.kill()
    assert f"group {group(1).hex()} has term" in refusal(node.files)
    assert mend(node.files).mended == (f"group {group(1).hex()} has term {1 << 40}",)
    again = Node(node.files)
    assert again.storage.hard_state(group(1)) == HardState(VOTE.term + TERMS_SKIPPED, None)
    assert again.log().is_blank


def test_what_a_forged_leader_had_truncated_may_be_missing() -> None:
    node, promised = life()
    forge(node, TERM_MAX)
    log_of(node).truncate_from(5)
    node.work()
    node.files.kill()
    assert mend(node.files).mended
    again = Node(node.files)
    log = again.log()
    assert again.run(replayed(log)) == promised[:4]
    assert log.is_uncertain
    assert not log.is_blank
    assert not again.log(2).is_uncertain


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("place", [(INDEX_MAX + 1, 4), (9, TERM_MAX + 1)])
def test_a_log_that_a_forged_snapshot_has_replaced_is_begun_anew(place: tuple[int, int], how: str) -> None:
    node, _ = life()
    log_of(node).install_snapshot(*place, 100)
    node.work()
    ENDS[how](node)
    assert "t-1 has a log that begins after entry {} of term {}".format(*place) in refusal(node.files)
    assert mend(node.files).mended == ("t-1 has a log that begins after entry {} of term {}".format(*place),)
    again = Node(node.files)
    log = again.log()
    assert (log.first_index, log.last_index) == (1, 0)
    assert log.is_blank
    assert again.storage.hard_state(group(1)) == VOTE
    assert again.log(2).last_index == 2


def test_a_mend_that_is_interrupted_is_begun_again() -> None:
    calls = 0
    while True:
        node, promised = life()
        forge(node, 1 << 40)
        node.files.kill()
        node.files.locked.clear()
        node.files.crash_in = calls
        try:
            mend(node.files)
            break
        except CrashError:
            node.files.lose_power(Random(calls))
            calls += 1
        mend(node.files)
        again = Node(node.files)
        assert again.storage.hard_state(group(1)).term in {VOTE.term + TERMS_SKIPPED, 4 + TERMS_SKIPPED}
        assert again.run(replayed(again.log())) == promised
    assert calls > 10


def test_only_a_directory_of_a_broker_is_mended() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    with pytest.raises(StorageFailedError, match="data is not the data directory of a broker"):
        mend(files)
    assert set(files.names) == {"data"}


def test_where_no_terms_are_left_the_last_one_is_taken_with_its_vote() -> None:
    assert mended_state(None, 7) == HardState(7 + TERMS_SKIPPED, None)
    assert mended_state(HardState(9, 2), 7) == HardState(9 + TERMS_SKIPPED, None)
    assert mended_state(HardState(1 << 30, 2), 7) == HardState(7 + TERMS_SKIPPED, None), "that one was forged, too"
    assert mended_state(HardState(7, 2), TERM_MAX - 3) == HardState(TERM_MAX, None)
    assert mended_state(HardState(TERM_MAX, 2), TERM_MAX) == HardState(TERM_MAX, 2)
