"""The state beside a log when it is opened: saved, replayed, ahead, or lost."""

from collections.abc import AsyncIterator

from broker.wire_client import batch

from barnabas_broker.partition.log_starts import encode_start
from barnabas_broker.partition.producer_state import ANY_ID, ProducerTable
from barnabas_broker.partition.replica_state import ReplicaState, load_replica_state
from barnabas_broker.partition.saved_state import decode_replica_state, encode_replica_state
from barnabas_broker.partition.transactions import TransactionTable
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import TRANSACTIONAL, ControlKind, control_frame, next_offset, stamp
from barnabas_raftlog.records.markers import EndMarker, marker_batch

from .test_saved_state import NO_TRANSACTIONS


class Log:
    """Entries from `first_index` on: one batch of producer 5 each, or where `starts` says so, a start."""

    def __init__(self, first_index: int, count: int, starts: dict[int, int] | None = None) -> None:
        self.first_index = first_index
        self.log_end_offset = 1  # not empty
        self.size_bytes = 0
        self.entries: list[Entry] = []
        self.saved: tuple[int, bytes] | None = None
        offset = first_index - 1
        for index in range(first_index, first_index + count):
            if starts and index in starts:
                frame = control_frame(offset, 1, ControlKind.PREFIX_TRUNCATION, encode_start(starts[index]))
            else:
                made = bytearray(batch(producer_id=5, epoch=0, sequence=offset))
                stamp(made, offset, 1)
                frame = bytes(made)
            self.entries.append(Entry(index, 1, frame))
            offset = next_offset(frame)

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.entries) - 1

    async def replay(self, from_index: int) -> AsyncIterator[Entry]:
        for entry in self.entries:
            if entry.index >= from_index:
                yield entry

    def load_state(self) -> tuple[int, bytes] | None:
        return self.saved


async def load(log: Log) -> ReplicaState:
    return await load_replica_state(log, 1_000)


def table_as_of(index: int) -> ProducerTable:
    table = ProducerTable()
    for entry in range(1, index + 1):
        table.append(5, 0, entry - 1, 0, entry, entry - 1, 1_000)
    table.commit_index = index
    return table


async def test_a_whole_log_says_everything() -> None:
    state = await load(Log(1, 6, {4: 2}))
    assert (state.producers.applied_index, state.producers.forgotten_id_max, state.saved_index) == (6, -1, 0)
    assert state.starts.offset == 0, "nobody knows yet that it is committed"
    assert state.starts.commit(4)
    assert state.starts.offset == 2


async def test_what_was_saved_counts_for_what_was_deleted() -> None:
    log = Log(11, 5)
    log.saved = (12, encode_replica_state(9, table_as_of(12).image(), NO_TRANSACTIONS))
    state = await load(log)
    assert (state.producers.applied_index, state.producers.forgotten_id_max, state.saved_index) == (15, -1, 12)
    assert state.starts.offset_as_of(12) == 9
    assert state.producers.batches(5)[-1].base_offset == 14


async def test_what_was_saved_may_be_ahead_of_the_log() -> None:
    log = Log(11, 3)
    log.saved = (13, encode_replica_state(12, table_as_of(20).image(), NO_TRANSACTIONS))
    state = await load(log)
    assert (state.producers.applied_index, state.producers.commit_index) == (20, 13)
    assert not state.starts.commit(19)
    assert state.starts.commit(20)
    # Others have something else there after all, as only a loss of power in page-cache mode can bring about.
    state.producers.truncate_from(14)
    assert state.producers.batches(5)[-1].log_index == 13


async def test_what_was_open_when_it_was_saved_is_saved_again_before_anything_is_committed() -> None:
    """A replica may be told to save, and to send a snapshot, before its leader tells it what is committed."""
    transactions = TransactionTable()
    transactions.begin(5, 0, 3, 2, 1_000)
    transactions.commit(12)
    log = Log(11, 2)
    log.saved = (12, encode_replica_state(9, table_as_of(12).image(), transactions.committed()))
    state = await load(log)
    assert not state.is_ahead
    _, _, again = decode_replica_state(state.encoder()())
    assert again.open_transactions() == transactions.open_transactions()
    assert len(again.open_transactions()) == 1


async def test_without_what_was_saved_a_shortened_log_admits_that_it_does_not_know_all_producers() -> None:
    older = encode_replica_state(1, table_as_of(3).image(), NO_TRANSACTIONS)
    for saved in (None, (10, b"from the future"), (3, older)):
        log = Log(11, 4)
        log.saved = saved
        state = await load(log)
        assert (state.producers.applied_index, state.producers.forgotten_id_max) == (14, ANY_ID)
        assert state.producers.commit_index == 10, "what is gone was committed"


def entries_of(*frames: bytes | bytearray) -> list[Entry]:
    entries: list[Entry] = []
    offset = 0
    for frame in frames:
        stored = bytearray(frame)
        stamp(stored, offset, 1)
        entries.append(Entry(len(entries) + 1, 1, bytes(stored)))
        offset = next_offset(stored)
    return entries


def age_of(state: ReplicaState, producer_id: int) -> int:
    return state.producers.batches(producer_id)[-1].timestamp_ms


async def test_a_transaction_is_as_old_as_the_log_says_however_late_it_is_read() -> None:
    written = {"epoch": 0, "sequence": 0, "attributes": TRANSACTIONAL}
    log = Log(1, 0)
    log.entries = entries_of(
        batch(producer_id=6, timestamp=400, **written),
        batch(producer_id=7, timestamp=5_000, **written),  # a clock that is ahead: not younger than it was seen
        batch(producer_id=8, timestamp=-1, **written),
        batch(producer_id=9, timestamp=300, epoch=0, sequence=0),
        batch(producer_id=10, timestamp=400, **written),
        marker_batch(EndMarker(10, 1, True, 1), 700),
    )
    state = await load(log)
    assert [age_of(state, key) for key in (6, 7, 8)] == [400, 1_000, 1_000]
    assert [one.timestamp_ms for one in state.transactions.open_transactions()] == [400, 1_000, 1_000]
    assert age_of(state, 10) == 700, "a marker has the time of the broker that led"
    assert age_of(state, 9) == 1_000, "one without transactions is not forgotten for the timestamps that it writes"
    later = ReplicaState()
    later.note(log.entries, 2_000)  # a follower that was away
    assert [age_of(later, key) for key in (6, 7, 9)] == [400, 2_000, 2_000]


async def test_a_producer_that_loads_old_records_in_a_transaction_is_remembered_as_long_as_others() -> None:
    state = ReplicaState()
    written = batch(producer_id=6, timestamp=1, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    state.note(entries_of(written, marker_batch(EndMarker(6, 1, True, 1), 990)), 1_000)
    state.commit(2)
    assert state.producers.forget_before(990) == 0
    assert state.producers.forget_before(991) == 1
