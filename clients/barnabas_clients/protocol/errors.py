"""The exceptions that carry Kafka's error codes. Pure.

An error code in a response is an expected answer, not a fault. It becomes a `KafkaError` when a caller has to decide,
and its code says whether a retry can help. `error_for` picks the class. A code without one of its own is a plain
`KafkaError` with that code, and a code that is newer than our list is UNKNOWN_SERVER_ERROR, as in Kafka's own clients.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas_raftlog.errors import BarnabasError

from .error_codes import RETRIABLE, ErrorCode
from .hints import HINTS, IN_DOUBT

__all__ = [
    "ClusterAuthorizationFailedError",
    "ConcurrentTransactionsError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptMessageError",
    "DuplicateSequenceNumberError",
    "ErrorCode",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FetchSessionIdNotFoundError",
    "GroupAuthorizationFailedError",
    "GroupIdNotFoundError",
    "IllegalGenerationError",
    "InconsistentGroupProtocolError",
    "InconsistentTopicIdError",
    "InvalidConfigError",
    "InvalidFetchSessionEpochError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRegularExpressionError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "KafkaError",
    "KafkaStorageError",
    "LeaderNotAvailableError",
    "MemberIdRequiredError",
    "MessageTooLargeError",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "NotControllerError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OffsetMetadataTooLargeError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OperationNotAttemptedError",
    "OutOfOrderSequenceNumberError",
    "PolicyViolationError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RequestTimedOutError",
    "ResourceNotFoundError",
    "SaslAuthenticationFailedError",
    "ThrottlingQuotaExceededError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "TransactionalIdAuthorizationFailedError",
    "TransactionalIdNotFoundError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownProducerIdError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnstableOffsetCommitError",
    "UnsupportedCompressionTypeError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "error_for",
]


class KafkaError(BarnabasError):
    """An answer with an error code.

    `may_be_done` is None where the code leaves it open whether the request was carried out. The producer, which knows
    about earlier attempts, sets it to True or False.

    `abortable` is true if a transaction has failed and its producer has not: it aborts, and begins another. Of the
    codes only TRANSACTION_ABORTABLE says so by itself. Of others it depends on the request, and the producer sets it.

    `record_errors` are the records for which a batch was refused, if the broker names them: the number in the batch,
    from 0, and why. `because_of_another` is true in the error of a record that is not among them.
    """

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    record_errors: Mapping[int, str] = MappingProxyType({})
    because_of_another: bool = False

    def __init__(self, message: str = "", code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        name = self.code.name
        super().__init__(f"{name}: {message}" if message else name)
        self.reason = message or name.removesuffix("_EXCEPTION").replace("_", " ").lower()
        self.hint = HINTS.get(self.code, "")
        self.may_be_done = None if self.code in IN_DOUBT else False
        self.abortable = self.code is ErrorCode.TRANSACTION_ABORTABLE

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.code in RETRIABLE

    @property
    def fenced(self) -> bool:
        """True if another producer with the same transactional id has taken over; this one can do nothing more."""
        return self.code is ErrorCode.PRODUCER_FENCED

    def of_record(self, number: int) -> "KafkaError":
        """Return the error of one record of the batch: what it was refused for itself, or that another one was."""
        if not self.record_errors:
            return self
        own = self.record_errors.get(number)
        first = min(self.record_errors)
        error = error_for(self.code, own or f"another record of its batch was refused: {self.record_errors[first]}")
        error.record_errors = self.record_errors
        error.may_be_done = self.may_be_done
        error.abortable = self.abortable
        if own is None:
            error.because_of_another = True
            error.hint = _SEND_AGAIN
        return error


_SEND_AGAIN: Final = "send it again, without the record that was refused"


def error_for(code: int, message: str = "") -> KafkaError:
    """Return the exception for an error code other than NONE, to raise or to keep.

    `message` names the subject of the error (a topic, a partition, the broker's own message). The code's name is put in
    front of it.
    """
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(f"error code {code}" + (f", {message}" if message else ""))
    assert known is not ErrorCode.NONE, "success is not an error"
    own = _CLASSES.get(known)
    return KafkaError(message, known) if own is None else own(message)


class OffsetOutOfRangeError(KafkaError):
    """The offset is before the start of the log or after its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessageError(KafkaError):
    """The batch arrived damaged: its checksum or size is wrong."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartitionError(KafkaError):
    """The broker knows no such topic or partition; it may be new, or gone."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailableError(KafkaError):
    """An election is under way."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(KafkaError):
    """The partition is led elsewhere; look up the leader and ask there."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOutError(KafkaError):
    """The broker could not complete the request in the time it was given; it may still take effect."""

    code = ErrorCode.REQUEST_TIMED_OUT


class MessageTooLargeError(KafkaError):
    """The batch is larger than the topic admits."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class OffsetMetadataTooLargeError(KafkaError):
    """The string stored with a committed offset is too long."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CoordinatorLoadInProgressError(KafkaError):
    """The coordinator is still reading its state."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(KafkaError):
    """No coordinator can be named yet."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(KafkaError):
    """The group or transaction is coordinated elsewhere; look up the coordinator and ask there."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicError(KafkaError):
    """The topic's name is not a legal one, or the topic may not be written by clients."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class NotEnoughReplicasError(KafkaError):
    """Fewer replicas are in sync than the topic demands; nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(KafkaError):
    """Appended, but too few replicas are in sync now; retrying may duplicate without idempotence."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcksError(KafkaError):
    """`acks` is not -1, 0 or 1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class IllegalGenerationError(KafkaError):
    """The group has moved on to another generation."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(KafkaError):
    """The member has no assignor in common with the group."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupIdError(KafkaError):
    """The group's id is empty or not legal."""

    code = ErrorCode.INVALID_GROUP_ID


class UnknownMemberIdError(KafkaError):
    """The group does not know this member any more; join again."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeoutError(KafkaError):
    """The session timeout is outside the bounds that the broker sets."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgressError(KafkaError):
    """The group is rebalancing; join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class TopicAuthorizationFailedError(KafkaError):
    """Access to the topic is denied."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailedError(KafkaError):
    """Access to the group is denied."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailedError(KafkaError):
    """The operation on the cluster is denied."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestampError(KafkaError):
    """A record's timestamp is outside of what the topic admits."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedSaslMechanismError(KafkaError):
    """The broker does not offer this SASL mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class UnsupportedVersionError(KafkaError):
    """The broker does not speak this version of the API."""

    code = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExistsError(KafkaError):
    """A topic of that name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(KafkaError):
    """The number of partitions is not possible."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(KafkaError):
    """The replication factor is below 1 or above the number of brokers."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(KafkaError):
    """The assignment names unknown brokers, or one twice, or leaves a partition out."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class NoReassignmentInProgressError(KafkaError):
    """The partition is not on its way anywhere, so there is nothing to cancel."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class InvalidConfigError(KafkaError):
    """A configuration has an unknown name or an impossible value."""

    code = ErrorCode.INVALID_CONFIG


class NotControllerError(KafkaError):
    """The controller is another node."""

    code = ErrorCode.NOT_CONTROLLER


class InvalidRequestError(KafkaError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class PolicyViolationError(KafkaError):
    """The cluster's policy forbids it."""

    code = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumberError(KafkaError):
    """A batch before this one is missing, or its producer's state was lost."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumberError(KafkaError):
    """The batch was appended before, too long ago to say where."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpochError(KafkaError):
    """A newer instance of this producer has taken over; begin a new transaction."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(KafkaError):
    """The transaction is not in a state that allows this."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMappingError(KafkaError):
    """The producer id does not belong to the transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeoutError(KafkaError):
    """The transaction's timeout is longer than the broker allows, or is not positive."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactionsError(KafkaError):
    """The previous transaction is still being completed."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFencedError(KafkaError):
    """The coordinator that sent the marker is not the coordinator any more."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdAuthorizationFailedError(KafkaError):
    """Use of the transactional id is denied."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class OperationNotAttemptedError(KafkaError):
    """Nothing was tried, because something else in the same request was refused."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED


class KafkaStorageError(KafkaError):
    """The broker's disk fails it; another replica may take over."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class SaslAuthenticationFailedError(KafkaError):
    """The credentials were refused."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnknownProducerIdError(KafkaError):
    """The broker has forgotten this producer."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class GroupIdNotFoundError(KafkaError):
    """There is no such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroupError(KafkaError):
    """The group has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class FetchSessionIdNotFoundError(KafkaError):
    """The broker has dropped the fetch session; begin a new one."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpochError(KafkaError):
    """The fetch session is at another epoch; begin a new one."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class FencedLeaderEpochError(KafkaError):
    """The client's leader epoch is older than the leader's; refresh the metadata."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(KafkaError):
    """The client's leader epoch is newer than this broker's; it will catch up."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionTypeError(KafkaError):
    """The batch's compression is not one that this version admits."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OffsetNotAvailableError(KafkaError):
    """A new leader has not confirmed its leadership yet."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequiredError(KafkaError):
    """Join again with the member id that came with this answer."""

    code = ErrorCode.MEMBER_ID_REQUIRED


class FencedInstanceIdError(KafkaError):
    """Another member has taken over this static membership."""

    code = ErrorCode.FENCED_INSTANCE_ID


class InvalidRecordError(KafkaError):
    """A record was refused, for example one without a key on a compacted topic."""

    code = ErrorCode.INVALID_RECORD


class UnstableOffsetCommitError(KafkaError):
    """Committed offsets depend on a transaction that is still open."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class ThrottlingQuotaExceededError(KafkaError):
    """A quota is used up; wait for as long as the answer says."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class ProducerFencedError(KafkaError):
    """A newer producer with the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED


class ResourceNotFoundError(KafkaError):
    """What was named does not exist, such as a snapshot."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class UnknownTopicIdError(KafkaError):
    """The broker knows no topic of that id; it may be new, or the topic was deleted."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicIdError(KafkaError):
    """The topic of that name has another id: it was deleted and made again."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class TransactionalIdNotFoundError(KafkaError):
    """The coordinator knows no such transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TransactionAbortableError(KafkaError):
    """The transaction must be aborted, and can be."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class InvalidRegularExpressionError(KafkaError):
    """The pattern is not a regular expression."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


_CLASSES: Final = {kind.code: kind for kind in KafkaError.__subclasses__()}
