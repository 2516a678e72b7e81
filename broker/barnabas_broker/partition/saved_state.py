"""Encodes what a replica knows beside its log as of one entry, and reads it. Pure.

It is a msgpack array, whose first field is the version. All of it is as of the `applied_index` in the producer table.

- 3: `[3, log start, size of the producer table in bytes]`, and behind the array the producer table and the
  transactions. They are not in the array because a reader of it would copy them at once, and they may be megabytes.
- 2: `[2, log start, producer table]`. It is written still where there are no transactions, none open and none aborted:
  a broker of the version before can read it, and is sent it while a cluster is being upgraded.
- 1: the producer table alone, whose first field is its own version.

Old versions are read for ever. What has no transactions in it has none open.
"""

from collections.abc import Generator
from typing import NamedTuple

import msgpack

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.steps import at_once

from .producer_state import ProducerImage, ProducerTable
from .transactions import TransactionImage, TransactionTable

__all__ = ["SavedState", "decode_replica_state", "decode_replica_state_in_steps", "encode_replica_state"]

_VERSION = 3
_VERSION_WITHOUT_TRANSACTIONS = 2
_TABLE_VERSION = 1  # of a blob that is nothing but a producer table
_HEAD_BYTES_MAX = 32


class SavedState(NamedTuple):
    """What was saved, as of `producers.applied_index`."""

    log_start_offset: int
    producers: ProducerTable
    transactions: TransactionTable


def encode_replica_state(log_start_offset: int, producers: ProducerImage, transactions: TransactionImage) -> bytes:
    """Return what a replica must know beside its log, as of `producers.applied_index`. For a worker: it takes long."""
    table = producers.to_blob()
    if transactions.is_empty:
        blob: bytes = msgpack.packb((_VERSION_WITHOUT_TRANSACTIONS, log_start_offset, table))
        return blob
    return b"".join((msgpack.packb((_VERSION, log_start_offset, len(table))), table, transactions.to_blob()))


def decode_replica_state(blob: Buffer) -> SavedState:
    """Read what `encode_replica_state` wrote, at once.

    Raises:
        CorruptBatchError: it is of another version, or is not one.
    """
    return at_once(decode_replica_state_in_steps(blob))


def decode_replica_state_in_steps(blob: Buffer) -> Generator[None, None, SavedState]:
    """Read what `encode_replica_state` wrote, with pauses.

    Raises:
        CorruptBatchError: it is of another version, or is not one.
    """
    view = memoryview(blob)
    try:
        reader = _reader(view[:_HEAD_BYTES_MAX])
        count = reader.read_array_header()
        version = reader.unpack()
        if version == _VERSION:
            offset, table_bytes = [reader.unpack() for _ in range(count - 1)]
            begin = reader.tell()
            end = begin + table_bytes
            if not begin <= end <= len(view):
                raise ValueError(f"a table of {table_bytes} bytes in {len(view)}")
            producers = yield from ProducerTable.from_blob_in_steps(view[begin:end])
            transactions = yield from TransactionTable.from_blob_in_steps(view[end:])
            return SavedState(int(offset), producers, transactions)
        if version == _TABLE_VERSION:
            return SavedState(0, (yield from ProducerTable.from_blob_in_steps(view)), TransactionTable())
        if version != _VERSION_WITHOUT_TRANSACTIONS:
            raise CorruptBatchError(f"saved replica state has version {version}, this is {_VERSION}")
        reader = _reader(view)
        _, offset, table = [reader.unpack() for _ in range(reader.read_array_header())]
        return SavedState(int(offset), (yield from ProducerTable.from_blob_in_steps(table)), TransactionTable())
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptBatchError(f"saved replica state cannot be read: {error}") from error


def _reader(view: memoryview) -> msgpack.Unpacker:
    reader = msgpack.Unpacker(use_list=False, strict_map_key=False)
    reader.feed(view)
    return reader
