"""EndTxn: a transaction ends once, the way its client said, and its client is told, however often it asks."""

import pytest

from barnabas_broker.coordinators.transactions.state_machine.messages import (
    V1,
    V2,
    Answer,
    Markers,
    TransactionSettings,
)
from barnabas_broker.coordinators.transactions.state_machine.producers import EPOCH_MAX, LAST_EPOCH, NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import A0, A1, B0, Desk

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
OUTCOMES = pytest.mark.parametrize("commit", [True, False])
MOVES = pytest.mark.parametrize("moves", [True, False])


def raised(producer: Producer, by: int = 1) -> Producer:
    return Producer(producer.producer_id, producer.epoch + by)


def last_of_an_id(desk: Desk, epoch: int = LAST_EPOCH) -> Producer:
    """Open a transaction at the last epoch of a producer id."""
    producer = Producer(desk.init().producer.producer_id, epoch)
    desk.transaction.saved = desk.saved._replace(producer=producer)
    assert desk.add(producer, A0) == NONE
    return producer


@OUTCOMES
@pytest.mark.parametrize("version", [V1, V2])
def test_an_outcome_is_decided_then_markers_are_owed_then_it_is_complete(commit: bool, version: int) -> None:
    desk = Desk(commits=False)
    desk.commits = True
    producer = desk.begun(A0, A1, B0, version=version)
    desk.commits = False
    desk.end(producer, commit=commit, version=version)
    assert desk.is_in(TransactionState.ONGOING)
    assert desk.saved.markers is None, "nothing leaves before it has committed"
    desk.transaction.committed()
    desk.commits = True
    markers = desk.transaction.markers
    assert markers is not None
    assert (markers.is_commit, markers.version) == (commit, version)
    assert markers.producer == (raised(producer) if version == V2 else producer)
    assert not desk.mark(A0)
    assert desk.transaction.unmarked == {A1, B0}
    assert not desk.mark(A1)
    assert desk.mark(B0)
    assert desk.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert not desk.saved.places


def test_t1_with_v1_a_late_end_ends_the_next_transaction() -> None:
    """What Jepsen found; nothing can be done about it but v2."""
    desk = Desk()
    producer = desk.begun(A0, version=V1)
    desk.ended(producer, commit=True, version=V1)
    desk.add(producer, A0, version=V1)
    assert desk.end(producer, commit=True, version=V1).code == NONE
    assert desk.state is TransactionState.PREPARE_COMMIT


@OUTCOMES
def test_t1_with_v2_a_late_end_is_fenced(commit: bool) -> None:
    desk = Desk()
    producer = desk.begun(A0)
    following = desk.ended(producer, commit=True)
    desk.add(following, A0)
    assert desk.end(producer, commit=commit).code == FENCED
    assert desk.state is TransactionState.ONGOING


@OUTCOMES
@MOVES
def test_t2_a_repeated_end_is_told_the_new_epoch(commit: bool, moves: bool) -> None:
    desk = Desk()
    producer = desk.begun(A0)
    desk.ended(producer, commit=commit)
    if moves:
        desk.move()
    assert desk.end(producer, commit=commit) == Answer(NONE, raised(producer))
    assert desk.end(producer, commit=not commit).code == INVALID
    assert desk.end(producer, commit=commit) == Answer(NONE, raised(producer))


@OUTCOMES
def test_t2_of_the_present_epoch_it_is_about_the_next_transaction(commit: bool) -> None:
    desk = Desk()
    following = desk.ended(desk.begun(A0), commit=commit)
    assert desk.end(following, commit=True).code == INVALID
    assert desk.end(following, commit=False) == Answer(NONE, raised(following))
    assert desk.state is TransactionState.PREPARE_ABORT
    markers = desk.transaction.markers
    assert markers is not None
    assert not markers.places
    assert desk.mark(), "without partitions it is complete at once"
    assert desk.saved.owner == raised(following)


def test_t2_before_the_first_transaction_an_abort_is_legal_and_a_commit_is_not() -> None:
    desk = Desk()
    first = desk.init().producer
    assert desk.end(first, commit=True).code == INVALID
    assert desk.end(first, commit=False) == Answer(NONE, raised(first))
    assert desk.saved.started_ms == desk.now_ms


@OUTCOMES
def test_t2_a_repetition_of_an_epoch_that_was_given_by_init_producer_id_is_fenced(commit: bool) -> None:
    desk = Desk()
    first = desk.init().producer
    desk.init(first)
    assert desk.end(first, commit=commit).code == FENCED


