"""A coordinator of one transactional id, and the partitions, as simple as they can be: no disk, no delay."""

from typing import Any

from barnabas_clients.producer.transactions.requests import NO_ID, Owner
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas_clients.protocol.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas_raftlog.wire.schema import Message

EPOCH_MAX = 6
"""So low that ids are used up."""


def answer_with(request: Message, code: int) -> Message:
    """Return an answer that says this code of all that was asked."""
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=code)
        case AddPartitionsToTxnRequest():
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                            for number in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
            )
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=code)
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
                            for row in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case _:
            assert isinstance(request, EndTxnRequest)
            return EndTxnResponse(error_code=code)


class NaiveCoordinator:
    """Carries out requests at once. `ends` are the outcomes: whether it was a commit, and what was in it.

    What is written is a tag, of a record or of offsets; it is in the log when it is in one of `ends`.
    """

    def __init__(self) -> None:
        self.producer_id = 0
        self.epoch = NO_ID
        self.last: tuple[int, int] | None = None
        """The id and epoch before, if the present one has come out of it."""
        self.is_open = False
        self.last_end: bool | None = None
        self.partitions: set[Any] = set()
        self.written: set[Any] = set()
        self.ends: list[tuple[bool, frozenset[Any]]] = []

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def serve(self, request: Message, *, is_second: bool) -> Message:
        """Carry a request out, and return its answer."""
        match request:
            case InitProducerIdRequest():
                return self._initialise((request.producer_id, request.producer_epoch))
            case AddPartitionsToTxnRequest():
                owner = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
                names = {(topic.name, each) for topic in request.v3_and_below_topics for each in topic.partitions}
                return answer_with(request, self._add(owner, names))
            case AddOffsetsToTxnRequest():
                return answer_with(request, self._add(_owner(request), {request.group_id}))
            case TxnOffsetCommitRequest():
                tags = {
                    ("offset", row.committed_metadata, row.committed_offset)
                    for topic in request.topics
                    for row in topic.partitions
                }
                return answer_with(request, self.write(_owner(request), request.group_id, tags, is_second=is_second))
            case _:
                assert isinstance(request, EndTxnRequest)
                code = self._end(_owner(request), is_commit=request.committed, is_second=is_second)
                answer = EndTxnResponse(error_code=code)
                if is_second and not code:
                    answer.producer_id, answer.producer_epoch = self.identity
                return answer

    def write(self, owner: tuple[int, int], partition: Any, tags: set[Any], *, is_second: bool) -> int:
        """Write into a partition: in the second protocol that adds it, in the first one it must have been added."""
        if owner != self.identity:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if is_second:
            self._add(owner, {partition})
        if partition not in self.partitions:
            return ErrorCode.INVALID_TXN_STATE
        self.written |= tags
        return ErrorCode.NONE

    def time_out(self) -> None:
        """Abort what has been open for too long; its producer may go on if it asks for the next epoch (KIP-588)."""
        if self.is_open:
            self._close(is_commit=False)
            self._raise_epoch(is_of_owner=True)

    def usurp(self) -> None:
        """Serve another producer with the same transactional id."""
        self._initialise((NO_ID, NO_ID))

    def _initialise(self, owner: tuple[int, int]) -> InitProducerIdResponse:
        is_named = owner != (NO_ID, NO_ID)
        if is_named and owner == self.last and not self.is_open:
            return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        if is_named and owner != self.identity:
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if self.is_open:
            self._close(is_commit=False)
        self.last_end = None
        self._raise_epoch(is_of_owner=is_named)
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def _add(self, owner: tuple[int, int], partitions: set[Any]) -> int:
        if owner != self.identity:
            return ErrorCode.PRODUCER_FENCED
        self.is_open = True
        self.partitions |= partitions
        return ErrorCode.NONE

    def _end(self, owner: tuple[int, int], *, is_commit: bool, is_second: bool) -> int:
        if is_second and owner == self.last and not self.is_open and self.last_end == is_commit:
            return ErrorCode.NONE
        if owner != self.identity:
            return ErrorCode.INVALID_TXN_STATE if is_second and owner == self.last else ErrorCode.PRODUCER_FENCED
        if self.is_open:
            self._close(is_commit=is_commit)
        elif is_second and not is_commit:
            self.last_end = False
        elif is_second or self.last_end != is_commit:
            return ErrorCode.INVALID_TXN_STATE
        if is_second:
            self._raise_epoch(is_of_owner=True)
        return ErrorCode.NONE

    def _close(self, *, is_commit: bool) -> None:
        self.ends.append((is_commit, frozenset(self.written)))
        self.is_open = False
        self.last_end = is_commit
        self.partitions.clear()
        self.written.clear()

    def _raise_epoch(self, *, is_of_owner: bool) -> None:
        self.last = self.identity if is_of_owner else None
        self.epoch += 1
        if self.epoch > EPOCH_MAX:
            self.producer_id += 1
            self.epoch = 0


def _owner(request: AddOffsetsToTxnRequest | TxnOffsetCommitRequest | EndTxnRequest) -> tuple[int, int]:
    return request.producer_id, request.producer_epoch


def identity_of(owner: Owner) -> tuple[int, int]:
    """Return the id and epoch of an owner."""
    return owner.producer_id, owner.epoch
