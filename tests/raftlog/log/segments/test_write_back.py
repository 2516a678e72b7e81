"""Segments go to the disk in pieces, early, and not all of them at once."""

import itertools
from random import Random

from msgspec.structs import replace
from raftlog.log.memory_files import MemoryFiles
from raftlog.log.node import ROOMY, Node, fill

from barnabas_raftlog.log.segments.operations import WRITE_BACK_BYTES, write_back_range
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.segments.write_queue import NOTHING_STORED


def pieces_of(segment: Segment, growths: list[int]) -> list[tuple[int, int]]:
    found = []
    size = 0
    for growth in growths:
        begin, stop = write_back_range(segment, size, size + growth)
        size += growth
        if begin < stop:
            found.append((begin, stop))
    return found


def test_all_but_the_last_piece_is_pushed_once() -> None:
    chance = Random(1)
    for number in range(100):
        growths = [chance.choice((100, 1 << 20, 3 << 20)) + chance.randrange(1_000) for _ in range(200)]
        pieces = pieces_of(Segment("a", number, number), growths)
        assert pieces[0][0] == 0
        assert all(stop == begin for (_, stop), (begin, _) in itertools.pairwise(pieces))
        assert 0 <= sum(growths) - pieces[-1][1] < WRITE_BACK_BYTES


def test_files_that_grow_alike_are_not_pushed_together() -> None:
    segments = [Segment(directory, 0, 1) for directory in ("one/a", "one/b", "two/a", "two/b")]
    ends = [{stop for _, stop in pieces_of(segment, [1 << 10] * 10_000)} for segment in segments]
    assert all(ends)
    assert len(set().union(*ends)) == sum(map(len, ends))


class Pushed(MemoryFiles):
    """Notes what is pushed."""

    def __init__(self) -> None:
        super().__init__()
        self.pushed: list[tuple[str, int, int]] = []

    def start_write_back(self, fd: int, position: int, size_bytes: int) -> None:
        self.pushed.append((self._open[fd], position, size_bytes))


def test_a_log_pushes_what_is_written_from_the_loop_and_by_the_worker() -> None:
    files = Pushed()
    node = Node(files, replace(ROOMY, segment_bytes=3 * WRITE_BACK_BYTES, stored_bytes_min=NOTHING_STORED))
    log = node.log()
    for count in (1, 600, 1, 1_200, 1):  # Many at once are written by the worker.
        fill(log, count, body_bytes=20_000)
        node.work()
    ends: dict[str, int] = {}
    for path, position, size_bytes in files.pushed:
        assert position == ends.get(path, 0)
        ends[path] = position + size_bytes
    inodes = {path: inode for path, inode in files.names.items() if path.endswith(".log")}
    sizes = {path: len(inode.data) for path, inode in inodes.items() if inode is not None}
    assert len(sizes) > 1
    assert all(0 <= size - ends.get(path, 0) < WRITE_BACK_BYTES for path, size in sizes.items())
