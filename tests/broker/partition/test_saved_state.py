"""What is saved beside a log, written and read, also as older versions wrote it."""

import msgpack
import pytest

from barnabas_broker.partition.aborted_index import AbortedTransaction
from barnabas_broker.partition.producer_state import ProducerTable
from barnabas_broker.partition.saved_state import decode_replica_state, encode_replica_state
from barnabas_broker.partition.transactions import TransactionTable
from barnabas_raftlog.errors import CorruptBatchError

NO_TRANSACTIONS = TransactionTable().committed()


def table() -> ProducerTable:
    found = ProducerTable()
    found.append(7, 0, 0, 2, 5, 10, 1_000)
    return found


def transactions() -> TransactionTable:
    found = TransactionTable()
    found.begin(7, 0, 2, 10, 1_000)
    found.end(7, 3, 13, is_commit=False)
    found.begin(8, 1, 5, 20, 1_000)
    found.commit(5)
    return found


def test_the_state_of_a_replica_survives_a_round_trip() -> None:
    offset, again, found = decode_replica_state(encode_replica_state(12, table().image(), transactions().committed()))
    assert (offset, again.applied_index, again.batches(7)) == (12, 5, table().batches(7))
    assert found.open_transactions() == transactions().open_transactions()
    assert found.aborted.between(0, 100) == [AbortedTransaction(7, 10, 13)]


def test_without_transactions_it_is_what_the_version_before_wrote_and_reads() -> None:
    blob = encode_replica_state(12, table().image(), NO_TRANSACTIONS)
    version, offset, producers = msgpack.unpackb(blob)
    assert (version, offset, producers) == (2, 12, table().image().to_blob())
    offset, again, found = decode_replica_state(blob)
    assert (offset, again.batches(7), found.committed().is_empty) == (12, table().batches(7), True)


def test_a_table_that_an_older_version_saved_is_read() -> None:
    batches = [batch[:6] for batch in table().batches(7)]
    offset, again, found = decode_replica_state(msgpack.packb((1, 5, 0, True, [(7, batches)])))
    assert (offset, again.batches(7), found.committed().is_empty) == (0, table().batches(7), True)


@pytest.mark.parametrize(
    "blob",
    [b"", b"x", msgpack.packb((4, 1, b"")), msgpack.packb((2, 1)), msgpack.packb((3, 1)), msgpack.packb(7)]
    + [msgpack.packb((3, 1, size)) for size in (-1, 0, 9)],
)
def test_anything_else_is_refused(blob: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        decode_replica_state(blob)


def test_what_is_cut_short_or_too_long_is_refused() -> None:
    blob = encode_replica_state(12, table().image(), transactions().committed())
    for damaged in (*(blob[:size] for size in range(len(blob))), blob + b"x"):
        with pytest.raises(CorruptBatchError):
            decode_replica_state(damaged)
