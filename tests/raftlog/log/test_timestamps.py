"""Offsets by timestamp against the plain question to every record, from memory, from files, and after truncation."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.log.segment_log import ReplicaLog
from barnabas_raftlog.log.timestamps import Answer
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import ControlKind

from .frames import data_frame
from .node import Node

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
