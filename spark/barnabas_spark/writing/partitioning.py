"""Chooses the partitions of many rows at once, as Kafka's own producer does for each record. Pure.

- *A row that names a partition* goes there.
- *A row with a key* goes where murmur2 of the key says, as with `barnabas_clients.producer.partitioner`, which is the
  model in the tests. All keys are hashed together, four bytes of each in a round. A few keys that are much longer than
  the rest would make rounds for one row each, so these are hashed one by one.
- *Rows without a key* may go anywhere. Runs of them stay together, so that batches are large, and the runs go to one
  partition after the other.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas_clients.producer.partitioner import murmur2

__all__ = ["RUN_BYTES_MIN", "Keys", "hashes", "spread"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RUN_BYTES_MIN: Final = 16_384
"""Rows without a key are not spread any thinner. It is the size of a batch of Kafka's own producer."""
_ROUND_KEYS_MIN: Final = 32
_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)


class Keys(NamedTuple):
    """Places of keys in a buffer: key i is `data[starts[i]:starts[i] + sizes[i]]`; `sizes` is -1 for null."""

    data: npt.NDArray[np.uint8]
    starts: Ints
    sizes: Ints


def hashes(keys: Keys) -> npt.NDArray[np.uint32]:
    """Return the murmur2 hash of every key; of null, a value that means nothing."""
    sizes = np.maximum(keys.sizes, 0)
    hashed = (np.uint32(_SEED) ^ sizes.astype(np.uint32)).astype(np.uint32)
    words = sizes >> 2
    view = _words(keys.data)
    chosen = np.flatnonzero(words > 0)
    done = 0
    while len(chosen) >= _ROUND_KEYS_MIN:
        mixed = view[keys.starts[chosen] + 4 * done] * _M
        hashed[chosen] = (hashed[chosen] * _M) ^ ((mixed ^ (mixed >> np.uint32(24))) * _M)
        done += 1
        chosen = chosen[words[chosen] > done]
    _add_tails(keys, sizes, hashed)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _M
    hashed ^= hashed >> np.uint32(15)
    data = keys.data
    for row in chosen.tolist():
        start = int(keys.starts[row])
        hashed[row] = murmur2(data[start : start + int(sizes[row])].tobytes())
    return hashed


def _words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return four bytes from every position on as a number, without a copy."""
    return np.ndarray((max(len(data) - 3, 0),), "<u4", buffer=data if len(data) else b"\0", strides=(1,))


def _add_tails(keys: Keys, sizes: Ints, hashed: npt.NDArray[np.uint32]) -> None:
    """Mix in the one to three bytes behind the last whole word."""
    left = sizes & 3
    chosen = np.flatnonzero(left)
    if not len(chosen):
        return
    left = left[chosen]
    at = keys.starts[chosen] + sizes[chosen] - left
    tail = keys.data[at].astype(np.uint32)
    for place in (1, 2):
        more = left > place
        tail[more] |= keys.data[at[more] + place].astype(np.uint32) << np.uint32(8 * place)
    hashed[chosen] = (hashed[chosen] ^ tail) * _M


def spread(
    keys: Keys | None, named: Ints | None, row_bytes: Ints, partition_count: int, run_bytes_max: int, turn: int
) -> tuple[Ints, int]:
    """Return the partition of each row of one topic, and the turn for the next call.

    Args:
        keys: None if no row has one.
        named: the partitions that rows ask for, -1 for none; they are not checked here. None if no row asks.
        row_bytes: about how many bytes each row takes.
        partition_count: of the topic, at least 1.
        run_bytes_max: so many bytes without a key go to a partition before the next one has its turn.
        turn: which partition has it; any number from 0.
    """
    count = len(row_bytes)
    partitions = np.empty(count, np.int64)
    free = np.ones(count, np.bool_) if named is None else named < 0
    if named is not None:
        partitions[:] = named
    if keys is not None:
        hashed = (hashes(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partition_count
        keyed = free & (keys.sizes >= 0)
        partitions[keyed] = hashed[keyed]
        free &= keys.sizes < 0
    loose = np.flatnonzero(free)
    if len(loose):
        runs, turns = _runs(row_bytes[loose], partition_count, run_bytes_max)
        partitions[loose] = (turn + runs) % partition_count
        turn = (turn + turns) % partition_count
    return partitions, turn


def _runs(row_bytes: Ints, partition_count: int, run_bytes_max: int) -> tuple[Ints, int]:
    """Return the number of the run to which each row belongs, from 0, and how many runs there are."""
    before = np.cumsum(row_bytes) - row_bytes
    whole = int(before[-1] + row_bytes[-1])
    # Few rows are spread over all partitions as well, and many fill whole batches.
    size = min(max(whole // partition_count, RUN_BYTES_MIN), run_bytes_max)
    runs = before // max(size, 1)
    return runs, int(runs[-1]) + 1
