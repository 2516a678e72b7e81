"""Maps keys to partitions, as Kafka's own producer does. Pure.

*Records with a key* go where other clients put them too: `murmur2` of the key with Java's seed, its sign bit cleared,
modulo the number of partitions. So records of one key stay together and in order, whichever client wrote them, until
the topic gets more partitions.

*Records without a key* may go anywhere. Spread one by one, they would fill many small batches at once. So the default
(sticky: KIP-480, KIP-794) stays with one partition until its batch is complete. Then it takes one with little waiting,
which gives less to a slow broker (topic_queues.py). `round-robin` goes record by record.

A callable in place of a name is asked about each record that names no partition.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

from barnabas_raftlog.records.walker.twins import murmur2, partition_of

__all__ = ["PARTITIONERS", "Partitioner", "murmur2", "partition_of"]

PARTITIONERS: Final[tuple[Literal["murmur2"], Literal["round-robin"]]] = ("murmur2", "round-robin")
Partitioner = Literal["murmur2", "round-robin"] | Callable[[str, Any, int], int]
"""A name, or a function of (topic, key, number of partitions) that returns a partition, from 0.

The key is as `send` took it: None, bytes, or a bytearray or memoryview of bytes.
"""