@OUTCOMES
@MOVES
def test_t3_while_markers_are_on_their_way(commit: bool, moves: bool) -> None:
    desk = Desk()
    producer = desk.begun(A0)
    desk.end(producer, commit=commit)
    if moves:
        desk.move()
    assert desk.end(producer, commit=commit).code == CONCURRENT
    assert desk.end(producer, commit=not commit).code == INVALID
    for wrong in (2, 3, 100):
        assert desk.end(raised(producer, wrong), commit=commit).code == FENCED
    assert desk.end(Producer(7, 0), commit=commit).code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert desk.state.is_prepared


@OUTCOMES
def test_t3_an_older_epoch_is_fenced_while_markers_are_on_their_way(commit: bool) -> None:
    desk = Desk()
    older = desk.init().producer
    producer = desk.begun(A0)
    desk.end(producer, commit=commit)
    assert desk.end(older, commit=commit).code == FENCED


@pytest.mark.parametrize("epoch", [0, LAST_EPOCH])
def test_t3_a_client_that_was_told_its_new_epoch_may_come_before_the_markers_are_written(epoch: int) -> None:
    desk = Desk()
    producer = last_of_an_id(desk, epoch)
    told = desk.end(producer, commit=True).producer
    assert desk.add(told, B0) == desk.verify(told, B0) == CONCURRENT
    assert desk.end(told, commit=False).code == CONCURRENT
    assert desk.init(told).code == CONCURRENT
    desk.mark()
    assert desk.add(told, B0) == NONE


def test_t3_a_transition_under_way_is_looked_at_before_the_producer() -> None:
    """The client may show already what it is about to be told."""
    desk = Desk()
    producer = last_of_an_id(desk)
    desk.commits = False
    told = desk.end(producer, commit=True).producer
    for shown in (producer, told, Producer(7, 7)):
        assert desk.end(shown, commit=True).code == CONCURRENT
        assert desk.add(shown, A0) == CONCURRENT
        assert desk.init(shown).code == CONCURRENT
        assert desk.verify(shown, A0) == CONCURRENT
    assert desk.init(timeout_ms=0).code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@OUTCOMES
@MOVES
def test_t4_at_the_last_epoch_an_end_goes_on_to_a_new_producer_id(commit: bool, moves: bool) -> None:
    desk = Desk()
    producer = last_of_an_id(desk)
    answer = desk.end(producer, commit=commit)
    assert answer.producer == Producer(101, 0)
    assert desk.saved.producer == Producer(producer.producer_id, EPOCH_MAX)
    if moves:
        desk.move()
    assert desk.end(producer, commit=commit).code == CONCURRENT
    assert desk.mark()
    if moves:
        desk.move()
    assert desk.end(producer, commit=commit) == Answer(NONE, Producer(101, 0)), "32766 repeated, 0 is next"
    assert desk.end(producer, commit=not commit).code == INVALID
    assert desk.init(producer).producer == Producer(101, 0)


def test_t4_the_epoch_before_the_last_needs_no_new_id() -> None:
    desk = Desk()
    producer = last_of_an_id(desk, LAST_EPOCH - 1)
    assert desk.end(producer, commit=True).producer == Producer(producer.producer_id, LAST_EPOCH)


def test_t4_with_v1_the_last_epoch_is_used_for_ever() -> None:
    desk = Desk()
    producer = last_of_an_id(desk)
    for _ in range(3):
        desk.ended(producer, commit=True, version=V1)
        assert desk.add(producer, A0, version=V1) == NONE
    assert desk.saved.owner == producer


def test_t5_markers_of_v2_carry_the_raised_epoch_and_say_so() -> None:
    for version, by in ((V1, 0), (V2, 1)):
        desk = Desk()
        producer = desk.begun(A0, version=version)
        desk.end(producer, commit=True, version=version)
        desk.move()
        markers = desk.transaction.markers
        assert markers is not None
        assert (markers.producer, markers.version) == (raised(producer, by), version)


