"""AddPartitionsToTxn: a partition is in a transaction once the record that says so has committed."""

import pytest

from barnabas_broker.coordinators.transactions.state_machine.adding import PLACES_MAX
from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import A0, A1, B0, Desk

NONE = ErrorCode.NONE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def test_the_first_partition_opens_the_transaction_and_starts_its_time() -> None:
    desk = Desk()
    producer = desk.init().producer
    desk.now_ms += 10
    assert desk.add(producer, A0) == NONE
    began_ms = desk.now_ms
    desk.now_ms += 10
    assert desk.add(producer, A0, B0) == NONE
    assert desk.state is TransactionState.ONGOING
    assert (sorted(desk.saved.places), desk.saved.started_ms, desk.saved.updated_ms) == (
        [A0, B0],
        began_ms,
        desk.now_ms,
    )


@pytest.mark.parametrize("version", [V1, V2])
def test_each_transaction_begins_without_partitions_and_at_its_own_time(version: int) -> None:
    desk = Desk()
    following = desk.ended(desk.begun(A0, version=version), commit=True, version=version)
    desk.now_ms += 1_000
    assert desk.add(following, B0, version=version) == NONE
    assert (sorted(desk.saved.places), desk.saved.started_ms) == ([B0], desk.now_ms)


def test_partitions_that_are_in_already_cost_no_record() -> None:
    desk = Desk()
    producer = desk.begun(A0, A1)
    records = len(desk.steps)
    assert desk.add(producer, A1) == desk.add(producer, A0, A1) == desk.add(producer) == NONE
    assert len(desk.steps) == records


def test_to_add_nothing_opens_nothing() -> None:
    desk = Desk()
    assert desk.add(desk.init().producer) == NONE
    assert desk.state is TransactionState.EMPTY


def test_others_than_the_owner_add_nothing() -> None:
    desk = Desk()
    assert desk.add(Producer(1, 0), A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    old = desk.init().producer
    new = desk.init().producer
    assert desk.add(old, A0) == ErrorCode.PRODUCER_FENCED
    assert desk.add(Producer(new.producer_id, new.epoch + 1), A0) == ErrorCode.PRODUCER_FENCED
    assert desk.add(Producer(7, new.epoch), A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_of_too_many_partitions_is_to_be_aborted() -> None:
    desk = Desk()
    producer = desk.begun(A0)
    places = [("many", partition) for partition in range(PLACES_MAX)]
    assert desk.add(producer, *places) == ABORTABLE
    assert desk.saved.places == {A0}
    assert desk.add(producer, *places[1:]) == NONE
    assert len(desk.saved.places) == PLACES_MAX


class TestVerification:
    def test_t10_of_a_partition_that_is_not_in_the_transaction_it_is_abortable(self) -> None:
        desk = Desk()
        producer = desk.init().producer
        assert desk.verify(producer, A0) == ABORTABLE
        desk.add(producer, A0)
        assert desk.transaction.verify(producer, [A0, B0]) == {A0: NONE, B0: ABORTABLE}

    @pytest.mark.parametrize("commit", [True, False])
    def test_t10_nothing_is_in_a_transaction_that_has_ended(self, commit: bool) -> None:
        desk = Desk()
        producer = desk.begun(A0, version=V1)
        desk.end(producer, commit=commit, version=V1)
        assert desk.verify(producer, A0) == CONCURRENT
        desk.mark()
        assert desk.verify(producer, A0) == ABORTABLE

    def test_only_what_has_committed_counts(self) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        desk.commits = False
        desk.add(producer, B0)
        assert desk.transaction.verify(producer, [A0, B0]) == {A0: NONE, B0: ABORTABLE}

    def test_once_the_end_is_under_way_nothing_new_may_begin(self) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        desk.commits = False
        desk.init()
        assert desk.verify(producer, A0) == CONCURRENT

    def test_others_than_the_owner_are_refused(self) -> None:
        desk = Desk()
        assert desk.verify(Producer(1, 0), A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        old = desk.begun(A0)
        desk.init()
        desk.mark()
        desk.init()
        assert desk.verify(old, A0) == ErrorCode.PRODUCER_FENCED
        assert desk.verify(Producer(7, 0), A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
