"""InitProducerId: one producer owns a transactional id, and everybody before it is fenced."""

import pytest

from barnabas_broker.coordinators.transactions.state_machine.messages import (
    NO_TIMEOUT_MS,
    PRODUCER_ID_WANTED,
    V1,
    V2,
    InitRequest,
    TransactionSettings,
    Transition,
)
from barnabas_broker.coordinators.transactions.state_machine.producers import EPOCH_MAX, LAST_EPOCH, NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.state_machine.transaction import Transaction
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import A0, B0, DEFAULTS, TWO_PHASE, Desk

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


def at_epoch(desk: Desk, epoch: int) -> Producer:
    """Have the owner be one of that epoch, as after very many transactions."""
    producer = desk.init().producer._replace(epoch=epoch)
    desk.transaction.saved = desk.saved._replace(producer=producer)
    return producer


def test_a_new_id_gets_a_new_producer_at_epoch_0() -> None:
    desk = Desk()
    assert desk.init().producer == Producer(100, 0)
    assert desk.state is TransactionState.EMPTY


def test_without_a_producer_id_at_hand_nothing_is_decided() -> None:
    transaction = Transaction("t")
    assert transaction.initialize(InitRequest(1_000), DEFAULTS, 0) == PRODUCER_ID_WANTED
    assert transaction.is_forgotten


