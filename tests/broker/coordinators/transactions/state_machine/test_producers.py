"""Which producer comes after which, in numbers: epochs have 16 bits on the wire, and the last one is kept back."""

from barnabas_broker.coordinators.transactions.state_machine.producers import (
    EPOCH_MAX,
    LAST_EPOCH,
    Producer,
    successor_of,
)


def test_t4_32766_is_the_last_epoch_that_a_client_is_given() -> None:
    assert successor_of(Producer(5, 32_765), 9) == Producer(5, 32_766)
    assert successor_of(Producer(5, 32_766), 9) == Producer(9, 0)
    assert successor_of(Producer(5, 32_766), None) is None
    assert (LAST_EPOCH, EPOCH_MAX) == (32_766, 32_767), "one more is left for the markers that end its last transaction"
