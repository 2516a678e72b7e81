"""Says which producer id and epoch come after which. Pure.

A transactional id belongs to one *producer* at a time: an id and an epoch. Each takeover, and with transactions v2 each
transaction, raises the epoch, and when the epochs of an id are used up another id begins at epoch 0. So no producer
ever comes back, and whoever shows an old one is told that it is fenced.

The highest epoch that a client is given is 32766. The one above it stands only in the markers that end the last
transaction of that id (Kafka's rule): there is always one left to fence with.
"""

from typing import NamedTuple

__all__ = ["EPOCH_MAX", "LAST_EPOCH", "NOBODY", "Producer", "successor_of"]

EPOCH_MAX = 32_767
LAST_EPOCH = EPOCH_MAX - 1


class Producer(NamedTuple):
    """An id and an epoch, as batches and requests carry them. -1 and -1: none is known or given."""

    producer_id: int
    epoch: int


NOBODY = Producer(-1, -1)


def successor_of(producer: Producer, new_producer_id: int | None) -> Producer | None:
    """Return the producer that comes next; None if that takes a new id, and none is given.

    `new_producer_id` is one that nobody ever had. It is left unused while the old id has an epoch.
    """
    if producer.epoch < LAST_EPOCH:
        return Producer(producer.producer_id, producer.epoch + 1)
    return None if new_producer_id is None else Producer(new_producer_id, 0)
