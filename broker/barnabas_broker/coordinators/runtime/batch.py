"""Builds the batches of a coordinator's log, its own and those in a producer's name. Pure.

A coordinator is the only writer of its partitions. What it writes for a producer has the next sequence of that producer
in this partition: so the producers' table has every such batch in its order, and refuses only what a newer epoch ends.
"""

from collections.abc import Sequence

from barnabas_broker.partition.producer_state import SEQUENCE_MODULUS, ProducerTable
from barnabas_raftlog.records.builder import Header, NewRecord, build_batch

from .contracts import KeyAndValue, Writer

__all__ = ["batch_of", "next_sequence"]


def batch_of(
    records: Sequence[KeyAndValue],
    timestamp_ms: int,
    *,
    writer: Writer | None,
    producers: ProducerTable,
    headers: Sequence[Header] = (),
) -> bytearray:
    """Return one batch of these records; with `writer`, as part of its transaction. Each record has `headers`."""
    lines = (NewRecord(key, value, timestamp_ms, headers) for key, value in records)
    if writer is None:
        return build_batch(lines)
    return build_batch(
        lines,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        base_sequence=next_sequence(producers, writer),
        is_transactional=True,
    )


def next_sequence(producers: ProducerTable, writer: Writer) -> int:
    """Return the sequence with which a producer goes on; an epoch begins at 0."""
    known = producers.batches(writer.producer_id)
    if not known or known[-1].epoch != writer.producer_epoch:
        return 0
    return (known[-1].last_sequence + 1) % SEQUENCE_MODULUS
