"""A partition with transactions: what readers of committed records see, markers, and guards."""

from typing import Any, cast

import pytest
from broker.wire_client import batch

from barnabas_broker.partition import aborted_index
from barnabas_broker.partition.aborted_index import AbortedTransaction
from barnabas_broker.partition.partition import GAP_MS, NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerTable,
)
from barnabas_broker.partition.saved_state import encode_replica_state
from barnabas_broker.partition.transactions import TransactionTable
from barnabas_broker.partition.verifications import Verification
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, parse_header
from barnabas_raftlog.records.markers import EndMarker, marker_batch

from .test_partition import FakeLog, Waiter, append, lead, make, snapshot_of
from .test_partition_start import ShrinkingLog, leader_with

PID = 5


def leader(log: FakeLog | None = None) -> Partition:
    partition, _ = make(log or FakeLog())
    lead(partition)
    return partition


def verified(partition: Partition, *, epoch: int = 0, sequence: int = 0, pid: int = PID) -> Verification | None:
    return partition.verification(pid, epoch, sequence, bumps_epoch=True)


def write(
    partition: Partition,
    sequence: int,
    *,
    count: int = 2,
    epoch: int = 0,
    pid: int = PID,
    guard: Verification | None = None,
) -> tuple[int, int]:
    """Append a batch of a transaction; without a `guard` the coordinator has said yes just now."""
    fields = {"producer_id": pid, "epoch": epoch, "sequence": sequence, "attributes": TRANSACTIONAL}
    frame = bytearray(batch(count, **fields))
    guard = guard or verified(partition, epoch=epoch, sequence=sequence, pid=pid)
    return partition.append(parse_header(frame), frame, guard=guard)


def end(
    partition: Partition, *, epoch: int = 1, commit: bool = True, coordinator_epoch: int = 1, pid: int = PID
) -> int:
    marker = EndMarker(pid, epoch, commit, coordinator_epoch)
    return partition.append_marker(marker, bumps_epoch=epoch > 0)


def compacted(frame: bytes | bytearray, offset: int, sequence: int | None = None) -> bytes:
    """Return what compaction leaves of a batch of which no record is left; of a marker with another `sequence`."""
    header = parse_header(frame)
    emptied = batch(
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        sequence=header.base_sequence if sequence is None else sequence,
        attributes=header.attributes,
        last_offset_delta=header.last_offset_delta,
    )
    return offset.to_bytes(8, "big") + (49).to_bytes(4, "big") + emptied[12:57] + bytes(4)


# What is readable.


def test_readers_of_committed_records_wait_for_the_marker_to_commit() -> None:
    partition = leader()
    append(partition, count=3)
    write(partition, 0)
    partition.on_committed(2)
    seen = [(partition.high_watermark, partition.last_stable_offset)]
    index = end(partition)
    append(partition, count=4)
    seen.append((partition.high_watermark, partition.last_stable_offset))
    partition.on_committed(index)
    seen.append((partition.high_watermark, partition.last_stable_offset))
    partition.on_committed(index + 1)
    seen.append((partition.high_watermark, partition.last_stable_offset))
    assert seen == [(5, 3), (5, 3), (6, 6), (10, 10)]
    assert partition.aborted_between(0, 10) == []


def test_t16_transactions_of_others_hold_readers_up_in_the_order_in_which_they_began() -> None:
    partition = leader()
    for pid in (1, 2, 3):
        write(partition, 0, count=1, pid=pid)
    seen = []
    for pid in (2, 1, 3):
        partition.on_committed(end(partition, pid=pid, commit=pid != 2))
        seen.append(partition.last_stable_offset)
    assert seen == [0, 2, 6]
    assert partition.aborted_between(0, 6) == [AbortedTransaction(2, 1, 3)]


