"""A partition whose log starts later: refusals, waits, saved states and snapshots."""

from typing import Any

import pytest
from broker.wire_client import batch

from barnabas_broker.partition.log_starts import encode_start
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.producer_state import ANY_ID, ProducerTable
from barnabas_broker.partition.saved_state import SavedState, decode_replica_state, encode_replica_state
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.log.state_file import StateOrMaker, made
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import ControlKind, control_frame

from .test_partition import FakeLog, Waiter, append, lead, make, snapshot_of
from .test_saved_state import NO_TRANSACTIONS


class ShrinkingLog(FakeLog):
    """Notes what is saved and dropped, in order; every tenth offset begins a segment."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[object, ...]] = []
        self.saved: StateOrMaker = b""

    def has_segments_before(self, offset: int) -> bool:
        return offset >= 10

    def save_state(self, index: int, state: StateOrMaker) -> None:
        self.saved = state
        self.done.append(("saved", index, decode_replica_state(made(state))[0]))

    def drop_before(self, offset: int, committed_index: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        self.done.append(("dropped", offset, committed_index))

    def term_at(self, index: int) -> int:
        return 1

    def add_start(self, offset: int) -> Entry:
        frame = control_frame(self.log_end_offset, 1, ControlKind.PREFIX_TRUNCATION, encode_start(offset))
        entry = Entry(len(self.entries) + 1, 1, frame)
        self.entries.append(entry)
        return entry


def leader_with(batches: int) -> tuple[Partition, ShrinkingLog]:
    """Return a leader that has committed `batches` batches of five records, by producer 5."""
    log = ShrinkingLog()
    partition, _ = make(log)
    group: Any = partition.group
    group.propose_control = lambda kind, body: log.add_start(int.from_bytes(body, "big"))
    lead(partition)
    for number in range(batches):
        append(partition, count=5, producer_id=5, epoch=0, sequence=number * 5)
    partition.on_committed(batches)
    return partition, log


def test_the_start_moves_when_it_is_committed_and_waiters_hear_of_it_then() -> None:
    partition, log = leader_with(4)
    waiter = Waiter()
    assert partition.wait_for(partition.drop_before(7), waiter)
    assert (log.log_start_offset, waiter.outcome) == (0, None)
    partition.on_committed(5)
    assert (log.log_start_offset, waiter.outcome) == (7, "committed")
    assert log.done == [("dropped", 7, 5)], "no segment goes, so nothing need be saved"


def test_the_state_is_saved_before_segments_go() -> None:
    partition, log = leader_with(4)
    partition.drop_before(15)
    partition.on_committed(5)
    assert log.done == [("saved", 5, 15), ("dropped", 15, 5)]


def test_one_start_is_proposed_for_all_who_ask_for_as_much() -> None:
    partition, log = leader_with(4)
    index = partition.drop_before(15)
    assert partition.drop_before(12) == index
    assert partition.drop_before(16) == index + 1
    partition.on_committed(index)
    assert not partition.wait_for(partition.drop_before(12), Waiter()), "it is there already"
    assert len(log.entries) == index + 1


def test_only_a_leader_may_and_only_what_is_readable() -> None:
    partition, _ = leader_with(2)
    with pytest.raises(AssertionError):
        partition.drop_before(11)
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    with pytest.raises(NotLeaderError):
        partition.drop_before(5)


def test_a_start_that_is_truncated_was_never_there() -> None:
    partition, log = leader_with(4)
    index = partition.drop_before(15)
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    del log.entries[index - 1 :]
    partition.on_truncated(index)
    log.add(2, None)
    partition.on_appended(log.entries)
    partition.on_committed(index)
    assert log.log_start_offset == 0


def test_a_follower_is_sent_where_the_log_begins_and_what_is_known_of_the_committed_part() -> None:
    partition, log = leader_with(4)
    partition.drop_before(15)
    partition.on_committed(5)
    append(partition, count=5, producer_id=5, epoch=0, sequence=20)
    log.first_index = 4
    snapshot = partition.snapshot()
    assert snapshot is not None
    index, term, state = snapshot
    start, producers, _ = decode_replica_state(made(state))
    assert (index, term, start, producers.applied_index) == (3, 1, 15, 5)
    assert producers.batches(5)[-1].base_sequence == 15, "what is not committed is not told"
    assert partition.producers.batches(5)[-1].base_sequence == 20


def test_what_is_saved_is_as_of_the_call_whenever_it_is_encoded() -> None:
    partition, log = leader_with(4)
    append(partition, count=5, producer_id=5, epoch=0, sequence=20)
    partition.state.save(partition.log)
    for number in range(5, 30):
        append(partition, count=5, producer_id=number, epoch=0, sequence=25 if number == 5 else 0)
        partition.on_committed(number)
    partition.producers.forget_before(1 << 60)
    for _ in range(2):  # The first attempt may fail for want of room.
        _, producers, _ = decode_replica_state(made(log.saved))
        assert (producers.applied_index, list(producers.producer_ids())) == (4, [5])
        assert [one.base_sequence for one in producers.batches(5)] == [0, 5, 10, 15]


def test_nothing_is_encoded_by_whoever_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    partition, log = leader_with(4)
    monkeypatch.setattr(log, "save_state", lambda _index, state: setattr(log, "saved", state))
    partition.state.save(partition.log)
    assert callable(log.saved)
    snapshot = partition.snapshot()
    assert snapshot is not None
    assert callable(snapshot[2])


async def test_a_state_that_was_prepared_is_not_decoded_again_when_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = ProducerTable()
    table.append(5, 0, 15, 4, 5, 15, 0)
    state = encode_replica_state(15, table.image(), NO_TRANSACTIONS)
    partition, _ = make(ShrinkingLog())
    await partition.state.prepare(b"nothing that can be read")
    await partition.state.prepare(state)
    decoded = list[bytes]()

    def decode(data: bytes) -> SavedState:
        decoded.append(data)
        return decode_replica_state(data)

    monkeypatch.setattr("barnabas_broker.partition.replica_state.decode_replica_state", decode)
    partition.install(snapshot_of(3, memoryview(state)))
    assert (decoded, list(partition.producers.producer_ids())) == ([], [5])
    await partition.state.prepare(state)
    other = encode_replica_state(20, table.image(), NO_TRANSACTIONS)
    partition.install(snapshot_of(3, memoryview(other)))
    assert decoded == [other], "it is that of another snapshot"
    partition.install(snapshot_of(3, memoryview(state)))
    assert decoded == [other, state], "what was prepared counts once"


def test_what_a_snapshot_says_counts_when_the_log_is_there() -> None:
    table = ProducerTable()
    table.append(5, 0, 15, 4, 5, 15, 0)
    log = ShrinkingLog()
    partition, _ = make(log)
    partition.install(snapshot_of(3, encode_replica_state(15, table.image(), NO_TRANSACTIONS)))
    assert partition.producers.batches(5)
    assert partition.snapshot() is None, "it cannot say yet what holds where"
    partition.state.save(partition.log)
    for _ in range(5):
        log.add(1, bytearray(batch(5)))
    partition.on_appended(log.entries)
    partition.on_committed(4)
    assert log.done == []
    partition.on_committed(5)
    assert log.done == [("saved", 5, 15), ("dropped", 15, 5)]


def test_a_snapshot_of_another_version_costs_the_table_and_nothing_else() -> None:
    partition, _ = make(ShrinkingLog())
    partition.install(snapshot_of(3, b"\x93\x09"))
    assert (partition.producers.applied_index, partition.producers.forgotten_id_max) == (3, ANY_ID)


def test_a_start_beyond_what_is_left_of_the_log_takes_what_is_left() -> None:
    log = ShrinkingLog()
    partition, _ = make(log)
    partition.install(snapshot_of(3, encode_replica_state(90, ProducerTable().image(), NO_TRANSACTIONS)))
    for _ in range(4):
        log.add(1, bytearray(batch(5)))
    partition.on_appended(log.entries)
    partition.on_committed(4)
    assert log.log_start_offset == partition.high_watermark == 20
