"""Encodes and decodes records of the transaction topic, as Kafka lays them out. Pure.

A key is an int16 that says what it names (0: a transactional id) and the name; a value is the version of its layout
and the fields of `TransactionLogValue`. Version 1 is written, in which fields that are at their default take no room;
0 is read as well. A key of another kind is skipped, as Kafka skips it.

*One field is ours:* how earlier transactions have ended (`outcomes`). It is tagged, so that Kafka's readers pass over
it. It is there only for ids whose transactions have had partitions in page-cache mode.

The number of partitions is in the record each time that one is added: Kafka's format knows no difference to the record
before. They are written in order, so that equal states are equal bytes.

*What is not in a record:* the epoch of the producer before the present one. After an end of v2 it follows: it is one
less, or the last one if a new id began. Else nobody can tell, and a client that asks for the answer to an
InitProducerId once more, after the coordinator has moved, is fenced. Kafka's is, too, and so it is with v2.

Source: Kafka's TransactionLogKey and TransactionLogValue.
"""

import struct
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Annotated

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.schema import (
    Buffer,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
    message,
    wire,
)

from .messages import V2, Place, SavedTransaction
from .outcomes import RUN_BYTES, KeptOutcomes
from .producers import LAST_EPOCH, NOBODY, Producer
from .states import TransactionState

__all__ = [
    "TransactionLogKey",
    "TransactionLogOutcomes",
    "TransactionLogPartitions",
    "TransactionLogValue",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
]

_KIND = 0
_WRITTEN = 1
OUTCOMES_TAG = 10_000
"""Ours, far from Kafka's: whoever does not know it passes over it."""
_I16 = struct.Struct(">h")
_UNKNOWN_STATES = {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}  # which no record can be in


@message(api_key=_KIND, versions=range(1), flexible_since=1)
class TransactionLogKey(Message):
    """Names a transactional id."""

    transactional_id: String = ""


class TransactionLogPartitions(Struct):
    """The partitions of one topic."""

    topic: String = ""
    partition_ids: list[Int32] = field(default_factory=list)


class TransactionLogOutcomes(Struct):
    """How the transactions of one producer id have ended (`outcomes`)."""

    producer_id: Int64 = 0
    end_epoch: Int16 = 0
    runs: Bytes = b""


@message(api_key=_KIND, versions=range(2), flexible_since=1)
class TransactionLogValue(Message):
    """The state of a transactional id. Times in milliseconds; no partitions at all (None) when it is empty."""

    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, wire(since=1, tag=0)] = -1
    next_producer_id: Annotated[Int64, wire(since=1, tag=1)] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, wire(since=1, tag=3)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[TransactionLogPartitions] | None = None
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, wire(since=1, tag=2)] = 0
    outcomes: Annotated[list[TransactionLogOutcomes], wire(since=1, tag=OUTCOMES_TAG)] = field(default_factory=list)


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id.

    Raises:
        ValueError: it is longer than 32,767 bytes.
    """
    return _I16.pack(_KIND) + TransactionLogKey(transactional_id=transactional_id).to_bytes(0)


def encode_value(saved: SavedTransaction) -> bytes:
    """Return the value of a transactional id's record. Raises ValueError as above, of a topic."""
    is_empty = saved.state is TransactionState.EMPTY
    assert not (is_empty and saved.places)
    value = TransactionLogValue(
        producer_id=saved.producer.producer_id,
        previous_producer_id=saved.previous_producer_id,
        next_producer_id=saved.next_producer.producer_id,
        producer_epoch=saved.producer.epoch,
        next_producer_epoch=saved.next_producer.epoch or -1,  # Kafka leaves out the 0 of an id that begins
        transaction_timeout_ms=saved.timeout_ms,
        transaction_status=saved.state,
        transaction_partitions=None if is_empty else _by_topic(saved.places),
        transaction_last_update_timestamp_ms=saved.updated_ms,
        transaction_start_timestamp_ms=saved.started_ms,
        client_transaction_version=saved.client_version,
        outcomes=[
            TransactionLogOutcomes(producer_id=one.producer_id, end_epoch=one.end_epoch, runs=one.runs)
            for one in saved.outcomes
        ],
    )
    return _I16.pack(_WRITTEN) + value.to_bytes(_WRITTEN)


def decode_key(data: Buffer) -> str | None:
    """Read a key, and return the transactional id that it names; None: it names something else.

    Raises:
        MalformedMessageError: it is cut off, or not text where text should be.
    """
    if _int16(data) != _KIND:
        return None
    return TransactionLogKey.decode(data, 0, _I16.size).transactional_id


def decode_value(data: Buffer) -> SavedTransaction:
    """Read the value of a transactional id's record, of any version.

    Raises:
        MalformedMessageError: as above, the version is not known, or no transactional id can be in that state.
    """
    value = TransactionLogValue.decode(data, _int16(data), _I16.size)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise MalformedMessageError(f"a transaction's record: {error}") from error
    if state in _UNKNOWN_STATES:
        raise MalformedMessageError(f"a transaction's record: nothing is saved as {state.title}")
    next_producer = NOBODY
    if value.next_producer_id != -1:
        next_producer = Producer(value.next_producer_id, max(0, value.next_producer_epoch))
    saved = SavedTransaction(
        state=state,
        producer=Producer(value.producer_id, value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        places=frozenset(_places(value.transaction_partitions or ())),
        next_producer=next_producer,
        previous_producer_id=value.previous_producer_id,
        client_version=value.client_transaction_version,
        outcomes=tuple(_kept(one) for one in value.outcomes),
    )
    return saved._replace(last_epoch=_last_epoch(saved))


def _kept(one: TransactionLogOutcomes) -> KeptOutcomes:
    if len(one.runs) % RUN_BYTES:
        raise MalformedMessageError(f"a transaction's record: {len(one.runs)} bytes of runs")
    return KeptOutcomes(one.producer_id, one.end_epoch, bytes(one.runs))


def _last_epoch(saved: SavedTransaction) -> int:
    """Return the epoch of the producer that has ended its transaction; -1 if that is not what came last."""
    has_ended = saved.state.is_prepared or (saved.state.is_idle and saved.state is not TransactionState.EMPTY)
    if not has_ended or saved.client_version < V2:
        return -1
    owner = saved.owner
    if owner.epoch:
        return owner.epoch - 1
    return -1 if owner.producer_id == saved.previous_producer_id else LAST_EPOCH


def _by_topic(places: Iterable[Place]) -> list[TransactionLogPartitions]:
    return [
        TransactionLogPartitions(topic=topic, partition_ids=[partition for _, partition in of_topic])
        for topic, of_topic in groupby(sorted(places), key=itemgetter(0))
    ]


def _places(topics: Iterable[TransactionLogPartitions]) -> Iterable[Place]:
    return ((one.topic, partition) for one in topics for partition in one.partition_ids)


def _int16(data: Buffer) -> int:
    if len(data) < _I16.size:
        raise MalformedMessageError(f"a version in {len(data)} bytes")
    number: int = _I16.unpack_from(data)[0]
    return number
