"""Decides what a transactional producer asks next, and what answers and failures mean for its transaction. Pure.

*Two protocols.* In the first, a partition is added to the transaction before its first batch leaves
(AddPartitionsToTxn), a group before its offsets (AddOffsetsToTxn), and the epoch stays from transaction to transaction.
In the second (KIP-890) the leader of a partition and the coordinator of the group add it, and each EndTxn is answered
with the next epoch, or with a new producer id when epochs are used up. So what is late always has an old epoch, and is
refused. The second is spoken if `transaction.version` 2 or higher is among the cluster's finalized features. It begins
with a transaction, never in the middle of one, and with a new epoch.

*A failure* of a batch or a request makes the transaction ABORTABLE_ERROR: nothing more gets into it, and it can only be
aborted. meanings.py says which failures do, and which are FATAL_ERROR. In the first protocol most of them also mean
that the epoch is raised when the transaction has been aborted, by an InitProducerId with the present id and epoch
(KIP-360), whose answer also tells whether another producer has taken over.

*Doubt.* A request without an answer may have been carried out, or may be later. So may one whose coordinator says that
it is none (any more): it may have written down what it was asked, and have lost its leadership before it knew that this
stays. Such a request is repeated until it is answered; the coordinator knows repetitions. When its caller gives up, the
doubt stays, and then the transaction is not ended by EndTxn: an abort after an unanswered commit would be refused, or
end the wrong transaction. InitProducerId with the present id and epoch takes its place: it aborts what is open, leaves
what is decided, and gives whatever is late an old epoch. Whether the commit has taken place nobody knows, and its error
says so (`may_be_done`). A coordinator that does not know the present epoch any more calls the producer fenced, which is
safe, though harsh.

*Nothing for nothing:* coordinators are not asked about a transaction into which nothing was put.

Not here: time, retries, and the search for coordinators; numbering of batches, which begins at 0 in each partition when
the producer id or the epoch has changed; who ends a prepared transaction (KIP-939).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

from barnabas_clients.errors import ClientError, UnsupportedVersionError, copy_of
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_clients.protocol.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_clients.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.wire.schema import Message

from .meanings import Meaning, deciding, meaning_of, meaning_of_refused_write
from .requests import NO_ID, GroupMember, Owner, Request, add_group, add_partitions, end, initialise, store_offsets
from .situations import FAILED, MISUSE, OPEN, TRANSITIONS, Situation

__all__ = ["OffsetsUnderWay", "Step", "Transactions"]

SECOND_PROTOCOL: Final = 2
"""The level of `transaction.version` from which on it is spoken."""
_MOVING: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Answers of coordinators that leave it open whether they, or the next one, will have carried out the request."""


class Step(Enum):
    """The next step after an answer."""

    DONE = auto()
    """Go on: the request has succeeded, or nobody waits for it any more."""
    AGAIN = auto()
    """Ask `next_request` again after a pause."""
    SOON = auto()
    """Ask it again after some milliseconds: the transaction before this one is being completed."""
    ELSEWHERE = auto()
    """Look for the coordinator, and ask it again after a pause."""
    FAILED = auto()
    """No retry of this request helps; `situation` and `error` say what is left."""


