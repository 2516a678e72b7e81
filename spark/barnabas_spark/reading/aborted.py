"""Leaves the batches of aborted transactions out of a fetched part of a log. Pure.

What is left keeps its bytes and its order.
"""

from collections.abc import Iterable

from barnabas_raftlog.records.aborted import AbortedOnTheWay
from barnabas_raftlog.records.reader import batches

__all__ = ["without_aborted"]


def without_aborted(data: memoryview, aborted: Iterable[tuple[int, int]]) -> memoryview:
    """Return the whole batches of `data` that no aborted transaction wrote.

    Args:
        data: concatenated batches; one that is cut off at the end is left out.
        aborted: producer ids, with the first offsets of their transactions, in any order.

    Raises:
        CorruptBatchError: a header is impossible, or a marker cannot be read.
    """
    transactions = AbortedOnTheWay(aborted)
    frames = batches(data, check_crc=False)
    return memoryview(b"".join(frame for header, frame in frames if not transactions.has(header, frame)))
