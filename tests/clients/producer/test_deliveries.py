"""A delivery that failed: who catches its error keeps nothing of the producer alive, and hears all that is known."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas_clients.errors import ConnectionLostError, DeadlineExceededError, UnsupportedVersionError, copy_of
from barnabas_clients.producer.accumulator import Batch
from barnabas_clients.producer.delivery import Delivery
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import InvalidProducerEpochError, error_for

ERRORS = [
    error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "t-0: another one writes"),
    error_for(ErrorCode.TRANSACTION_ABORTABLE, "id x"),
    ConnectionLostError("b:9092", "reset", may_be_done=True),
    DeadlineExceededError("no answer in 2 s"),
    UnsupportedVersionError("Produce: none in common"),
]


class Queue:
    """Stands for the producer, which a batch leads to."""

    topic = "t"
    partition = 0


@contextmanager
def failed(error: Exception) -> Iterator[tuple[Delivery, Batch]]:
    queue: Any = Queue()
    batch = Batch(queue, 1_000, 0.0)
    batch.add(1, None, b"x", ())
    batch.error = error
    batch.is_done = True
    yield Delivery(batch, 0, 1), batch


def test_nothing_is_left_of_a_failure_that_was_caught() -> None:
    """A delivery is hidden from the collector: a cycle through one would stay for ever."""

    def use() -> weakref.ref[Any]:
        with failed(error_for(ErrorCode.INVALID_PRODUCER_EPOCH)) as (delivery, batch):
            for _ in range(2):
                with pytest.raises(InvalidProducerEpochError):
                    delivery.result()
            return weakref.ref(batch.queue)

    left = use()
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_everybody_gets_an_error_of_his_own_that_says_all_of_it(error: Exception) -> None:
    with failed(error) as (delivery, _):
        raised = []
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                delivery.result()
            raised.append(caught.value)
    first, second = raised
    assert first is not second
    assert error.__traceback__ is None
    assert (str(first), first.args, vars(first)) == (str(error), error.args, vars(error))


def test_a_copy_keeps_the_cause() -> None:
    error = DeadlineExceededError("x")
    error.__cause__ = cause = OSError("y")
    copy = copy_of(error)
    assert copy.__cause__ is cause
    assert copy.__suppress_context__