class TestAfterATimeout:
    """With v2 a transaction that has timed out looks as if its owner had aborted it, until another takes over."""

    @MOVES
    def test_with_v2_the_owner_hears_that_it_is_aborted(self, moves: bool) -> None:
        desk = Desk()
        producer = self._timed_out(desk, V2)
        for abort in (CONCURRENT, NONE):
            if moves:
                desk.move()
            assert desk.end(producer, commit=True).code == INVALID
            assert desk.end(producer, commit=False).code == abort
            if desk.state.is_prepared:
                desk.mark()
        assert desk.end(producer, commit=False).producer == raised(producer), "it may go on, with the next epoch"

    @OUTCOMES
    def test_with_v2_the_owner_is_fenced_when_another_has_taken_over(self, commit: bool) -> None:
        desk = Desk()
        producer = self._timed_out(desk, V2)
        desk.mark()
        desk.init()
        assert desk.end(producer, commit=commit).code == FENCED

    @OUTCOMES
    @MOVES
    @pytest.mark.parametrize("version", [V1, V2])
    def test_with_v1_it_is_fenced_at_once(self, version: int, commit: bool, moves: bool) -> None:
        """`version`: of the coordinator."""
        desk = Desk(TransactionSettings(version=version))
        producer = self._timed_out(desk, V1)
        for _ in range(2):
            if moves:
                desk.move()
            assert desk.end(producer, commit=commit, version=V1).code == FENCED
            if desk.state.is_prepared:
                desk.mark()

    @staticmethod
    def _timed_out(desk: Desk, version: int) -> Producer:
        producer = desk.begun(A0, version=version)
        desk.now_ms += desk.saved.timeout_ms
        assert desk.time_out()
        return producer


class TestVersion1:
    @OUTCOMES
    @MOVES
    def test_each_state_and_outcome(self, commit: bool, moves: bool) -> None:
        desk = Desk()
        producer = desk.init().producer
        assert desk.end(producer, commit=commit, version=V1) == Answer(INVALID)
        desk.add(producer, A0, version=V1)
        assert desk.end(producer, commit=commit, version=V1) == Answer(NONE, NOBODY)
        if moves:
            desk.move()
        assert desk.end(producer, commit=commit, version=V1).code == CONCURRENT
        assert desk.end(producer, commit=not commit, version=V1).code == INVALID
        assert desk.add(producer, A0, version=V1) == CONCURRENT
        desk.mark()
        if moves:
            desk.move()
        assert desk.end(producer, commit=commit, version=V1) == Answer(NONE, NOBODY)
        assert desk.end(producer, commit=not commit, version=V1).code == INVALID
        assert desk.add(producer, A0, version=V1) == NONE

    @pytest.mark.parametrize("by", [-1, 1])
    def test_only_the_present_epoch_may_end_anything(self, by: int) -> None:
        desk = Desk()
        desk.init()
        producer = desk.begun(A0, version=V1)
        assert desk.end(raised(producer, by), commit=True, version=V1).code == FENCED
        desk.end(producer, commit=True, version=V1)
        assert desk.end(raised(producer, by), commit=True, version=V1).code == FENCED

    def test_a_fenced_client_of_v2_is_not_told_the_epoch_of_one_of_v1(self) -> None:
        desk = Desk()
        fenced = desk.init().producer
        desk.ended(desk.begun(A0, version=V1), commit=True, version=V1)
        assert desk.end(fenced, commit=True).code == FENCED


@pytest.mark.parametrize("version", [V1, V2])
def test_an_unknown_transactional_id_has_nothing_to_end(version: int) -> None:
    desk = Desk()
    assert desk.end(Producer(1, 0), commit=True, version=version).code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert desk.transaction.is_forgotten


def test_a_refused_record_has_changed_nothing() -> None:
    desk = Desk()
    producer = desk.begun(A0)
    before = desk.saved
    desk.commits = False
    for _ in range(3):
        desk.end(producer, commit=True)
        desk.transaction.refused()
        assert desk.saved is before
        desk.init()
        desk.transaction.refused()
        assert desk.saved is before
    desk.commits = True
    assert desk.end(producer, commit=True).producer == raised(producer)


