"""Ends of transactions are kept for partitions that may lose their markers, in two bytes while they are alike."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2, InitRequest, TransactionSettings
from barnabas_broker.coordinators.transactions.state_machine.outcomes import (
    RUNS_MAX,
    KeptOutcomes,
    Outcome,
    begun,
    ended,
    outcome_in,
)
from barnabas_broker.coordinators.transactions.state_machine.producers import EPOCH_MAX, LAST_EPOCH, Producer
from barnabas_broker.coordinators.transactions.state_machine.records import decode_value, encode_value
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.state_machine.transaction import Transaction
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import A0, A1, DEFAULTS, TIMEOUT_MS, Desk

PID = 7
V1_SETTINGS = TransactionSettings(version=V1)


class Forgetful(Desk):
    """A desk whose partitions may lose markers."""

    def add(self, producer: Producer, *places: tuple[str, int], version: int = V2) -> ErrorCode:
        return self._done(lambda _: self.transaction.add(producer, places, version, self.now_ms, may_be_lost=True)).code

    def run_one(self, producer: Producer, *, commit: bool, version: int = V2) -> Producer:
        """Have a transaction of `A0`, complete; return who comes next."""
        assert self.add(producer, A0, version=version) == ErrorCode.NONE
        self.ended(producer, commit=commit, version=version)
        return self.saved.owner


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_what_is_kept_is_what_has_ended(steps: list[tuple[int, bool]], first_epoch: int) -> None:
    """The first of each step: how much later the epoch is; 0 is one more transaction of version 1."""
    kept = begun((), Producer(PID, first_epoch))
    epoch = first_epoch
    model: dict[int, set[bool]] = {}
    for more, is_commit in steps:
        epoch += more
        model.setdefault(epoch, set()).add(is_commit)
        kept = ended(kept, Producer(PID, epoch), is_commit=is_commit)
    for asked in range(first_epoch, epoch + 2):
        found = outcome_in(kept, Producer(PID, asked))
        if asked in model:
            assert found is (Outcome.COMMIT if model[asked] == {True} else Outcome.ABORT)
        else:
            assert found in {None, Outcome.ABORT}
    assert outcome_in(kept, Producer(PID + 1, first_epoch)) is None


def test_thousands_that_end_alike_take_a_few_bytes_and_many_changes_a_bounded_number() -> None:
    kept = begun((), Producer(PID, 0))
    for epoch in range(LAST_EPOCH):
        kept = ended(kept, Producer(PID, epoch), is_commit=True)
    ((_, end_epoch, runs),) = kept
    assert (end_epoch, len(runs)) == (LAST_EPOCH, 4)
    assert {outcome_in(kept, Producer(PID, epoch)) for epoch in (0, 1, 16_383, LAST_EPOCH - 1)} == {Outcome.COMMIT}

    kept = begun((), Producer(PID, 0))
    for epoch in range(2 * RUNS_MAX):
        kept = ended(kept, Producer(PID, epoch), is_commit=epoch % 2 == 0)
    assert len(kept[0].runs) == 2 * RUNS_MAX
    assert outcome_in(kept, Producer(PID, RUNS_MAX - 1)) is None
    assert outcome_in(kept, Producer(PID, RUNS_MAX)) is Outcome.COMMIT
    assert outcome_in(kept, Producer(PID, RUNS_MAX + 1)) is Outcome.ABORT


def test_the_last_but_one_producer_id_is_kept_and_no_other() -> None:
    kept: tuple[KeptOutcomes, ...] = ()
    for producer_id in (1, 2, 3):
        kept = begun(kept, Producer(producer_id, 4))
        kept = ended(kept, Producer(producer_id, 4), is_commit=True)
    assert [outcome_in(kept, Producer(producer_id, 4)) for producer_id in (1, 2, 3)] == [
        None,
        Outcome.COMMIT,
        Outcome.COMMIT,
    ]


def test_nothing_is_kept_of_ids_whose_partitions_lose_nothing() -> None:
    desk = Desk()
    producer = desk.init().producer
    desk.add(producer, A0)
    desk.end(producer, commit=True)
    assert desk.saved.outcomes == ()
    assert ended((), producer, is_commit=True) == ()


def test_each_end_is_kept_for_those_who_come_later_and_for_the_next_coordinator() -> None:
    desk = Forgetful()
    first = producer = desk.init().producer
    outcomes = [True, True, False, True]
    for is_commit in outcomes:
        producer = desk.run_one(producer, commit=is_commit)
    assert desk.add(producer, A1) == ErrorCode.NONE
    for saved in (desk.saved, decode_value(encode_value(desk.saved))):
        transaction = Transaction("t", saved)
        found = [transaction.outcome(first._replace(epoch=first.epoch + n), A0) for n in range(4)]
        wanted = [Outcome.COMMIT if is_commit else Outcome.ABORT for is_commit in outcomes]
        assert found == [(one, first.epoch + n + 1) for n, one in enumerate(wanted)]
        assert transaction.outcome(producer, A1) == (Outcome.OPEN, producer.epoch)
        # Data of this epoch in a partition that is not part of the transaction is part of none.
        assert transaction.outcome(producer, A0) == (Outcome.ABORT, producer.epoch)


def test_while_its_marker_is_owed_a_transaction_is_open_and_when_that_was_written_it_has_ended() -> None:
    desk = Forgetful()
    producer = desk.init().producer
    desk.add(producer, A0, A1)
    desk.end(producer, commit=True)
    assert desk.is_in(TransactionState.PREPARE_COMMIT)
    assert desk.transaction.outcome(producer, A0) == (Outcome.OPEN, producer.epoch + 1)
    desk.transaction.marked(desk.saved.producer, A0)
    assert desk.transaction.outcome(producer, A0) == (Outcome.COMMIT, producer.epoch + 1)
    assert desk.transaction.outcome(producer, A1) == (Outcome.OPEN, producer.epoch + 1)


def test_what_was_decided_counts_though_it_was_not_known_that_it_should_be_kept() -> None:
    for is_commit, wanted in ((True, Outcome.COMMIT), (False, Outcome.ABORT)):
        desk = Desk()
        producer = desk.init().producer
        desk.add(producer, A0, A1)
        desk.end(producer, commit=is_commit)
        desk.transaction.marked(desk.saved.producer, A0)
        assert desk.transaction.outcome(producer, A0) == (wanted, producer.epoch + 1)


def test_a_transaction_that_is_fenced_or_times_out_has_aborted() -> None:
    desk = Forgetful()
    producer = desk.init().producer
    desk.add(producer, A0)
    desk.transaction.initialize(InitRequest(TIMEOUT_MS), DEFAULTS, desk.now_ms)
    desk.transaction.committed()
    assert desk.transaction.outcome(producer, A1) == (Outcome.ABORT, producer.epoch + 1)
    assert desk.transaction.outcome(producer, A0) == (Outcome.OPEN, producer.epoch + 1)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_abort_of_version_1_that_fences_comes_but_does_not_take_the_place_of_a_commit(*, is_commit: bool) -> None:
    desk = Forgetful(V1_SETTINGS)
    producer = desk.init().producer
    desk.run_one(producer, commit=True, version=V1)
    following = desk.init().producer
    desk.add(following, A0, version=V1)
    desk.end(following, commit=is_commit, version=V1)
    # The marker is of the next process's epoch, and what `producer` has open there was committed.
    assert desk.transaction.outcome(producer, A0) == (Outcome.COMMIT, following.epoch)

    desk = Forgetful(V1_SETTINGS)
    producer = desk.init().producer
    desk.add(producer, A0, version=V1)
    desk.init()
    assert desk.is_in(TransactionState.PREPARE_ABORT)
    assert desk.transaction.outcome(producer, A0) == (Outcome.OPEN, producer.epoch + 1)


def test_version_1_is_told_if_all_have_ended_alike_and_as_aborted_if_not() -> None:
    desk = Forgetful()
    producer = desk.init().producer
    for _ in range(2):
        assert desk.run_one(producer, commit=True, version=V1) == producer
    assert desk.transaction.outcome(producer, A0) == (Outcome.COMMIT, producer.epoch)
    desk.run_one(producer, commit=False, version=V1)
    desk.run_one(producer, commit=True, version=V1)
    assert desk.transaction.outcome(producer, A0) == (Outcome.ABORT, producer.epoch)
    # The next process of the client has the next epoch, and a clean slate.
    following = desk.init().producer
    assert following.epoch == producer.epoch + 1
    assert desk.transaction.outcome(producer, A0) == (Outcome.ABORT, producer.epoch + 1)
    assert desk.run_one(following, commit=True, version=V1) == following
    assert desk.transaction.outcome(following, A0) == (Outcome.COMMIT, following.epoch)


def test_the_last_transaction_of_a_producer_id_is_kept_beyond_it() -> None:
    desk = Forgetful()
    last = desk.init().producer._replace(epoch=LAST_EPOCH)
    desk.transaction = Transaction("t", desk.saved._replace(producer=last))
    following = desk.run_one(last, commit=True)
    assert following.producer_id != last.producer_id
    desk.run_one(following, commit=False)
    assert desk.transaction.outcome(last, A0) == (Outcome.COMMIT, EPOCH_MAX)
    assert desk.transaction.outcome(following, A0) == (Outcome.ABORT, following.epoch + 1)