class OffsetsUnderWay:
    """Offsets that are to get into the transaction; `left` are those that have not yet."""

    __slots__ = ("left", "member")

    def __init__(self, member: GroupMember, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.member = member
        self.left = dict(offsets)


class Transactions:
    """The transactions of one producer, one after the other. Owned by the producer; one request is out at a time.

    `error` is why the situation is ABORTABLE_ERROR or FATAL_ERROR, or UNINITIALISED once more. `owner` has the id and
    the epoch for batches. `is_second` tells which protocol the transaction speaks.

    A commit is done when COMMITTING has been left for READY or INITIALISING, an abort when READY is reached.
    """

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.prepares = False
        """Its transactions are to be prepared, and then do not time out where coordinators offer that."""
        self.situation = Situation.UNINITIALISED
        self.error: KafkaError | ClientError | None = None
        self.owner = Owner(transactional_id)
        self.is_second = False
        self._wants_second = False
        self._out: Request | None = None
        self._clear()

    def _clear(self) -> None:
        """Forget the transaction."""
        self._new: set[TopicPartition] = set()
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._offsets: deque[OffsetsUnderWay] = deque()
        # The coordinator knows of this transaction; in the second protocol: or may know.
        self._is_started = False
        # An EndTxn got no answer; any request got none.
        self._may_be_ended = False
        self._is_doubtful = False
        # The epoch has to be raised after the end, or in place of it.
        self._needs_epoch = False
        self._cannot_end = False

    @property
    def is_started(self) -> bool:
        """True if the coordinator knows of the transaction, or may know."""
        return self._is_started

    # Decisions of the caller.

    def see_version(self, level: int) -> None:
        """Note the finalized level of `transaction.version`, 0 for none. It counts from the next transaction on."""
        self._wants_second = level >= SECOND_PROTOCOL
        if self.situation is Situation.READY:
            self._choose_protocol(has_new_epoch=False)

    def initialise(self) -> None:
        """Get a producer id, or the next epoch of the one that there is.

        The first time this takes the transactional id over: it aborts what is open, and fences who had it.
        """
        assert self.situation is Situation.UNINITIALISED, f"{self.situation}"
        self._go(Situation.INITIALISING)

    def begin_as(self, producer_id: int, epoch: int) -> None:
        """Be ready with an id and an epoch of the second protocol, which nobody is asked for."""
        assert self.situation is Situation.UNINITIALISED, f"{self.situation}"
        self._take_identity(producer_id, epoch)
        self.is_second = True
        self._go(Situation.READY)

    def begin(self) -> None:
        """Begin a transaction. Nobody is told before there is something in it."""
        self._require(Situation.READY)
        self._go(Situation.IN_TRANSACTION)

    def touch(self, partition: TopicPartition) -> None:
        """Note that a batch for this partition belongs to the transaction: after its first record, before it leaves."""
        self._require(Situation.IN_TRANSACTION)
        if self.is_second:
            self._partitions.add(partition)
            self._is_started = True
        elif partition not in self._partitions:
            self._new.add(partition)

    def may_send(self, partition: TopicPartition) -> bool:
        """Say whether a batch for this partition may leave, or leave again."""
        return partition in self._partitions and self.situation is not Situation.FATAL_ERROR

    def add_offsets(self, member: GroupMember, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetsUnderWay:
        """Put offsets of a group into the transaction. They are in it when none is `left`."""
        self._require(Situation.IN_TRANSACTION)
        under_way = OffsetsUnderWay(member, offsets)
        if under_way.left:
            self._offsets.append(under_way)
        return under_way

    def commit(self) -> None:
        """Commit the transaction, once all that was put into it is there."""
        self._require(Situation.IN_TRANSACTION)
        self._go(Situation.COMMITTING)

    def abort(self) -> None:
        """Abort the transaction. What has not left for it yet stays where it is."""
        if self.situation is not Situation.ABORTABLE_ERROR:
            self._require(Situation.IN_TRANSACTION)
        self._go(Situation.ABORTING)

    def give_up(self, error: ClientError) -> None:
        """Stop what is under way at the coordinators, since nobody waits for it any longer; `error` says why.

        That costs the transaction. The request that is out is in doubt from now on, and its answer is not looked at.
        """
        out, self._out = self._out, None
        if out is not None:
            self._note_doubt(out)
        if self.situation is Situation.INITIALISING:
            self._go(Situation.UNINITIALISED)
        elif self.situation in OPEN or self.situation is Situation.ABORTING:
            if self._may_be_ended:
                self._cannot_end = True
                error.may_be_done = error.may_be_done or self.situation is Situation.COMMITTING
            self._go(Situation.ABORTABLE_ERROR, error)

    def on_batch_failed(self, error: KafkaError | ClientError) -> None:
        """Take the failure of a batch of the transaction that will not be sent again."""
        code = error.code if isinstance(error, KafkaError) else None
        if isinstance(error, UnsupportedVersionError):
            code = ErrorCode.UNSUPPORTED_VERSION
        self._fail(meaning_of_refused_write(code, is_second=self.is_second), error)

    # Requests.

    def next_request(self, *, batches_are_under_way: bool) -> Request | None:
        """Return the request that is to be sent now; None if there is none, or one is out.

        `batches_are_under_way`: some have neither been acknowledged nor given up. After `abort` those that have never
        left do not count.
        """
        if self._out is not None:
            return None
        if self.situation in OPEN:
            self._out = self._next_addition()
        if self._out is None and not batches_are_under_way:
            if self.situation is Situation.COMMITTING:
                self._out = self._commitment()
            elif self.situation is Situation.ABORTING:
                self._out = self._abortion()
        if self.situation is Situation.INITIALISING:
            self._out = initialise(self.owner, self.timeout_ms, is_prepared=self.prepares)
        return self._out

    def _next_addition(self) -> Request | None:
        """Return the next request that puts something into the transaction."""
        if self._new:
            return add_partitions(self.owner, self._new)
        if not self._offsets:
            return None
        member = self._offsets[0].member
        if not self.is_second and member.group_id not in self._groups:
            return add_group(self.owner, member.group_id)
        self._is_started = True
        return store_offsets(self.owner, member, self._offsets[0].left, is_second=self.is_second)

    def _commitment(self) -> Request | None:
        if self._is_started:
            return end(self.owner, committed=True, is_second=self.is_second)
        self._complete(has_new_epoch=False)
        return None

    def _abortion(self) -> Request | None:
        if self._cannot_end:
            self._go(Situation.INITIALISING)
            return None
        if self._is_started:
            return end(self.owner, committed=False, is_second=self.is_second)
        self._complete(has_new_epoch=False)
        return None

    # Answers.

    def on_answer(self, request: Request, response: Message) -> Step:
        """Take the answer to a request. One that nobody waits for any more changes nothing."""
        if request is not self._out:
            return Step.DONE
        self._out = None
        match response:
            case InitProducerIdResponse():
                return self._on_initialised(request, response)
            case AddPartitionsToTxnResponse():
                return self._on_partitions_added(request, response)
            case AddOffsetsToTxnResponse():
                return self._on_group_added(request, response)
            case TxnOffsetCommitResponse():
                return self._on_offsets_stored(request, response)
            case _:
                assert isinstance(response, EndTxnResponse)
                return self._on_ended(request, response)

    def on_no_answer(self, request: Request, error: ClientError) -> Step:
        """Take the failure of a request that no broker has answered."""
        if request is not self._out:
            return Step.DONE
        self._out = None
        if error.may_be_done:
            self._note_doubt(request)
        if error.retriable:
            return Step.ELSEWHERE
        self._fail(Meaning.FATAL, error)
        return Step.FAILED

    def on_coordinator_refused(self, request: Request, code: int) -> Step:
        """Take the error code that the search for the coordinator of a request was answered with."""
        if request is not self._out:
            return Step.DONE
        self._out = None
        api = InitProducerIdRequest if self.situation is Situation.INITIALISING else FindCoordinatorRequest
        return self._on_code(request, api, code, "looking for the coordinator")

    def _on_initialised(self, request: Request, response: InitProducerIdResponse) -> Step:
        if response.error_code:
            return self._on_code(request, InitProducerIdRequest, response.error_code, "asking for a producer id")
        self._take_identity(response.producer_id, response.producer_epoch)
        self._complete(has_new_epoch=True)
        return Step.DONE

    def _on_partitions_added(self, request: Request, response: AddPartitionsToTxnResponse) -> Step:
        assert isinstance(request.message, AddPartitionsToTxnRequest)
        asked = (
            TopicPartition(topic.name, number)
            for topic in request.message.v3_and_below_topics
            for number in topic.partitions
        )
        codes = _answers(
            asked,
            {
                TopicPartition(topic.name, row.partition_index): row.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            },
        )
        found = deciding(AddPartitionsToTxnRequest, codes)
        if found is None:
            self._partitions |= codes.keys()
            self._new -= codes.keys()
            self._is_started = True
            return Step.DONE
        # Either all of a request are added, or none.
        partition, code = found
        step = self._on_code(request, AddPartitionsToTxnRequest, code, f"adding {partition}")
        is_first = not self._partitions
        return Step.SOON if code == ErrorCode.CONCURRENT_TRANSACTIONS and is_first else step

    def _on_group_added(self, request: Request, response: AddOffsetsToTxnResponse) -> Step:
        assert isinstance(request.message, AddOffsetsToTxnRequest)
        group_id = request.message.group_id
        if response.error_code:
            return self._on_code(request, AddOffsetsToTxnRequest, response.error_code, f"adding group {group_id}")
        self._groups.add(group_id)
        self._is_started = True
        return Step.DONE

    def _on_offsets_stored(self, request: Request, response: TxnOffsetCommitResponse) -> Step:
        assert isinstance(request.message, TxnOffsetCommitRequest)
        asked = (
            TopicPartition(topic.name, row.partition_index)
            for topic in request.message.topics
            for row in topic.partitions
        )
        codes = _answers(
            asked,
            {
                TopicPartition(topic.name, row.partition_index): row.error_code
                for topic in response.topics
                for row in topic.partitions
            },
        )
        left = self._offsets[0].left
        for partition, code in codes.items():
            if code == ErrorCode.NONE:
                del left[partition]
        if not left:
            self._offsets.popleft()
        found = deciding(TxnOffsetCommitRequest, codes)
        if found is None:
            return Step.DONE
        partition, code = found
        return self._on_code(
            request, TxnOffsetCommitRequest, code, f"offset of {partition} for group {request.group_id}"
        )

    def _on_ended(self, request: Request, response: EndTxnResponse) -> Step:
        assert isinstance(request.message, EndTxnRequest)
        code = response.error_code
        if not code:
            has_new_epoch = response.producer_id != NO_ID
            if has_new_epoch:
                self._take_identity(response.producer_id, response.producer_epoch)
            self._complete(has_new_epoch=has_new_epoch)
            return Step.DONE
        is_commit = request.message.committed
        if not is_commit and Meaning.ABORTABLE <= meaning_of(EndTxnRequest, code) <= Meaning.NO_END:
            self._cannot_end = True
            return Step.AGAIN
        return self._on_code(request, EndTxnRequest, code, "committing" if is_commit else "aborting")

    # Inside.

    def _on_code(self, request: Request, api: type[Message], code: int, subject: str) -> Step:
        """Take an error code of an answer to this request, or on the way to one (`api`)."""
        error = error_for(code, f"transactional id {self.owner.transactional_id}: {subject}")
        is_moving = code in _MOVING and isinstance(request.message, api)
        if is_moving or error.may_be_done is not False:
            self._note_doubt(request)
        if api is TxnOffsetCommitRequest and code == ErrorCode.INVALID_PRODUCER_EPOCH:
            meaning = meaning_of_refused_write(code, is_second=self.is_second)
        else:
            meaning = meaning_of(api, code)
        if meaning is Meaning.AGAIN:
            return Step.AGAIN
        if meaning is Meaning.ELSEWHERE:
            return Step.ELSEWHERE
        self._fail(meaning, error)
        return Step.FAILED

    def _fail(self, meaning: Meaning, error: KafkaError | ClientError) -> None:
        """Take a failure after which the transaction, or more, is lost. The first error stays."""
        if self.situation is Situation.COMMITTING and self._may_be_ended:
            self._cannot_end = True
            if error.may_be_done is False:
                error.may_be_done = True
        if meaning is Meaning.FENCED and isinstance(error, KafkaError):
            error = _fenced(error)
        if meaning >= Meaning.FENCED:
            if self.situation is not Situation.FATAL_ERROR:
                self._go(Situation.FATAL_ERROR, error)
            return
        if self.situation is Situation.INITIALISING:
            self._go(Situation.UNINITIALISED)
            self.error = error
            return
        if self.situation not in OPEN | {Situation.ABORTING, Situation.ABORTABLE_ERROR}:
            return
        self._needs_epoch = self._needs_epoch or meaning is Meaning.NEW_EPOCH
        self._cannot_end = self._cannot_end or meaning is Meaning.NO_END
        if self.situation in OPEN:
            self._go(Situation.ABORTABLE_ERROR, error)

    def _note_doubt(self, request: Request) -> None:
        self._is_doubtful = True
        if isinstance(request.message, EndTxnRequest):
            self._may_be_ended = True

    def _take_identity(self, producer_id: int, epoch: int) -> None:
        self.owner = self.owner._replace(producer_id=producer_id, epoch=epoch)

    def _complete(self, *, has_new_epoch: bool) -> None:
        """Forget the transaction: it has ended at the coordinator, or is not known to have been there."""
        is_abort = self.situation is Situation.ABORTING
        needs_epoch = self._needs_epoch or (is_abort and self._is_doubtful) or (self.is_second and self._is_started)
        self._clear()
        if needs_epoch and not has_new_epoch:
            self._go(Situation.INITIALISING)
            return
        self._go(Situation.READY)
        self._choose_protocol(has_new_epoch=has_new_epoch)

    def _choose_protocol(self, *, has_new_epoch: bool) -> None:
        """Choose that of the next transaction. What was sent in the first one must not get into one of the second."""
        is_upgrade = self._wants_second and not self.is_second
        self.is_second = self._wants_second
        if is_upgrade and not has_new_epoch:
            self._go(Situation.INITIALISING)

    def _require(self, situation: Situation) -> None:
        """Raise the error of a failed transaction or producer, or RuntimeError for a call at the wrong time."""
        if self.situation is situation:
            return
        if self.situation in FAILED:
            assert self.error is not None
            raise copy_of(self.error)
        raise RuntimeError(MISUSE[self.situation])

    def _go(self, situation: Situation, error: KafkaError | ClientError | None = None) -> None:
        assert situation in TRANSITIONS[self.situation], f"{self.situation} to {situation}"
        self.situation = situation
        if error is not None:
            assert situation in FAILED
            error.abortable = situation is Situation.ABORTABLE_ERROR
            self.error = error
        elif situation is not Situation.ABORTING:
            self.error = None


def _answers(asked: Iterable[TopicPartition], codes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the code of each partition that was asked about; nobody knows of one that the answer leaves out."""
    return {partition: codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in asked}


def _fenced(error: KafkaError) -> KafkaError:
    """Return the error under the name that says what has happened: old coordinators have another for it (KIP-588)."""
    if error.fenced:
        return error
    fenced = error_for(ErrorCode.PRODUCER_FENCED, error.reason)
    fenced.may_be_done = error.may_be_done
    return fenced
