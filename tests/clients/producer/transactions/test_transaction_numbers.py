"""Batches of a producer in transactions are numbered as their coordinator's epochs say, and never anew."""

import pytest

from barnabas_clients.producer.exchange import outcome_of
from barnabas_clients.producer.sequences import Outcome, UnderWay, Verdict
from barnabas_clients.producer.transaction_numbers import TransactionIdentity, TransactionNumbers
from barnabas_clients.protocol.error_codes import ErrorCode

IN_FLIGHT_MAX = 3


def owner(epoch: int = 0, *, is_second: bool = True) -> TransactionIdentity:
    identity = TransactionIdentity()
    identity.producer_id, identity.epoch, identity.is_second = 7, epoch, is_second
    return identity


def sent(numbers: TransactionNumbers[str], count: int, size: int = 2) -> list[UnderWay[str]]:
    return [numbers.begin(f"b{number}", size) for number in range(count)]


def test_nothing_is_numbered_without_an_id() -> None:
    identity = TransactionIdentity()
    numbers: TransactionNumbers[str] = TransactionNumbers(identity, IN_FLIGHT_MAX)
    assert not numbers.may_begin()
    identity.producer_id, identity.epoch = 7, 3
    assert numbers.may_begin()
    (batch,) = sent(numbers, 1)
    assert (batch.producer_id, batch.epoch, batch.base_sequence) == (7, 3, 0)


@pytest.mark.parametrize("is_second", [False, True])
def test_only_leaders_of_the_second_protocol_get_several_at_once(is_second: bool) -> None:
    """T7: others may take any first number of a producer that they do not know."""
    numbers: TransactionNumbers[str] = TransactionNumbers(owner(is_second=is_second), IN_FLIGHT_MAX)
    (first,) = sent(numbers, 1)
    assert numbers.may_begin() is is_second
    assert numbers.on_outcome(first, Outcome.APPENDED) is Verdict.DELIVERED
    assert [batch.base_sequence for batch in sent(numbers, IN_FLIGHT_MAX)] == [2, 4, 6]
    assert not numbers.may_begin()


def test_numbers_go_on_in_an_epoch_and_begin_again_in_the_next_one() -> None:
    identity = owner()
    numbers: TransactionNumbers[str] = TransactionNumbers(identity, IN_FLIGHT_MAX)
    for batch in sent(numbers, 2):
        numbers.on_outcome(batch, Outcome.APPENDED)
    assert sent(numbers, 1)[0].base_sequence == 4
    identity.epoch = 1
    assert not numbers.may_begin(), "what is left of the old epoch comes first"
    numbers.on_outcome(numbers.pipeline[0], Outcome.APPENDED)
    (batch,) = sent(numbers, 1)
    assert (batch.epoch, batch.base_sequence) == (1, 0)


@pytest.mark.parametrize("outcome", [Outcome.GAP, Outcome.FENCED])
def test_a_gap_before_the_first_fails_it_and_nothing_is_numbered_anew(outcome: Outcome) -> None:
    """T20."""
    numbers: TransactionNumbers[str] = TransactionNumbers(owner(), IN_FLIGHT_MAX)
    first, second = sent(numbers, 2)
    assert numbers.on_outcome(first, outcome) is Verdict.FAILED
    assert not first.may_be_appended
    assert numbers.on_outcome(second, outcome) is Verdict.FAILED
    assert not numbers.pipeline
    assert sent(numbers, 1)[0].base_sequence == 4, "these numbers are never used twice"


def test_a_gap_behind_a_batch_that_is_back_is_no_failure() -> None:
    numbers: TransactionNumbers[str] = TransactionNumbers(owner(), IN_FLIGHT_MAX)
    first, second, third = sent(numbers, 3)
    assert numbers.on_outcome(first, Outcome.NOT_NOW) is Verdict.AGAIN
    assert numbers.on_outcome(second, Outcome.GAP) is Verdict.AGAIN
    assert numbers.next_again() is None
    assert numbers.on_outcome(third, Outcome.GAP) is Verdict.AGAIN
    for batch, number in ((first, 0), (second, 2), (third, 4)):
        assert numbers.next_again() is batch
        numbers.sent_again(batch)
        assert (batch.epoch, batch.base_sequence) == (0, number)
        assert numbers.on_outcome(batch, Outcome.APPENDED) is Verdict.DELIVERED


def test_one_that_may_be_in_the_log_says_so_when_it_fails() -> None:
    numbers: TransactionNumbers[str] = TransactionNumbers(owner(), IN_FLIGHT_MAX)
    (batch,) = sent(numbers, 1)
    assert numbers.on_outcome(batch, Outcome.UNKNOWN) is Verdict.AGAIN
    numbers.sent_again(batch)
    assert numbers.on_outcome(batch, Outcome.GAP) is Verdict.FAILED
    assert batch.may_be_appended


def test_the_end_of_the_transaction_before_is_awaited() -> None:
    """T9."""
    assert outcome_of(ErrorCode.CONCURRENT_TRANSACTIONS) is Outcome.NOT_NOW