def test_t8_the_marker_of_a_transaction_without_records_lets_nobody_read_on() -> None:
    """It takes an offset in the log, and ends nothing here: neither its producer's nor anybody else's transaction."""
    partition = leader()
    write(partition, 0, count=2, pid=1)
    for pid in (2, 3):
        partition.on_committed(end(partition, pid=pid, commit=pid == 2))
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 0)
    partition.on_committed(end(partition, pid=1))
    assert partition.last_stable_offset == 5
    assert partition.aborted_between(0, 5) == [], "nothing to be left out"


def test_records_deleted_out_of_an_open_transaction_hold_nobody_up_and_it_ends_as_ever() -> None:
    for commit in (True, False):
        partition, log = leader_with(2)  # ten records
        write(partition, 0, pid=9)
        partition.on_committed(3)
        partition.on_committed(partition.drop_before(11))
        assert (log.log_start_offset, partition.last_stable_offset) == (11, 11)
        append(partition, count=5)
        partition.on_committed(5)
        assert (partition.high_watermark, partition.last_stable_offset) == (17, 11)
        partition.on_committed(end(partition, pid=9, commit=commit))
        assert partition.last_stable_offset == 18
        aborted = [] if commit else [AbortedTransaction(9, 10, 17)]
        assert partition.aborted_between(11, 18) == aborted, "it began before the log does"


def test_what_ended_at_the_start_of_the_log_or_behind_is_still_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_index, "BLOCK", 1)
    partition, _ = leader_with(2)
    for pid in (7, 8):
        write(partition, 0, pid=pid)
        partition.on_committed(end(partition, pid=pid, commit=False))
    partition.on_committed(partition.drop_before(13))
    assert partition.aborted_between(13, 16) == [AbortedTransaction(8, 13, 15)]
    assert len(partition.state.transactions.aborted) == 1
    partition.on_committed(partition.drop_before(15))
    assert partition.aborted_between(15, 16) == [AbortedTransaction(8, 13, 15)]


def test_a_witness_that_is_to_be_a_replica_forgets_the_transactions_too() -> None:
    log = FakeLog()
    partition = leader(log)
    append(partition)
    write(partition, 0)
    partition.on_committed(2)
    assert partition.last_stable_offset == 1
    log.entries.clear()
    partition.install(snapshot_of(0, b""))
    assert (partition.last_stable_offset, partition.state.transactions.open_transactions()) == (0, [])


# Compacted away, or never understood.


def follow(partition: Partition, log: FakeLog, *frames: bytes | bytearray) -> None:
    """Let a follower append these and hear that they are committed."""
    for frame in frames:
        partition.on_appended([log.add(1, bytearray(frame))])
    partition.on_committed(log.last_index)


def data_frame(sequence: int = 0, count: int = 2) -> bytes:
    return batch(count, producer_id=PID, epoch=0, sequence=sequence, attributes=TRANSACTIONAL)


def test_a_marker_that_compaction_left_a_header_of_commits_and_is_as_good_as_whole() -> None:
    log = FakeLog()
    partition, _ = make(log)
    marker = marker_batch(EndMarker(PID, 1, True, 7), 1_000)
    follow(partition, log, data_frame(), compacted(marker, 2, sequence=7))
    assert partition.last_stable_offset == 3
    assert partition.aborted_between(0, 3) == []
    with pytest.raises(InvalidProducerEpochError):
        partition.producers.check(PID, 0, 2, 0)
    with pytest.raises(CoordinatorFencedError):
        partition.producers.check_marker(EndMarker(PID, 2, True, 6), bumps_epoch=True)


def test_data_that_was_compacted_away_begins_no_transaction_and_its_producer_is_known() -> None:
    log = FakeLog()
    partition, _ = make(log)
    follow(partition, log, compacted(data_frame(), 0))
    assert (partition.last_stable_offset, partition.state.transactions.open_transactions()) == (2, [])
    assert partition.producers.check(PID, 0, 2, 0) is None


def test_a_control_batch_that_nobody_understands_ends_nothing() -> None:
    log = FakeLog()
    partition, _ = make(log)
    control = {"producer_id": PID, "epoch": 0, "attributes": TRANSACTIONAL | CONTROL}
    follow(partition, log, data_frame(), batch(1, **control), batch(2, **control))
    assert (partition.last_stable_offset, partition.producers.applied_index) == (0, 3)


