"""The positions of a partition move as they should, and outdated records are thrown away."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_clients.consumer.decoder import FetchedRecords
from barnabas_clients.consumer.errors import NoOffsetError
from barnabas_clients.consumer.partition_queue import COMMITTED, PartitionQueue
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.records.builder import NewRecord, build_batch

PARTITION = TopicPartition("t", 0)
LOG_RECORDS = 200


def chunk(start_offset: int, count: int) -> FetchedRecords:
    """Return what a fetch at `start_offset` brings: whole batches of ten, the first of which may begin before it."""
    first = start_offset // 10 * 10
    data = b"".join(
        build_batch([NewRecord(None, b"v", 1)] * 10, base_offset=base, leader_epoch=base // 50)
        for base in range(first, min(first + count * 10, LOG_RECORDS), 10)
    )
    return FetchedRecords(PARTITION, memoryview(data), start_offset)


class Reading(RuleBasedStateMachine):
    """A queue and its reader, against a counter: from the last seek on every offset is handed out once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = PartitionQueue(PARTITION, 1_000)
        self.expected = 0
        self.in_hand: list[ConsumerRecord] = []

    @initialize(offset=st.integers(0, LOG_RECORDS))
    def begin(self, offset: int) -> None:
        self.queue.begin_by(COMMITTED)
        assert self.queue.position == -1
        self.seek(offset)

    @rule(offset=st.integers(0, LOG_RECORDS))
    def seek(self, offset: int) -> None:
        self.queue.begin_at(offset)
        self.expected = offset
        self.in_hand = []

    @precondition(lambda self: self.queue.fetch_offset < LOG_RECORDS and len(self.queue.chunks) < 3)
    @rule(batches=st.integers(1, 3))
    def fetched(self, batches: int) -> None:
        assert self.queue.add(chunk(self.queue.fetch_offset, batches), 1_000)

    @precondition(lambda self: self.queue.has_data)
    @rule(size=st.integers(1, 25), keep=st.integers(0, 25))
    def read(self, size: int, keep: int) -> None:
        """Take, and give the end of it back."""
        records, next_offset = self.queue.take(size)
        assert 0 < len(records) <= size
        handed, rest = records[: keep + 1], records[keep + 1 :]
        assert [record.offset for record in handed] == list(range(self.expected, self.expected + len(handed)))
        self.expected += len(handed)
        self.queue.give_back(rest)
        self.queue.hand_out(rest[0].offset if rest else next_offset, handed[-1].leader_epoch)

    @rule()
    def drop(self) -> None:
        self.queue.drop()

    @invariant()
    def positions_are_in_order(self) -> None:
        queue = self.queue
        assert queue.finished <= queue.position <= queue.fetch_offset
        if queue.finished >= 0:
            assert queue.position == self.expected


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=40, stateful_step_count=30)


def test_a_failure_is_met_behind_what_can_be_read() -> None:
    queue = PartitionQueue(PARTITION, 1_000)
    queue.begin_at(95)
    queue.add(chunk(95, 1), 1_000)
    queue.failure = NoOffsetError(PARTITION)
    records, next_offset = queue.take(100)
    assert [record.offset for record in records] == [95, 96, 97, 98, 99]
    queue.hand_out(next_offset, 0)
    for _ in range(2):
        with pytest.raises(NoOffsetError):
            queue.take(100)
    queue.begin_at(3)
    assert queue.failure is None


def test_a_batch_that_was_cut_off_is_asked_for_in_full() -> None:
    queue = PartitionQueue(PARTITION, 100)
    queue.begin_at(0)
    cut = build_batch([NewRecord(None, b"x" * 500, 1)])[:100]
    assert not queue.add(FetchedRecords(PARTITION, memoryview(bytes(cut)), 0), 100)
    assert queue.bytes_max == 200
    assert queue.fetch_offset == 0


def test_a_commit_names_the_epoch_of_the_record_before() -> None:
    queue = PartitionQueue(PARTITION, 1_000)
    queue.begin_at(50)
    queue.add(chunk(50, 1), 1_000)
    records, next_offset = queue.take(5)
    queue.hand_out(next_offset, records[-1].leader_epoch)
    assert queue.to_commit(queue.position) == (55, "", 1)
