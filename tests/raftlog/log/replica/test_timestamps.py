"""Offsets by timestamp against a look at every record, in memory and in files."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.log.frames import data_frame
from raftlog.log.node import Node, fill

from barnabas_raftlog.log.replica import appending, timestamps
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.timestamps import TIMESTAMP_MAX, Answer
from barnabas_raftlog.log.storage import StorageConfig
from barnabas_raftlog.records.bounded import BatchBounds, Found, find_by_time
from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.header import BatchHeader, ControlKind, parse_header

BATCHES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2500), st.integers(0, 40)), min_size=1, max_size=25)


async def answers(log: ReplicaLog, end_offset: int) -> tuple[list[Answer], Answer]:
    return [await log.offset_for_timestamp(asked, end_offset) for asked in range(0, 42, 3)], await log.max_timestamp(
        end_offset
    )


@given(BATCHES, st.floats(0, 1), st.booleans(), st.booleans(), st.floats(0, 1.2))
@settings(max_examples=80, deadline=None)
def test_the_first_batch_at_a_timestamp_is_found(
    batches: list[tuple[int, int, int]], end_share: float, cold: bool, restart: bool, truncate_share: float
) -> None:
    node = Node()
    log = node.log()
    model: list[tuple[int, int, int]] = []  # index, base offset, timestamp of each data batch
    ends = [0]
    for records, size, timestamp in batches:
        if records:
            model.append((log.last_index + 1, log.log_end_offset, timestamp))
            log.append_batch(1, data_frame(records, size, timestamp))
            ends.append(log.log_end_offset)
        else:
            log.append_control(1, ControlKind.NO_OP)
    node.work()
    if truncate_share < 1:
        index = 1 + int(truncate_share * log.last_index)
        if index <= log.last_index:
            log.truncate_from(index)
            model = [item for item in model if item[0] < index]
            ends = [end for end in ends if end <= log.log_end_offset]
            node.work()
    if restart:
        node = node.killed()
        log = node.log()
    node.files.cold = cold
    end_offset = ends[int(end_share * (len(ends) - 1))]
    visible = [item for item in model if item[1] < end_offset]
    expected: list[Answer] = []
    for asked in range(0, 42, 3):
        late = [(offset, timestamp, 1) for _, offset, timestamp in visible if timestamp >= asked]
        expected.append(late[0] if late else None)
    largest = max(visible, key=lambda item: (item[2], -item[1]), default=None)
    found, found_largest = asyncio.run(answers(log, end_offset))
    assert found == expected
    assert found_largest == ((largest[1], largest[2], 1) if largest else None)


def test_a_start_inside_a_batch_hides_what_lies_before_it() -> None:
    node = Node()
    log = node.log()
    log.append_batch(1, build_batch([NewRecord(None, b"v", 1000 + i) for i in range(10)], leader_epoch=1))
    node.work()
    log.drop_before(4, 1)

    async def found(timestamp_ms: int) -> Answer:
        return await log.offset_for_timestamp(timestamp_ms, 10)

    for asked, expected in ((0, 4), (1003, 4), (1005, 5), (1010, None)):
        answer = asyncio.run(found(asked))
        assert answer == (None if expected is None else (expected, 1000 + expected, 1))


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=8),
    st.floats(0, 1),
    st.floats(0, 1),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_records_of_any_order_are_found_from_any_start(
    batches: list[list[int]], start_share: float, end_share: float, cold: bool
) -> None:
    node = Node()
    log = node.log()
    times = list[int]()
    ends = list[int]()
    for batch in batches:
        records = [NewRecord(None, bytes(300), 1000 + timestamp) for timestamp in batch]
        log.append_batch(1, build_batch(records, leader_epoch=1))
        times += [1000 + timestamp for timestamp in batch]
        ends.append(len(times))
    node.work()
    node.files.cold = cold
    start = round(start_share * (len(times) - 1))
    end = ends[int(end_share * (len(ends) - 1))]
    log.drop_before(start, log.last_index)
    visible = [(offset, times[offset], 1) for offset in range(start, end)]

    async def check() -> None:
        for asked in range(1000, 1011):
            expected = next((answer for answer in visible if answer[1] >= asked), None)
            assert await log.offset_for_timestamp(asked, end) == expected
        assert await log.max_timestamp(end) == max(visible, key=lambda answer: answer[1], default=None)

    asyncio.run(check())


def with_header(records: list[int], max_timestamp: int) -> bytearray:
    """Return a batch of records with these timestamps, whose header says something else."""
    frame = build_batch([NewRecord(None, b"v", timestamp) for timestamp in records], leader_epoch=1)
    write_header(frame, attributes=0, record_count=len(records), base_timestamp=records[0], max_timestamp=max_timestamp)
    return frame


def test_what_a_header_promises_is_answered_only_if_a_record_has_it() -> None:
    node = Node()
    log = node.log()
    log.append_batch(1, with_header([1_000, 1_002, 1_001], TIMESTAMP_MAX))
    log.append_batch(1, with_header([1_500], 1_500))
    node.work()
    assert asyncio.run(log.max_timestamp(4)) == (1, 1_002, 1)
    assert asyncio.run(log.offset_for_timestamp(1_002, 4)) == (1, 1_002, 1)
    assert asyncio.run(log.offset_for_timestamp(1_003, 4)) == (3, 1_500, 1)
    assert asyncio.run(log.offset_for_timestamp(1_501, 4)) is None
    log.append_batch(1, with_header([TIMESTAMP_MAX], TIMESTAMP_MAX))
    node.work()
    log.drop_before(3, 3)
    assert asyncio.run(log.max_timestamp(5, believed_ms=2_000)) == (4, TIMESTAMP_MAX, 1), "a record has it"


def test_a_batch_that_cannot_be_read_is_believed_only_so_far() -> None:
    node = Node()
    log = node.log()
    log.append_batch(1, data_frame(2, 50, 3_000))
    node.work()
    assert asyncio.run(log.max_timestamp(2, believed_ms=3_000)) == (0, 3_000, 1)
    assert asyncio.run(log.offset_for_timestamp(5, 2, believed_ms=3_000)) == (0, 3_000, 1)
    assert asyncio.run(log.max_timestamp(2, believed_ms=2_999)) == (0, -1, 1)
    assert asyncio.run(log.offset_for_timestamp(5, 2, believed_ms=2_999)) == (0, -1, 1)


def test_a_look_up_opens_a_bounded_number_of_batches_that_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    log = node.log()
    for _ in range(40):
        log.append_batch(1, with_header([1_000], 2_000))
    node.work()
    opened = list[int]()

    def counted(header: BatchHeader, frame: memoryview, bounds: BatchBounds, **asked: Any) -> Found:
        opened.append(header.base_offset)
        return find_by_time(header, frame, bounds, **asked)

    monkeypatch.setattr(timestamps, "find_by_time", counted)
    assert asyncio.run(log.offset_for_timestamp(1_001, 40)) == (timestamps.LIES_MAX - 1, 2_000, 1)
    assert opened == list(range(timestamps.LIES_MAX))


@pytest.mark.parametrize("bounds", [BatchBounds(3, 1 << 20), BatchBounds(1_000, 20)])
def test_a_batch_beyond_the_bounds_is_judged_by_its_header(
    monkeypatch: pytest.MonkeyPatch, bounds: BatchBounds
) -> None:
    node = Node()
    log = node.log()
    log.append_batch(1, with_header([1_000, 1_001, 1_002, 1_003], 1_003))
    node.work()
    assert asyncio.run(log.offset_for_timestamp(1_002, 4)) == (2, 1_002, 1)
    monkeypatch.setattr(timestamps, "BOUNDS", bounds)
    assert asyncio.run(log.offset_for_timestamp(1_002, 4)) == (0, 1_003, 1)
    assert asyncio.run(log.max_timestamp(4)) == (0, 1_003, 1)


def while_the_disk_works(log: ReplicaLog, act: Callable[[], None]) -> None:
    """Let `act` happen in every moment in which a lookup waits for the disk."""
    cold = log.shared.cold
    original = log.shared.cold.in_thread

    async def in_thread(job: Callable[[], Any]) -> Any:
        act()
        return await original(job)

    cold.in_thread = in_thread  # type: ignore[method-assign]


def test_what_leaves_memory_during_a_lookup_is_not_missed() -> None:
    node = Node()
    log = node.log()
    fill(log, 12, 500, timestamp_ms=1000)  # two records each, timestamps 1000 to 1011
    node.work()
    assert 1 < log.tail.first_index <= 9, "the batch that is looked for is in memory, others are not"
    node.files.cold = True
    pushed = list[int]()

    def push() -> None:
        if not pushed:
            pushed.append(log.last_index)
            fill(log, 12, 500, timestamp_ms=900)
            node.work()

    while_the_disk_works(log, push)
    assert asyncio.run(log.offset_for_timestamp(1008, 24)) == (16, 1008, 1)
    assert pushed
    assert log.tail.first_index > 9
    pushed.clear()
    fill(log, 3, 500, timestamp_ms=2000)  # the newest batch has the largest timestamp of all, beyond the end
    end = log.log_end_offset
    fill(log, 1, 500, timestamp_ms=3000)
    node.work()
    assert log.tail.holds_offset(end - 2)
    assert asyncio.run(log.max_timestamp(end)) == (end - 2, 2002, 1)
    assert pushed


def test_others_have_their_turn_while_many_batches_in_memory_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    log = node.log()
    count = 3 * timestamps.HEADERS_AT_ONCE
    fill(log, count, 1, timestamp_ms=1)
    looked_at = [0]
    longest = 0

    def counted(frame: Any) -> BatchHeader:
        looked_at[0] += 1
        return parse_header(frame)

    async def ask(question: Coroutine[Any, Any, Answer]) -> None:
        nonlocal longest
        task = asyncio.get_running_loop().create_task(question)
        looked_at[0] = before = 0
        while not task.done():
            await asyncio.sleep(0)
            longest = max(longest, looked_at[0] - before)
            before = looked_at[0]
        assert looked_at[0] >= count

    monkeypatch.setattr(timestamps, "parse_header", counted)
    asyncio.run(ask(log.max_timestamp(log.log_end_offset)))
    asyncio.run(ask(log.offset_for_timestamp(5_000, log.log_end_offset)))
    assert longest <= timestamps.HEADERS_AT_ONCE


@given(BATCHES, st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), min_size=1), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_answers_are_those_of_the_log_as_it_was_when_they_were_asked_for(
    batches: list[tuple[int, int, int]], pushes: list[tuple[int, int]], end_share: float
) -> None:
    node = Node()
    log = node.log()
    model = list[tuple[int, int]]()  # base offset and timestamp of each data batch

    def append(records: int, size: int, timestamp: int) -> None:
        if records:
            model.append((log.log_end_offset, timestamp))
            log.append_batch(1, data_frame(records, size, timestamp))
        else:
            log.append_control(1, ControlKind.NO_OP)

    def push() -> None:
        for count, timestamp in pushes[:1]:
            for _ in range(count):
                append(1, 900, timestamp)
            pushes.append(pushes.pop(0))
        node.work()

    for batch in batches:
        append(*batch)
    node.work()
    node.files.cold = True
    while_the_disk_works(log, push)
    for wanted in range(0, 42, 3):
        ends = [offset for offset, _ in model] + [log.log_end_offset]
        end_offset = ends[round(end_share * (len(ends) - 1))]
        visible = [(offset, timestamp) for offset, timestamp in model if offset < end_offset]
        first = next(((offset, timestamp, 1) for offset, timestamp in visible if timestamp >= wanted), None)
        largest = max(visible, key=lambda item: (item[1], -item[0]), default=None)
        assert asyncio.run(log.offset_for_timestamp(wanted, end_offset)) == first
        assert asyncio.run(log.max_timestamp(end_offset)) == (largest and (*largest, 1))


def test_what_the_indexes_name_and_no_file_has_yet_is_looked_for_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read behind the end of a file took the replica out of service."""
    config = StorageConfig(
        journal_file_bytes=1 << 20, journal_step_bytes=64 << 10, segment_bytes=1 << 20, tail_cache_bytes=4 << 10
    )
    node = Node(config=config)
    log = node.log()
    fill(log, 40)
    node.work()
    assert log.tail.first_index > 1, "the first batches are in the file alone"
    with monkeypatch.context() as patch:
        patch.setattr(appending, "write_inline", lambda *_: False)  # as while another write is under way
        fill(log, 40, timestamp_ms=2_000)
    assert log.tail.written_index == 40, "the others are in memory alone"
    end = log.log_end_offset
    assert asyncio.run(log.max_timestamp(end)) == (end - 2, 2_039, 1)
    assert asyncio.run(log.offset_for_timestamp(2_030, end)) == (80 + 2 * 30, 2_030, 1)
    assert asyncio.run(log.offset_for_timestamp(1_020, end)) == (2 * 20, 1_020, 1)
    assert log.failed is None


def test_a_lost_time_index_costs_a_longer_walk_and_no_record() -> None:
    config = StorageConfig(
        journal_file_bytes=1 << 20, journal_step_bytes=64 << 10, segment_bytes=64 << 10, tail_cache_bytes=4 << 10
    )
    node = Node(config=config)
    fill(node.log(), 150, 500)  # timestamps 1000 to 1149
    node.work()
    node.close()
    lost = [inode for name, inode in node.files.names.items() if name.endswith(".timeindex") and inode]
    assert lost
    for inode in lost:
        inode.truncate(0)
    log = Node(node.files, config=config).log()
    assert asyncio.run(log.offset_for_timestamp(1003, 300)) == (6, 1003, 1)
    assert asyncio.run(log.max_timestamp(200)) == (198, 1099, 1)
