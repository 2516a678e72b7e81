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
from struct import unpack
from typing import Any, Final, Literal

from barnabas_clients.arguments import Bytes

__all__ = ["PARTITIONERS", "Partitioner", "murmur2", "partition_of"]

PARTITIONERS: Final[tuple[Literal["murmur2"], Literal["round-robin"]]] = ("murmur2", "round-robin")
Partitioner = Literal["murmur2", "round-robin"] | Callable[[str, Any, int], int]
"""A name, or a function of (topic, key, number of partitions) that returns a partition, from 0.

The key is as `send` took it: None, bytes, or a bytearray or memoryview of bytes.
"""

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: Bytes) -> int:
    """Return the 32-bit hash of `data`, 0..2**32-1, with the seed of Kafka's Java clients."""
    size = len(data)
    whole = size & ~3
    hashed = _SEED ^ size
    for word in unpack(f"<{size >> 2}I", data[:whole]):
        mixed = (word * _M) & _MASK
        hashed = ((hashed * _M) & _MASK) ^ (((mixed ^ (mixed >> 24)) * _M) & _MASK)
    if size != whole:
        hashed = ((hashed ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)


def partition_of(key: Bytes, partition_count: int) -> int:
    """Return the partition of a key among `partition_count`, 1 or more."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
