"""The loop changes nothing under a thread that is about to read."""

from collections.abc import Callable
from typing import Any

import pytest
from raftlog.log.node import Node, fill, group, replayed

from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.segments.offset_index import OffsetIndex
from barnabas_raftlog.raft.messages import GroupId


class Unloading:
    """A read worker during whose jobs the loop has no memory for indexes, and unloads each that somebody looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_at_work = False
        before_index = OffsetIndex.before_index

        def looked_at(index: OffsetIndex, entry: int) -> Any:
            if self.is_at_work:
                index.unload()
            return before_index(index, entry)

        monkeypatch.setattr(OffsetIndex, "before_index", looked_at)

    def submit(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.is_at_work = True
        outcome = job()
        self.is_at_work = False
        done(outcome)

    def stop(self) -> None:
        """There is nothing to end."""


@pytest.fixture
def unloading(monkeypatch: pytest.MonkeyPatch) -> tuple[Node, ReplicaLog]:
    node = Node()
    log = node.log()
    fill(log, 60)
    node.work()
    node.storage.checkpoint()
    node.work()
    node.files.cold = True
    node.storage.shared.cold._worker = Unloading(monkeypatch)
    return node, log


def test_an_index_that_is_unloaded_while_entries_are_loaded_costs_nothing(unloading: tuple[Node, ReplicaLog]) -> None:
    node, log = unloading
    told: list[GroupId] = []
    log.on_loaded = told.append
    for index in range(1, 50, 7):
        found = log.entries(index, 1_000)
        while found is None:
            count = len(told)
            found = log.entries(index, 1_000)
            assert found is not None or len(told) > count
        assert found[0].index == index
    assert (told[0], log.failed, node.storage.shared.suspects) == (group(1), None, {})


def test_an_index_that_is_unloaded_during_a_replay_costs_nothing(unloading: tuple[Node, ReplicaLog]) -> None:
    node, log = unloading
    assert [index for index, _, _ in node.run(replayed(log))] == list(range(1, 61))
    assert log.failed is None