# Markers.


def test_a_marker_that_is_sent_again_waits_for_the_one_that_is_there() -> None:
    partition = leader()
    write(partition, 0)
    index = end(partition)
    assert end(partition) == index
    waiter = Waiter()
    assert partition.wait_for(end(partition), waiter)
    partition.on_committed(index)
    assert waiter.outcome == "committed"
    assert not partition.wait_for(end(partition), Waiter()), "it is committed"
    assert partition.log.last_index == index


def test_a_marker_that_is_sent_again_after_a_change_of_leaders_is_found_in_the_log() -> None:
    """Its sender heard nothing; whoever leads now knows it from the log, or does not have it."""
    log = FakeLog()
    partition = leader(log)
    write(partition, 0)
    index = end(partition)
    for is_lost in (False, True):
        partition.on_leadership(2, 3, is_leader=False, confirmed=False)
        if is_lost:
            del log.entries[index - 1 :]
            partition.on_truncated(index)
        lead(partition, 4 + is_lost)
        assert end(partition) == index
        assert log.last_index == index


def test_a_marker_from_the_next_coordinator_is_appended_and_fences_the_one_before() -> None:
    partition = leader()
    write(partition, 0)
    index = end(partition, coordinator_epoch=4)
    assert end(partition, coordinator_epoch=5) == index + 1
    with pytest.raises(CoordinatorFencedError):
        end(partition, coordinator_epoch=4)
    partition.on_committed(index + 1)
    assert partition.last_stable_offset == 4


def test_t1_a_late_marker_of_the_transaction_before_does_not_end_the_next_one_with_version_2() -> None:
    partition = leader()
    write(partition, 0)
    end(partition, epoch=1, commit=True)
    write(partition, 0, epoch=1)
    for commit in (True, False):
        with pytest.raises(InvalidProducerEpochError):
            end(partition, epoch=1, commit=commit)
    assert len(partition.state.transactions.open_transactions()) == 1


def test_a_marker_is_appended_by_a_leader_with_enough_replicas_only() -> None:
    log = FakeLog()
    partition, _ = make(log, min_insync=3)
    marker = EndMarker(PID, 1, True, 1)
    with pytest.raises(NotLeaderError):
        partition.append_marker(marker, bumps_epoch=True)
    lead(partition)
    partition.isr = (1, 2)
    with pytest.raises(NotEnoughReplicasError):
        partition.append_marker(marker, bumps_epoch=True)

    def hand_on() -> None:
        raise NotLeaderError(2)

    partition.isr = (1, 2, 3)
    cast("Any", partition.group).check_may_propose = hand_on
    with pytest.raises(NotLeaderError):
        partition.append_marker(marker, bumps_epoch=True)
    assert log.last_index == 0


def test_a_witness_appends_no_batch_of_a_transaction_and_no_marker_and_gives_no_guard() -> None:
    """While its core leads the group says that nobody does."""
    partition, _ = make(FakeLog())
    cast("Any", partition.group).is_witness = True
    partition.on_leadership(1, None, is_leader=False, confirmed=False)
    for ask in (
        lambda: partition.append_marker(EndMarker(PID, 1, True, 1), bumps_epoch=True),
        lambda: partition.verification(PID, 0, 0, bumps_epoch=True),
        lambda: append(partition, producer_id=PID, epoch=0, sequence=0, attributes=TRANSACTIONAL),
    ):
        with pytest.raises(NotLeaderError):
            ask()


# Guards.