class TestTime:
    @pytest.mark.parametrize(("level", "version"), [(0, V1), (1, V1), (2, V2)])
    def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
        self, level: int, version: int
    ) -> None:
        desk = Desk(TransactionSettings(version=level))
        producer = desk.begun(A0, version=version, timeout_ms=5_000)
        desk.now_ms += 3_000
        assert desk.add(producer, B0, version=version) == NONE
        desk.now_ms += 1_999
        assert not desk.time_out()
        assert desk.transaction.times_out_at_ms == desk.now_ms + 1
        desk.now_ms += 1
        assert desk.time_out()
        assert desk.saved.times_out_at_ms is None
        markers = desk.transaction.markers
        assert markers is not None
        assert markers == Markers(raised(producer), False, version, frozenset({A0, B0}))
        assert not desk.time_out()
        assert desk.mark()
        assert desk.saved.owner == raised(producer)
        refused = {FENCED} if version == V1 else {INVALID}
        assert desk.end(producer, commit=True, version=version).code in refused

    def test_with_v2_a_producer_that_has_timed_out_can_abort_and_go_on(self) -> None:
        desk = Desk()
        producer = desk.begun(A0, timeout_ms=5_000)
        desk.now_ms += 5_000
        assert desk.time_out()
        desk.mark()
        assert desk.end(producer, commit=False) == Answer(NONE, raised(producer))

    def test_at_the_last_epoch_a_timeout_goes_on_to_a_new_producer_id(self) -> None:
        desk = Desk()
        last_of_an_id(desk)
        desk.now_ms += 1 << 30
        assert desk.time_out()
        desk.mark()
        assert desk.saved.owner == Producer(101, 0)

    def test_while_something_is_under_way_nothing_times_out_or_expires(self) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        desk.commits = False
        desk.end(producer, commit=True)
        desk.now_ms += 1 << 40
        assert not desk.time_out()
        assert not desk.expire()

    def test_an_id_that_is_not_used_expires(self) -> None:
        desk = Desk(TransactionSettings(expiration_ms=1_000))
        following = desk.ended(desk.begun(A0), commit=True)
        desk.now_ms += 999
        assert not desk.expire()
        desk.now_ms += 1
        assert desk.expire()
        assert desk.transaction.is_forgotten
        assert desk.steps[-1].saved is None
        assert desk.add(following, A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert desk.init(following).producer == Producer(101, 0)

    @pytest.mark.parametrize("decided", [True, False])
    def test_an_id_with_a_transaction_does_not_expire(self, decided: bool) -> None:
        desk = Desk(TransactionSettings(expiration_ms=1))
        producer = desk.begun(A0)
        if decided:
            desk.end(producer, commit=True)
        desk.now_ms += 1 << 40
        assert not desk.expire()

    def test_a_clock_that_goes_back_moves_no_time_of_a_record_back(self) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        at_ms = desk.saved.updated_ms
        desk.now_ms -= 10_000
        producer = desk.ended(producer, commit=True)
        desk.add(producer, A0)
        desk.end(producer, commit=False)
        assert desk.saved.updated_ms == at_ms


class TestAfterAMove:
    @OUTCOMES
    def test_what_was_decided_gives_all_of_its_markers_again(self, commit: bool) -> None:
        desk = Desk()
        desk.end(desk.begun(A0, B0), commit=commit)
        before = desk.transaction.markers
        desk.mark(A0)
        desk.move()
        assert desk.transaction.markers == before
        assert desk.mark()

    def test_t19_what_is_open_for_too_long_is_aborted(self) -> None:
        desk = Desk()
        desk.begun(A0, timeout_ms=5_000)
        began_ms = desk.now_ms
        desk.now_ms += 5_000
        desk.move()
        assert desk.transaction.times_out_at_ms == began_ms + 5_000
        assert desk.time_out()
        desk.move()
        assert desk.transaction.markers is not None
        assert desk.mark()
        assert desk.state is TransactionState.COMPLETE_ABORT

    def test_an_end_without_partitions_can_be_completed(self) -> None:
        desk = Desk()
        desk.end(desk.init().producer, commit=False)
        desk.move()
        assert desk.mark()

    def test_a_marker_of_an_earlier_transaction_counts_for_nothing(self) -> None:
        desk = Desk()
        first = desk.begun(A0)
        following = desk.ended(first, commit=True)
        desk.add(following, A0)
        desk.end(following, commit=False)
        desk.transaction.marked(following, A0)
        desk.transaction.marked(first, A0)
        assert desk.transaction.unmarked == {A0}
        desk.transaction.marked(raised(following), A0)
        assert desk.transaction.unmarked == frozenset()

    def test_a_marker_that_is_said_to_be_written_twice_or_to_no_such_partition_is_no_harm(self) -> None:
        desk = Desk()
        desk.end(desk.begun(A0, B0), commit=True)
        assert not desk.mark(A0)
        assert not desk.mark(A0, A1)
        assert desk.mark(B0)
        assert desk.transaction.complete(desk.now_ms) is None

    def test_an_end_that_was_refused_is_said_again(self) -> None:
        desk = Desk()
        desk.end(desk.begun(A0), commit=True)
        desk.commits = False
        desk.mark()
        assert desk.transaction.complete(desk.now_ms) is None
        desk.transaction.refused()
        desk.commits = True
        assert desk.mark()
