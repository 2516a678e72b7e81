"""What a log keeps in memory: frames for as long as they are cached or wait for the disk, and not longer."""

import weakref

from barnabas_raftlog.log.storage import StorageConfig

from .frames import data_frame
from .node import Node


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