def test_a_batch_begins_a_transaction_only_with_the_guard_that_was_taken_before_the_coordinator_was_asked() -> None:
    partition = leader()
    with pytest.raises(InvalidTransactionStateError):
        append(partition, producer_id=PID, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    guard = verified(partition)
    assert guard is not None
    assert verified(partition) is guard, "those that are under way together share it"
    with pytest.raises(InvalidTransactionStateError):
        write(partition, 0, guard=Verification(1, 0, 0, begins=True))
    write(partition, 0, count=1, guard=guard)
    assert verified(partition, sequence=1) is None
    write(partition, 1, count=1, guard=guard)
    append(partition, producer_id=PID, epoch=0, sequence=2, attributes=TRANSACTIONAL)


def test_a_marker_that_comes_while_the_coordinator_is_asked_drops_the_guard() -> None:
    """The answer is about the transaction that has just ended (KIP-890)."""
    partition = leader()
    guard = verified(partition)
    partition.append_marker(EndMarker(PID, 0, False, 1), bumps_epoch=False)
    with pytest.raises(InvalidTransactionStateError):
        write(partition, 0, guard=guard)
    write(partition, 0)


@pytest.mark.parametrize("is_open", [True, False])
def test_with_version_2_the_marker_of_the_last_transaction_leaves_the_guard_of_the_next_one(is_open: bool) -> None:
    """Its producer has heard that it has ended, and begins the next one while the marker is on its way (KIP-890)."""
    partition = leader()
    if is_open:
        write(partition, 0, epoch=1)
    guard = verified(partition, epoch=2)
    end(partition, epoch=2)
    assert verified(partition, epoch=2) is guard
    write(partition, 0, epoch=2, guard=guard)


def test_the_marker_of_a_transaction_of_version_2_drops_its_guard() -> None:
    partition = leader()
    guard = verified(partition, epoch=1)
    end(partition, epoch=2, commit=False)
    assert not partition._verifications.holds(PID, 1, guard)
    assert len(partition._verifications) == 0


def test_with_version_1_a_marker_like_the_last_one_drops_the_guard_as_well() -> None:
    """It may be the end of the next transaction, which has written nothing here yet, and must not begin to any more."""
    for bumps_epoch in (False, True):
        partition = leader()
        epoch = 1 if bumps_epoch else 0
        index = partition.append_marker(EndMarker(PID, epoch, True, 1), bumps_epoch=bumps_epoch)
        guard = partition.verification(PID, epoch, 0, bumps_epoch=bumps_epoch)
        assert partition.append_marker(EndMarker(PID, epoch, True, 1), bumps_epoch=bumps_epoch) == index
        if bumps_epoch:
            write(partition, 0, epoch=epoch, guard=guard)  # Only a late repetition has that epoch.
        else:
            with pytest.raises(InvalidTransactionStateError):
                write(partition, 0, epoch=epoch, guard=guard)


def test_the_guard_of_a_term_that_is_over_is_that_of_another_leader() -> None:
    partition = leader()
    guard = verified(partition)
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    assert not len(partition._verifications)
    lead(partition, 3)
    with pytest.raises(NotLeaderError):
        write(partition, 0, guard=guard)
    assert verified(partition) is not guard


def test_a_transaction_of_an_older_epoch_says_nothing_of_the_next_one() -> None:
    partition = leader()
    write(partition, 0)
    assert verified(partition) is None
    guard = verified(partition, epoch=1)
    assert guard is not None
    with pytest.raises(InvalidTransactionStateError):
        append(partition, producer_id=PID, epoch=1, sequence=0, attributes=TRANSACTIONAL)


def test_a_transaction_that_is_truncated_has_to_be_verified_again() -> None:
    log = FakeLog()
    partition = leader(log)
    write(partition, 0)
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    log.entries.clear()
    partition.on_truncated(1)
    lead(partition, 4)
    assert verified(partition) is not None


def test_of_a_producer_that_was_forgotten_the_lowest_sequence_under_way_comes_first() -> None:
    partition, host = make(FakeLog())
    lead(partition)
    host.now += GAP_MS
    partition.producers.forgotten_id_max = 9
    guards = [partition.verification(PID, 0, sequence, bumps_epoch=False) for sequence in (58, 57)]
    with pytest.raises(OutOfOrderSequenceError):
        write(partition, 58, count=1, guard=guards[0])
    write(partition, 57, count=1, guard=guards[1])
    write(partition, 58, count=1, guard=guards[0])


def test_t7_of_a_producer_of_version_2_that_was_forgotten_sequence_0_comes_first() -> None:
    partition, host = make(FakeLog())
    lead(partition)
    host.now += GAP_MS
    partition.producers.forgotten_id_max = 9
    with pytest.raises(OutOfOrderSequenceError):
        write(partition, 57)
    write(partition, 0)


# Changes of leaders and restarts.


def test_t20_whoever_leads_next_takes_the_next_batch_of_the_log_that_is_left() -> None:
    """Called out of order, librdkafka gives its transaction up."""
    for lost_from, sequence, epoch in [(4, 0, 1), (3, 4, 0), (2, 2, 0), (1, 0, 0)]:
        log = FakeLog()
        partition = leader(log)
        write(partition, 0)
        write(partition, 2)
        end(partition)
        partition.on_leadership(2, 3, is_leader=False, confirmed=False)
        del log.entries[lost_from - 1 :]
        partition.on_truncated(lost_from)
        lead(partition, 4)
        assert write(partition, sequence, epoch=epoch)[1] == lost_from


def test_readers_wait_while_what_is_known_is_as_of_an_entry_that_is_not_known_to_be_here() -> None:
    """It has forgotten what was aborted below the start of the log that is about to be here."""
    producers = ProducerTable()
    producers.skip(6)
    producers.commit_index = 6
    log = FakeLog([1] * 8)
    partition, _ = make(log)
    partition.state.install(3, encode_replica_state(4, producers.image(), TransactionTable().committed()), 0)
    partition.on_appended(log.entries)
    seen = []
    for commit_index in (4, 5, 6, 7):
        partition.on_committed(commit_index)
        seen.append((log.log_start_offset, partition.last_stable_offset))
    assert seen == [(0, 0), (0, 0), (4, 6), (4, 7)]


def test_a_saved_state_that_covers_markers_lists_what_they_aborted_only_as_long_as_they_are_in_the_log() -> None:
    """Committed entries are truncated only after a loss of power; a row that stayed would hide what comes instead."""
    producers, transactions = ProducerTable(), TransactionTable()
    for index, offset in ((5, 20), (9, 26)):
        producers.append(PID, 0, 0, 0, index, offset, 0, True)
        transactions.begin(PID, 0, index, offset, 0)
        producers.append_marker(PID, 0, 1, False, index + 2, 0)
        transactions.end(PID, index + 2, offset + 3, is_commit=False)
    producers.commit_index = 20
    transactions.commit(20)
    log = ShrinkingLog()
    partition, _ = make(log)
    partition.install(snapshot_of(0, b""))
    partition.state.install(4, encode_replica_state(0, producers.image(), transactions.committed()), 0)
    assert len(partition.aborted_between(0, 100)) == 2
    log.offset_after = lambda index: {9: 27}[index]  # type: ignore[method-assign]  # nothing else is asked of it
    partition.on_truncated(10)
    assert partition.aborted_between(0, 100) == [AbortedTransaction(PID, 20, 23)]


def test_a_large_list_of_what_was_aborted_is_saved_less_often() -> None:
    partition = leader()
    state = partition.state
    for number in range(60_000):
        state.transactions.aborted.add(AbortedTransaction(1, 2 * number, 2 * number + 1), 2 * number + 2)
    assert [state.is_save_due(entries, 0) for entries in (2_000, 2_499, 2_500)] == [False, False, True]
    assert state.saved_index == 0


def test_a_waiter_for_a_marker_hears_when_leadership_ends() -> None:
    partition = leader()
    write(partition, 0)
    waiter = Waiter()
    partition.wait_for(end(partition), waiter)
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    assert waiter.outcome == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_marker_appended_here_is_skipped_when_the_driver_tells_of_it() -> None:
    log = FakeLog()
    partition = leader(log)
    write(partition, 0)
    end(partition)
    entries: list[Entry] = log.entries
    partition.on_appended(entries)
    assert len(partition.producers.batches(PID)) == 2
