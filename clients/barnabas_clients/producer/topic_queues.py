"""Keeps the queues of a topic's partitions, and chooses one for the next record. Pure."""

from barnabas_clients.arguments import INT32_MAX, Bytes, whole_number
from barnabas_clients.protocol.errors import UnknownTopicOrPartitionError

from .accumulator import Batch, PartitionQueue
from .partitioner import Partitioner, partition_of
from .sequences import Identity, Sequences
from .transaction_numbers import TransactionIdentity, TransactionNumbers

__all__ = ["TopicQueues"]

CANDIDATES_MAX = 16
"""So many partitions are compared for records without a key, because a topic may have thousands."""


class TopicQueues:
    """One topic of a producer. A queue is made when its partition becomes known, and stays.

    Records without a key go to the queue `sticky` as long as its batch is open. `choose` says so, too, but nearly
    all records of many programs go there, and asking it for each is a tenth of `send`.
    """

    __slots__ = ("_choose_for", "_identity", "_in_flight_max", "_is_round_robin", "_last", "name", "queues", "sticky")

    def __init__(self, name: str, partitioner: Partitioner, identity: Identity | None, in_flight_max: int) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self._identity = identity
        self._in_flight_max = in_flight_max
        self._choose_for = None if isinstance(partitioner, str) else partitioner
        self._is_round_robin = partitioner == "round-robin"
        self.sticky: PartitionQueue | None = None
        self._last = -1

    def grow(self, partition_count: int) -> None:
        """Make the queues of a topic with this many partitions. A topic never gets fewer."""
        for partition in range(len(self.queues), partition_count):
            sequences: Sequences[Batch]
            if isinstance(self._identity, TransactionIdentity):
                sequences = TransactionNumbers(self._identity, self._in_flight_max)
            else:
                sequences = Sequences(self._identity, self._in_flight_max)
            self.queues.append(PartitionQueue(self.name, partition, sequences))

    def choose(self, key: Bytes | None, partition: int | None) -> PartitionQueue:
        """Return the queue for a record.

        Raises:
            TypeError: `partition`, or the answer of the caller's partitioner, is not an int.
            ValueError: it has more than 32 bits.
            UnknownTopicOrPartitionError: `partition`, or the answer of the caller's partitioner, does not exist.
        """
        if partition is None:
            # Nearly all records without a key go this way.
            if key is None and self.sticky is not None and self.sticky.open is not None:
                return self.sticky
            if self._choose_for is None:
                if key is not None:
                    return self.queues[partition_of(key, len(self.queues))]
                return self._any()
            partition = self._choose_for(self.name, key, len(self.queues))
        if type(partition) is not int:
            partition = whole_number("partition", partition, 0, INT32_MAX)
        if 0 <= partition < len(self.queues):
            return self.queues[partition]
        whole_number("partition", partition, -INT32_MAX, INT32_MAX)
        raise UnknownTopicOrPartitionError(f"{self.name} has partitions 0 to {len(self.queues) - 1}, not {partition}")

    def on_complete(self, queue: PartitionQueue) -> None:
        """Send further records without a key elsewhere: the batch of this queue is complete."""
        if self.sticky is queue:
            self.sticky = None

    def _any(self) -> PartitionQueue:
        if self._is_round_robin:
            self._last = (self._last + 1) % len(self.queues)
            return self.queues[self._last]
        # The last queue's batch is complete, or the sender took it because it was due.
        count = len(self.queues)
        candidates = [(self._last + step) % count for step in range(1, min(count, CANDIDATES_MAX) + 1)]
        self._last = min(candidates, key=lambda partition: self.queues[partition].waiting_bytes)
        self.sticky = self.queues[self._last]
        return self.sticky
