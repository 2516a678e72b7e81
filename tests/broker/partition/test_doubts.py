"""What is open in a partition in page-cache mode when a leadership begins is in doubt: its marker may be lost."""

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.partition.aborted_index import AbortedTransaction
from barnabas_broker.partition.partition import NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import CoordinatorFencedError
from barnabas_broker.partition.transactions import OpenTransaction
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.records.markers import EndMarker

from .test_partition import FakeLog, Host, append, lead, make
from .test_partition_transactions import PID, end, verified, write

AT = 3
"""The epoch of what is open."""


def mode_of(mode: str) -> Any:
    """Return settings of which nothing but this is asked."""
    return SimpleNamespace(flush_mode=mode)


class AskingHost(Host):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Partition, list[OpenTransaction]]] = []

    def on_doubts(self, partition: Partition) -> None:
        self.asked.append((partition, list(partition.doubts)))


def led_again(mode: str = "page-cache") -> tuple[Partition, AskingHost]:
    """Return a partition that another one has led between, with a transaction of two records open."""
    partition, _ = make(FakeLog())
    host = AskingHost()
    partition.host = host
    partition.settings = mode_of(mode)
    lead(partition)
    write(partition, 0, epoch=AT)
    partition.on_committed(1)
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    assert not host.asked
    lead(partition, term=3)
    return partition, host


def doubt_of(partition: Partition) -> OpenTransaction:
    (doubt,) = partition.doubts
    return doubt


def test_a_leader_asks_about_what_is_open_when_it_begins_and_only_in_page_cache_mode() -> None:
    partition, host = led_again()
    assert host.asked == [(partition, [doubt_of(partition)])]
    assert (doubt_of(partition).producer_id, doubt_of(partition).epoch) == (PID, AT)
    write(partition, 0, pid=9)
    assert len(partition.doubts) == 1, "what begins now is not in doubt"

    partition, host = led_again("fsync")
    assert not partition.doubts
    assert not host.asked


def test_it_goes_on_meanwhile_and_its_own_marker_ends_it() -> None:
    partition, _ = led_again()
    write(partition, 2, epoch=AT)
    partition.on_committed(end(partition, epoch=AT + 1))
    assert not partition.doubts
    assert partition.last_stable_offset == partition.high_watermark == 5


def test_its_producer_begins_nothing_else_and_no_other_marker_ends_it() -> None:
    """The next transaction would be ended with it, in the one way or the other."""
    partition, _ = led_again()
    with pytest.raises(NotEnoughReplicasError):
        write(partition, 0, epoch=AT + 1)
    with pytest.raises(NotEnoughReplicasError):
        write(partition, 2, epoch=AT + 1)  # turned away behind it, not called out of order
    for epoch in (AT + 2, AT + 7):
        with pytest.raises(NotEnoughReplicasError):
            end(partition, epoch=epoch)
    with pytest.raises(NotEnoughReplicasError):  # of version 1: the next process's, with its epoch
        partition.append_marker(EndMarker(PID, AT + 1, True, 1), bumps_epoch=False)
    assert len(partition.state.transactions.open_transactions()) == 1
    append(partition, count=1)  # Others are not held up.
    write(partition, 0, pid=9, epoch=AT + 1)


def test_an_answer_ends_it_as_it_has_ended_and_the_next_one_begins() -> None:
    for is_commit in (True, False):
        partition, _ = led_again()
        doubt = doubt_of(partition)
        assert partition.end_doubt(doubt, EndMarker(PID, AT + 1, is_commit, 4))
        assert not partition.end_doubt(doubt, EndMarker(PID, AT + 1, is_commit, 4)), "it was done"
        partition.on_committed(2)
        assert partition.last_stable_offset == partition.high_watermark == 3
        assert partition.aborted_between(0, 3) == ([] if is_commit else [AbortedTransaction(PID, 0, 2)])
        write(partition, 0, epoch=AT + 1)
        # The coordinator's own, which was under way, is the same one.
        with pytest.raises(Exception, match="has epoch"):
            end(partition, epoch=AT + 1, commit=is_commit, coordinator_epoch=4)


def test_version_1_goes_on_in_its_epoch_after_the_answer() -> None:
    partition, _ = led_again()
    assert partition.end_doubt(doubt_of(partition), EndMarker(PID, AT, True, 1))
    write(partition, 2, epoch=AT)
    assert len(partition.state.transactions.open_transactions()) == 1


def test_what_is_under_way_is_in_doubt_no_more() -> None:
    partition, _ = led_again()
    doubt = doubt_of(partition)
    partition.dismiss_doubt(doubt)
    assert not partition.doubts
    assert not partition.end_doubt(doubt, EndMarker(PID, AT + 1, True, 1))
    assert len(partition.state.transactions.open_transactions()) == 1


def test_what_no_coordinator_knows_is_aborted_in_the_name_of_the_last_one() -> None:
    partition, _ = make(FakeLog())
    partition.host = AskingHost()
    partition.settings = mode_of("page-cache")
    lead(partition)
    write(partition, 0, epoch=AT)
    end(partition, epoch=AT + 1, coordinator_epoch=6)
    write(partition, 0, epoch=AT + 1)
    lead(partition, term=2)
    assert partition.end_doubt(doubt_of(partition), EndMarker(PID, AT + 1, False, -1))
    assert partition.producers.batches(PID)[-1].coordinator_epoch == 6
    partition.on_committed(4)
    assert partition.aborted_between(0, 9) == [AbortedTransaction(PID, 3, 5)]


def test_an_answer_that_cannot_be_carried_out_leaves_it_in_doubt() -> None:
    partition, _ = led_again()
    doubt = doubt_of(partition)
    partition.min_insync = 4
    with pytest.raises(NotEnoughReplicasError):
        partition.end_doubt(doubt, EndMarker(PID, AT + 1, True, 1))
    partition.min_insync = 1
    assert doubt_of(partition) is doubt
    partition.on_leadership(4, 3, is_leader=False, confirmed=False)
    assert not partition.end_doubt(doubt, EndMarker(PID, AT + 1, True, 1)), "another one asks"
    with pytest.raises(NotLeaderError):
        partition.append_marker(EndMarker(PID, AT + 1, True, 1), bumps_epoch=True)


def test_a_replica_that_ends_doubts_nothing() -> None:
    partition, _ = led_again()
    doubt = doubt_of(partition)
    partition.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not partition.doubts
    assert not partition.end_doubt(doubt, EndMarker(PID, AT + 1, True, 1))


def test_an_answer_of_a_coordinator_that_has_a_successor_is_refused() -> None:
    partition, _ = make(FakeLog())
    partition.host = AskingHost()
    partition.settings = mode_of("page-cache")
    lead(partition)
    end(partition, epoch=AT, coordinator_epoch=6)
    write(partition, 0, epoch=AT, guard=verified(partition, epoch=AT))
    lead(partition, term=2)
    with pytest.raises(CoordinatorFencedError):
        partition.end_doubt(doubt_of(partition), EndMarker(PID, AT + 1, True, 5))
