"""Says what an error code means to a producer in a transaction. Pure.

The same code means different things in the answers of different APIs, and not all of them are in the protocol's list of
retriable ones. The tables are those of Kafka's own producer (4.x), but for these:

- What TxnOffsetCommit refuses because of what the caller has asked for (a topic that may not be written, a note that is
  too long) is abortable. Kafka's producer is lost.
- So is an epoch that the group's coordinator finds too old: it knows no more than the leader of any partition does. The
  transaction's coordinator knows who was fenced, and aborting asks it. Kafka's producer is lost.
- An EndTxn that is refused because no transaction is open (INVALID_TXN_STATE) is abortable: mostly the coordinator has
  aborted it for its age. Asking for the next epoch tells. Kafka's producer is lost.
- A refused InitProducerId leaves the producer where it was before it asked, so that the call can be repeated when the
  rights are there. Kafka's producer gets there in a roundabout way.
"""

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import Final

from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.wire.schema import Message

__all__ = ["Meaning", "deciding", "meaning_of", "meaning_of_refused_write"]


class Meaning(IntEnum):
    """The consequence of an answer; of several in one answer the highest counts."""

    DONE = auto()
    AGAIN = auto()
    """The same request may succeed later."""
    ELSEWHERE = auto()
    """The same request may succeed when the coordinator has been looked for again."""
    NOT_INITIALISED = auto()
    """The producer has got no id now; it may ask again when the reason has gone."""
    ABORTABLE = auto()
    """The transaction has failed, and its producer has not."""
    NEW_EPOCH = auto()
    """Likewise, but the epoch has to be raised before the next transaction: what is late must not get into it."""
    NO_END = auto()
    """Likewise, and the coordinator would refuse to end the transaction: only raising the epoch aborts it."""
    FENCED = auto()
    """Another producer has the transactional id."""
    FATAL = auto()
    """This producer can do nothing more."""


_Table = Mapping[int, Meaning]

_ELSEWHERE: Final[_Table] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Meaning.ELSEWHERE,
    ErrorCode.NOT_COORDINATOR: Meaning.ELSEWHERE,
}
_FENCED: Final[_Table] = {
    # Old coordinators have no other word for it (KIP-588).
    ErrorCode.INVALID_PRODUCER_EPOCH: Meaning.FENCED,
    ErrorCode.PRODUCER_FENCED: Meaning.FENCED,
}
_IN_TRANSACTION: Final[_Table] = {
    **_ELSEWHERE,
    **_FENCED,
    ErrorCode.UNKNOWN_PRODUCER_ID: Meaning.NEW_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Meaning.NO_END,
    ErrorCode.TRANSACTION_ABORTABLE: Meaning.ABORTABLE,
}
_OFFSETS: Final = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
)
_TABLES: Final[Mapping[type[Message], _Table]] = {
    FindCoordinatorRequest: {
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Meaning.ABORTABLE,
        ErrorCode.TRANSACTION_ABORTABLE: Meaning.ABORTABLE,
    },
    InitProducerIdRequest: {
        **_ELSEWHERE,
        **_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Meaning.NOT_INITIALISED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Meaning.NOT_INITIALISED,
        ErrorCode.TRANSACTION_ABORTABLE: Meaning.NOT_INITIALISED,
    },
    AddPartitionsToTxnRequest: {
        **_IN_TRANSACTION,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Meaning.FATAL,
        ErrorCode.INVALID_TXN_STATE: Meaning.FATAL,
    },
    AddOffsetsToTxnRequest: {**_IN_TRANSACTION, ErrorCode.GROUP_AUTHORIZATION_FAILED: Meaning.ABORTABLE},
    TxnOffsetCommitRequest: {
        **dict.fromkeys(_OFFSETS, Meaning.ABORTABLE),
        **_IN_TRANSACTION,
        ErrorCode.REQUEST_TIMED_OUT: Meaning.ELSEWHERE,
    },
    EndTxnRequest: {**_IN_TRANSACTION, ErrorCode.INVALID_TXN_STATE: Meaning.NO_END},
}
_FATAL_FOR_WRITES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def meaning_of(api: type[Message], code: int) -> Meaning:
    """Return what an error code says in an answer of this API."""
    if code == ErrorCode.NONE:
        return Meaning.DONE
    found = _TABLES[api].get(code)
    if found is not None:
        return found
    if code in RETRIABLE:
        return Meaning.AGAIN
    # A partition that cannot be added for a reason of its own is the transaction's trouble, and not the producer's.
    return Meaning.ABORTABLE if api is AddPartitionsToTxnRequest else Meaning.FATAL


def deciding(api: type[Message], codes: Mapping[TopicPartition, int]) -> tuple[TopicPartition, int] | None:
    """Return which partition of an answer decides what follows, and its code; None if no code is an error.

    A partition that was not tried because of another one tells nothing, unless there is no other.
    """
    wrong = [(partition, code) for partition, code in sorted(codes.items()) if code != ErrorCode.NONE]
    told = [row for row in wrong if row[1] != ErrorCode.OPERATION_NOT_ATTEMPTED] or wrong
    return max(told, key=lambda row: meaning_of(api, row[1]), default=None)


def meaning_of_refused_write(code: int | None, *, is_second: bool) -> Meaning:
    """Return what it means that a partition's leader took no batch. `code` is None if no answer says why.

    In the second protocol (`is_second`) the epoch is raised whenever a transaction ends, so nobody has to ask for it.
    """
    if code == ErrorCode.PRODUCER_FENCED:
        return Meaning.FENCED
    if code in _FATAL_FOR_WRITES:
        return Meaning.FATAL
    if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return Meaning.NO_END
    if is_second:
        return Meaning.ABORTABLE
    # The epoch is too old for a leader if the coordinator has aborted the transaction for its age, or has given the
    # id to another producer. Which of the two, only the coordinator knows. It has to be asked for the next epoch, since
    # it would call the producer fenced in either case if it were to end the transaction.
    return Meaning.NO_END if code == ErrorCode.INVALID_PRODUCER_EPOCH else Meaning.NEW_EPOCH
