"""Leaves the batches of aborted transactions out of a fetched part of a log. Pure.

An answer to a fetch of committed records names each producer that has an aborted transaction in it, with the offset
where that began, which may lie before the answer. From there to the marker that aborts it the producer's batches are
left out, and behind it another one may begin. What is left keeps its bytes and its order.
"""

from collections import deque
from collections.abc import Iterable

from barnabas_raftlog.records.header import TRANSACTIONAL
from barnabas_raftlog.records.markers import ABORT, is_marker, marker_type
from barnabas_raftlog.records.reader import batches, read_batch

__all__ = ["without_aborted"]


def without_aborted(data: memoryview, aborted: Iterable[tuple[int, int]]) -> memoryview:
    """Return the whole batches of `data` that no aborted transaction wrote.

    Args:
        data: concatenated batches; one that is cut off at the end is left out.
        aborted: producer ids, with the first offsets of their transactions, in any order.

    Raises:
        CorruptBatchError: a header is impossible, or a marker cannot be read.
    """
    coming = deque(sorted(aborted, key=lambda row: row[1]))
    aborting: set[int] = set()
    kept: list[memoryview] = []
    for header, frame in batches(data, check_crc=False):
        while coming and coming[0][1] < header.end_offset:
            aborting.add(coming.popleft()[0])
        if is_marker(header) and header.record_count:
            if marker_type(next(read_batch(header, frame)).key) == ABORT:
                aborting.discard(header.producer_id)
        elif header.attributes & TRANSACTIONAL and header.producer_id in aborting:
            continue
        kept.append(frame)
    return memoryview(b"".join(kept))
