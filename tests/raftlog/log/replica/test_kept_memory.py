"""A log keeps frames in memory while they are cached or wait for the disk."""

import gc
import weakref
from typing import Any

import pytest
from raftlog.log.frames import data_frame
from raftlog.log.node import Node, fill

from barnabas_raftlog.log.segments import cold_reads
from barnabas_raftlog.log.segments.cold_reads import ColdReads
from barnabas_raftlog.log.segments.frame_walk import check_frames, count_frames
from barnabas_raftlog.log.storage import StorageConfig
from barnabas_raftlog.raft.messages import Buffer


class Frame(bytearray):
    """One whose end can be seen."""


def appended(node: Node, number: int) -> "weakref.ref[Frame]":
    frame = Frame(data_frame(2, 500))
    node.log(number).append_batch(1, frame)
    return weakref.ref(frame)


def test_a_log_at_rest_does_not_keep_what_it_wrote_last() -> None:
    node = Node(config=StorageConfig(tail_cache_bytes=1))
    frames = [appended(node, number) for number in range(1, 4)]
    assert all(frame() is not None for frame in frames)
    node.work()
    assert [frame() for frame in frames] == [None] * 3


def test_who_still_knows_a_deleted_log_does_not_keep_its_frames() -> None:
    node = Node()
    frame = appended(node, 1)
    node.work()
    assert frame() is not None, "it is cached"
    (log,) = node.storage.logs
    node.storage.delete_log(log.group)
    node.work()
    assert log.is_deleted
    assert frame() is None


def test_a_log_that_could_not_be_written_goes_with_its_last_reference() -> None:
    """The garbage collector of a broker hardly ever looks at what is old."""
    node = Node()
    gc.disable()
    try:
        log = node.log()
        fill(log, 3)
        node.files.failing = lambda what, path: what == "write" and path.endswith(".log")
        node.work()
        assert log.failed is not None
        node.storage.delete_log(log.group)
        node.work()
        node.failures.clear()
        gone = weakref.ref(log)
        del log
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("bytes_max", [1, 1_000, 4 * 561])
def test_who_reads_from_disk_keeps_little_more_than_what_he_was_given(bytes_max: int) -> None:
    node = Node(config=StorageConfig(tail_cache_bytes=1))
    log = node.log()
    fill(log, 9)
    node.work()
    frames = node.run(log.read_cold(0, log.log_end_offset, bytes_max))
    assert sum(map(len, frames)) == max(561, bytes_max // 561 * 561)
    kept: dict[int, int] = {}
    for frame in frames:
        whole: Any = memoryview(frame).obj
        kept[id(whole)] = len(whole)
    assert 3 * sum(kept.values()) <= 4 * sum(map(len, frames))


def test_a_large_read_is_not_done_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(config=StorageConfig(tail_cache_bytes=1))
    log = node.log()
    fill(log, 9)
    node.work()
    asked: list[bool] = []
    read = ColdReads.read

    def noted(self: ColdReads, *what: Any, blocking: bool) -> memoryview:
        asked.append(blocking)
        return read(self, *what, blocking=blocking)

    monkeypatch.setattr(ColdReads, "read", noted)
    for on_loop_max, is_on_loop in ((2_000, True), (1_000, False)):
        monkeypatch.setattr(cold_reads, "LOOP_BYTES_MAX", on_loop_max)
        asked.clear()
        assert node.run(log.read_cold(0, log.log_end_offset, 1_500))
        assert (asked[-1] is False) == is_on_loop


def test_many_small_frames_are_not_walked_by_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksums of as many as a fetch may ask for took 100 ms."""
    node = Node(config=StorageConfig(tail_cache_bytes=1))
    log = node.log()
    fill(log, 9, body_bytes=1)
    node.work()
    checked: list[int] = []

    def noted(runs: list[Buffer]) -> None:
        checked.append(sum(count_frames(memoryview(run)) for run in runs))
        check_frames(runs)

    asked = list[bool]()
    read = ColdReads.read

    def read_noted(self: ColdReads, *what: Any, blocking: bool) -> memoryview:
        asked.append(blocking)
        return read(self, *what, blocking=blocking)

    monkeypatch.setattr(ColdReads, "read", read_noted)
    monkeypatch.setattr(cold_reads, "check_frames", noted)
    for steps_max, is_on_loop in ((9, True), (8, False)):
        monkeypatch.setattr(cold_reads, "STEPS_ON_LOOP_MAX", steps_max)
        asked.clear()
        checked.clear()
        assert sum(map(len, node.run(log.read_cold(0, log.log_end_offset, 1 << 20)))) == log.size_bytes
        assert (asked[-1] is False) == is_on_loop
        assert checked == [9], "in a thread if not on the loop"
