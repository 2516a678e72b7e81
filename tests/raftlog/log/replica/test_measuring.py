"""Parts of a range against the log's own frames: they cover it, begin with batches, and have about the size wanted."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.log.frames import data_frame
from raftlog.log.node import Node

from barnabas_raftlog.log.replica.measuring import RangePart
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.segments.offset_index import INTERVAL_BYTES
from barnabas_raftlog.records.header import HEADER_BYTES, ControlKind

BATCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000)), min_size=1, max_size=40)
NO_LIMIT = 1 << 31
WHOLE = (1 << 63) - 1


def filled(node: Node, batches: list[tuple[int, int]]) -> tuple[ReplicaLog, list[tuple[int, int]]]:
    """Return a log, and (base offset, place) of each frame, places counted from the log's beginning."""
    log = node.log()
    frames = []
    place = 0
    for records, size in batches:
        frames.append((log.log_end_offset, place))
        if records:
            frame = data_frame(records, size)
            place += len(frame)
            log.append_batch(1, frame)
        else:
            before = log.size_bytes
            log.append_control(1, ControlKind.NO_OP)
            place += log.size_bytes - before
    node.work()
    return log, [*frames, (log.log_end_offset, place)]


def cut(log: ReplicaLog, start: int, end: int, target: int, parts_max: int = NO_LIMIT) -> list[RangePart]:
    return asyncio.run(log.range_parts(start, end, target, parts_max))


@given(
    BATCHES,
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 40_000) | st.just(WHOLE),
    st.integers(1, 30),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=70)
def test_parts_cover_the_range_and_begin_with_batches(
    batches: list[tuple[int, int]],
    start_share: float,
    end_share: float,
    target: int,
    parts_max: int,
    cold: bool,
    restart: bool,
) -> None:
    node = Node()
    log, frames = filled(node, batches)
    if restart:
        node = node.killed()
        log = node.log()
    node.files.cold = cold
    start, end = sorted(int(share * log.log_end_offset) for share in (start_share, end_share))
    parts = cut(log, start, end, target, parts_max)
    ends = [part.end_offset for part in parts]
    assert all(a < b for a, b in pairwise([start, *ends]))
    assert set(ends) <= {offset for offset, _ in frames} | {end}
    assert len(parts) <= parts_max
    assert all(part.size_bytes >= 0 for part in parts)
    assert bool(parts) == (start < end)
    if parts and len(parts) < parts_max:
        assert ends[-1] == end


@given(BATCHES, st.integers(1, 40_000))
@settings(max_examples=100)
def test_parts_of_a_whole_log_have_the_size_wanted_but_for_an_interval_and_a_batch(
    batches: list[tuple[int, int]], target: int
) -> None:
    log, frames = filled(Node(), batches)
    parts = cut(log, 0, log.log_end_offset, target)
    places = dict(reversed(frames))  # of frames with one offset the first
    last = dict(frames)
    assert not parts or places[log.log_end_offset] <= sum(part.size_bytes for part in parts) <= log.size_bytes
    largest = max(b - a for (_, a), (_, b) in pairwise(frames))
    slack = 2 * max(INTERVAL_BYTES, largest)
    assert all(part.size_bytes <= target + slack for part in parts)
    assert all(part.size_bytes >= target - slack for part in parts[:-1])
    position = 0
    for part in parts[:-1]:
        position += part.size_bytes
        assert places[part.end_offset] <= position <= last[part.end_offset]


def test_parts_of_many_small_batches_are_of_one_size() -> None:
    log, _ = filled(Node(), [(1, 1000)] * 300)
    sizes = [part.size_bytes for part in cut(log, 0, 300, -(-log.size_bytes // 10))]
    assert len(sizes) == 10
    assert max(sizes) - min(sizes) < 2 * (INTERVAL_BYTES + 1100)


def test_an_end_within_a_batch_is_interpolated() -> None:
    log, _ = filled(Node(), [(100, 10_000)] * 10)
    frame_bytes = HEADER_BYTES + 10_000
    (part,) = cut(log, 150, 425, WHOLE)
    assert part.end_offset == 425
    assert part.size_bytes == pytest.approx(2.75 * frame_bytes, abs=2)


def reopened(batches: list[tuple[int, int]]) -> tuple[Node, ReplicaLog]:
    """Return a log whose index files are complete, and none of whose rows are in memory."""
    node = Node()
    filled(node, batches)
    node.close()
    node = node.killed()
    log = node.log()
    assert sum(segment.index.missing for segment in log.segments) > 10
    return node, log


def test_of_cold_segments_only_rows_of_their_indexes_are_read() -> None:
    node, log = reopened([(1, 1000)] * 200)
    node.files.cold = True
    node.files.calls.clear()
    before = [segment.index.missing for segment in log.segments]
    parts = cut(log, 0, log.log_end_offset, 4_000)
    assert len(parts) > 40
    read = [path for call, path in node.files.calls if call == "read"]
    assert read
    assert all(path.endswith(".index") for path in read)
    assert [segment.index.missing for segment in log.segments] == before, "nothing was loaded for good"


@pytest.mark.parametrize("how", ["gone", "garbage", "failing"])
def test_without_rows_a_log_is_cut_where_segments_begin(how: str) -> None:
    node, log = reopened([(1, 1000)] * 200)
    for name in [name for name in node.files.names if name.endswith(".index")]:
        inode = node.files.names[name]
        assert inode is not None
        inode.data[:] = b"" if how == "gone" else b"\xfe" * len(inode.data)
    if how == "failing":
        node.files.failing = lambda call, path: path.endswith(".index")
    parts = cut(log, 0, log.log_end_offset, 1)
    assert {part.end_offset for part in parts[:-1]} == {segment.base_offset for segment in log.segments} - {0}
    assert sum(part.size_bytes for part in parts) == log.size_bytes


def test_a_start_that_moved_costs_nothing_but_the_old_places() -> None:
    log, _ = filled(Node(), [(1, 3000)] * 40)
    log.drop_before(20, 20)
    parts = cut(log, 20, 40, 9_000)
    assert parts[-1].end_offset == 40
    assert parts[0].end_offset > 20