def test_each_takeover_raises_the_epoch_and_fences_who_was_before() -> None:
    desk = Desk()
    old = desk.init().producer
    new = desk.init().producer
    assert new == Producer(old.producer_id, old.epoch + 1)
    assert desk.add(old, A0) == desk.init(old).code == desk.end(old, commit=False).code == FENCED
    assert desk.add(new, A0) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "request_", "settings", "code"),
    [
        ("", InitRequest(1_000), DEFAULTS, ErrorCode.INVALID_REQUEST),
        ("t", InitRequest(1_000, Producer(7, -1)), DEFAULTS, ErrorCode.INVALID_REQUEST),
        ("t", InitRequest(1_000, Producer(-1, 7)), DEFAULTS, ErrorCode.INVALID_REQUEST),
        ("t", InitRequest(0), DEFAULTS, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", InitRequest(900_001), DEFAULTS, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", InitRequest(5_001), TransactionSettings(timeout_ms_max=5_000), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", InitRequest(0, keeps_prepared=True), TWO_PHASE, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (
            "t",
            InitRequest(1_000, enables_two_phase=True),
            DEFAULTS,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        ("t", InitRequest(1_000, keeps_prepared=True), DEFAULTS, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_wrong_request_is_refused(
    name: str, request_: InitRequest, settings: TransactionSettings, code: ErrorCode
) -> None:
    transaction = Transaction(name)
    decision = transaction.initialize(request_, settings, 0, 1)
    assert not isinstance(decision, Transition)
    assert decision == (code, NOBODY, NOBODY)


def test_the_longest_timeout_that_is_allowed_is_taken() -> None:
    desk = Desk()
    assert desk.init(timeout_ms=900_000).code == ErrorCode.NONE
    assert desk.saved.timeout_ms == 900_000


class TestAnIdAndEpochThatTheClientHas:
    """KIP-360, version 3."""

    def test_the_present_one_gets_the_next_epoch(self) -> None:
        desk = Desk()
        first = desk.init().producer
        assert desk.init(first).producer == Producer(first.producer_id, 1)

    def test_asked_once_more_it_is_told_the_same(self) -> None:
        desk = Desk()
        first = desk.init().producer
        second = desk.init(first).producer
        assert desk.init(first).producer == desk.init(first).producer == second
        assert desk.add(second, A0) == ErrorCode.NONE

    def test_it_is_fenced_once_another_process_has_come(self) -> None:
        desk = Desk()
        first = desk.init().producer
        desk.init()
        assert desk.init(first).code == FENCED

    def test_one_that_is_two_epochs_old_is_fenced(self) -> None:
        desk = Desk()
        first = desk.init().producer
        desk.init(desk.init(first).producer)
        assert desk.init(first).code == FENCED

    def test_another_id_is_fenced(self) -> None:
        desk = Desk()
        desk.init()
        assert desk.init(Producer(7, 0)).code == FENCED

    def test_of_an_unknown_transactional_id_it_gets_a_new_one(self) -> None:
        assert Desk().init(Producer(7, 3)).producer == Producer(100, 0)

    def test_a_stale_one_does_not_abort_the_transaction_of_its_successor(self) -> None:
        desk = Desk()
        old = desk.init().producer
        new = desk.begun(A0)
        assert desk.init(old).code == FENCED
        assert desk.state is TransactionState.ONGOING
        assert desk.end(new, commit=True).code == ErrorCode.NONE

    def test_after_a_move_it_is_told_once_more_what_ended_its_transaction(self) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        following = desk.ended(producer, commit=True)
        desk.move()
        assert desk.init(producer).producer == following


class TestAnOpenTransaction:
    @pytest.mark.parametrize("version", [V1, V2])
    def test_t12_it_is_aborted_first_and_the_client_is_told_to_come_again(self, version: int) -> None:
        desk = Desk(TransactionSettings(version=version))
        old = desk.begun(A0, B0, version=version)
        assert desk.init().code == CONCURRENT
        assert desk.state is TransactionState.PREPARE_ABORT
        assert desk.steps[-1].is_again
        assert desk.init().code == CONCURRENT
        markers = desk.transaction.markers
        assert markers is not None
        assert (markers.is_commit, sorted(markers.places), markers.version) == (False, [A0, B0], version)
        assert desk.mark()
        new = desk.init()
        assert new.code == ErrorCode.NONE
        assert desk.end(old, commit=True, version=version).code == FENCED

    @pytest.mark.parametrize("commit", [True, False])
    def test_t12_while_markers_are_on_their_way_it_hears_concurrent_transactions(self, commit: bool) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        answer = desk.end(producer, commit=commit)
        for shown in (NOBODY, producer, answer.producer, Producer(7, 0)):
            assert desk.init(shown).code == CONCURRENT

    @pytest.mark.parametrize("version", [V1, V2])
    def test_t4_the_abort_raises_the_epoch_once(self, version: int) -> None:
        desk = Desk(TransactionSettings(version=version))
        old = desk.begun(A0)
        desk.init()
        assert desk.saved.owner == desk.saved.producer == Producer(old.producer_id, old.epoch + 1)
        desk.mark()
        assert desk.saved.owner == Producer(old.producer_id, old.epoch + 1)
        assert desk.init().producer == Producer(old.producer_id, old.epoch + 2)

    @pytest.mark.parametrize("version", [V1, V2])
    def test_t4_at_the_last_epoch_the_abort_goes_on_to_a_new_producer_id(self, version: int) -> None:
        desk = Desk(TransactionSettings(version=version))
        old = at_epoch(desk, LAST_EPOCH)
        assert desk.add(old, A0) == ErrorCode.NONE
        assert desk.init().code == CONCURRENT
        assert desk.saved.producer == Producer(old.producer_id, EPOCH_MAX), "the markers fence the old one"
        desk.move()
        assert desk.mark()
        assert desk.saved.producer == Producer(101, 0)
        assert desk.init().producer == Producer(101, 1)

    @pytest.mark.parametrize("version", [V1, V2])
    @pytest.mark.parametrize("epoch", [0, LAST_EPOCH])
    def test_t13_a_client_that_does_not_know_its_outcome_aborts_what_is_open_and_goes_on(
        self, version: int, epoch: int
    ) -> None:
        desk = Desk(TransactionSettings(version=version))
        producer = at_epoch(desk, epoch)
        assert desk.add(producer, A0, version=version) == ErrorCode.NONE
        assert desk.init(producer).code == CONCURRENT
        assert desk.state is TransactionState.PREPARE_ABORT
        assert desk.mark()
        again = desk.init(producer)
        assert again.code == ErrorCode.NONE
        assert again.producer == (Producer(101, 0) if epoch else Producer(producer.producer_id, 1))
        late = desk.end(producer, commit=True, version=version).code
        assert late in {FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    def test_t13_if_it_had_ended_already_the_client_goes_on_behind_that(self) -> None:
        desk = Desk()
        producer = desk.begun(A0)
        desk.ended(producer, commit=True)
        assert desk.init(producer).producer == Producer(producer.producer_id, producer.epoch + 1)
        assert [step.saved.state for step in desk.steps if step.saved][-2:] == [
            TransactionState.COMPLETE_COMMIT,
            TransactionState.EMPTY,
        ]


class TestUsedUpEpochs:
    def test_t4_the_next_takeover_begins_a_new_id(self) -> None:
        desk = Desk()
        old = at_epoch(desk, LAST_EPOCH)
        assert desk.init().producer == Producer(101, 0)
        assert desk.init(old).code == FENCED

    def test_t4_a_client_that_shows_the_last_epoch_once_more_is_told_the_new_id(self) -> None:
        desk = Desk()
        old = at_epoch(desk, LAST_EPOCH)
        assert desk.init(old).producer == desk.init(old).producer == desk.init(old).producer == Producer(101, 0)

    def test_t4_one_that_shows_the_epoch_before_the_last_is_told_the_last(self) -> None:
        desk = Desk()
        old = at_epoch(desk, LAST_EPOCH - 1)
        assert desk.init(old).producer == desk.init(old).producer == Producer(old.producer_id, LAST_EPOCH)

    def test_an_epoch_that_no_client_may_have_is_gone_past(self) -> None:
        """Kafka leaves it behind when it fences the last one."""
        desk = Desk()
        at_epoch(desk, EPOCH_MAX)
        assert desk.init().producer == Producer(101, 0)


class TestTwoPhaseCommit:
    """KIP-939, version 6."""

    def test_a_transaction_of_two_phases_never_times_out(self) -> None:
        desk = Desk(TWO_PHASE)
        producer = desk.init(two_phase=True, timeout_ms=5).producer
        assert desk.saved.timeout_ms == NO_TIMEOUT_MS
        desk.add(producer, A0)
        desk.now_ms += 1 << 40
        assert not desk.time_out()
        desk.move()
        assert not desk.time_out()
        assert desk.transaction.times_out_at_ms is None
        assert desk.end(producer, commit=True).code == ErrorCode.NONE

    def test_it_is_aborted_when_it_is_not_kept(self) -> None:
        desk = Desk(TWO_PHASE)
        producer = desk.init(two_phase=True).producer
        desk.add(producer, A0)
        assert desk.init(two_phase=True).code == CONCURRENT
        assert desk.state is TransactionState.PREPARE_ABORT

    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("moves", [True, False])
    def test_a_kept_transaction_is_ended_by_its_new_owner_and_by_nobody_else(self, commit: bool, moves: bool) -> None:
        desk = Desk(TWO_PHASE)
        old = desk.begun(A0)
        answer = desk.init(keep=True)
        new = Producer(old.producer_id, old.epoch + 1)
        assert (answer.code, answer.producer, answer.ongoing) == (ErrorCode.NONE, new, old)
        if moves:
            desk.move()
        assert desk.end(old, commit=commit).code == desk.add(old, B0) == FENCED
        assert desk.verify(old, A0) == FENCED
        assert desk.add(new, A0) == desk.add(new, B0) == desk.verify(new, A0) == ErrorCode.INVALID_TXN_STATE
        ended = desk.end(new, commit=commit)
        markers = desk.transaction.markers
        assert markers is not None
        assert markers.producer == Producer(old.producer_id, old.epoch + 1), "one above the data's"
        assert ended.producer == Producer(old.producer_id, old.epoch + 2)
        if moves:
            desk.move()
        assert desk.end(new, commit=commit).code == CONCURRENT
        assert desk.mark()
        assert desk.end(new, commit=commit) == (ErrorCode.NONE, ended.producer, NOBODY)
        assert desk.add(ended.producer, A0) == ErrorCode.NONE

    def test_it_may_be_kept_many_times_and_the_epochs_of_its_owners_may_be_used_up(self) -> None:
        desk = Desk(TWO_PHASE)
        old = at_epoch(desk, LAST_EPOCH - 1)
        desk.add(old, A0)
        owners = [desk.init(keep=True) for _ in range(3)]
        assert [owner.producer for owner in owners] == [
            Producer(100, LAST_EPOCH),
            Producer(101, 0),
            Producer(101, 1),
        ]
        assert {owner.ongoing for owner in owners} == {old}
        desk.move()
        ended = desk.ended(Producer(101, 1), commit=True)
        assert ended == Producer(101, 2)
        assert desk.saved.producer == ended

    def test_three_producer_ids_may_be_in_one_end(self) -> None:
        """The one of the data, the one that ends it, and the one that comes next."""
        desk = Desk(TWO_PHASE)
        old = at_epoch(desk, 5)
        desk.add(old, A0)
        desk.transaction.saved = desk.saved._replace(next_producer=Producer(73, LAST_EPOCH))
        ending = Producer(73, LAST_EPOCH)
        assert desk.end(ending, commit=True).producer == Producer(101, 0)
        assert desk.saved.producer == Producer(100, 6)
        for _ in range(2):
            assert desk.end(ending, commit=True).code == CONCURRENT
            desk.move()
        desk.mark()
        assert desk.end(ending, commit=True) == (ErrorCode.NONE, Producer(101, 0), NOBODY)

    def test_one_that_shows_its_id_again_is_told_the_same(self) -> None:
        desk = Desk(TWO_PHASE)
        old = desk.begun(A0)
        answer = desk.init(old, keep=True)
        assert desk.init(old, keep=True) == answer
        assert desk.init(Producer(old.producer_id, 9), keep=True).code == FENCED

    def test_a_version_1_end_of_a_kept_transaction_raises_nothing(self) -> None:
        desk = Desk(TWO_PHASE)
        old = desk.begun(A0)
        new = desk.init(keep=True).producer
        assert desk.end(new, commit=True, version=V1).code == ErrorCode.NONE
        assert desk.saved.producer == old
        assert desk.mark()
        assert desk.saved.producer == new

    @pytest.mark.parametrize("two_phase", [True, False])
    def test_a_new_process_lengthens_the_timeout_and_never_shortens_it(self, two_phase: bool) -> None:
        desk = Desk(TWO_PHASE)
        desk.begun(A0, timeout_ms=60_000)
        desk.init(keep=True, two_phase=two_phase, timeout_ms=1)
        assert desk.saved.timeout_ms == (NO_TIMEOUT_MS if two_phase else 60_000)

    def test_a_kept_one_that_times_out_fences_its_owner(self) -> None:
        desk = Desk(TWO_PHASE)
        desk.begun(A0)
        owner = desk.init(keep=True).producer
        desk.now_ms += 60_000
        assert desk.time_out()
        assert desk.saved.owner == Producer(owner.producer_id, owner.epoch + 1)
        assert desk.end(owner, commit=True).code == ErrorCode.INVALID_TXN_STATE

    @pytest.mark.parametrize("begins", [True, False])
    def test_without_an_open_transaction_there_is_nothing_to_keep(self, begins: bool) -> None:
        desk = Desk(TWO_PHASE)
        if begins:
            desk.ended(desk.begun(A0), commit=True)
        answer = desk.init(keep=True)
        assert (answer.code, answer.ongoing) == (ErrorCode.NONE, NOBODY)
        assert desk.add(answer.producer, A0) == ErrorCode.NONE
