"""Says what can be done about an error code, and whether it leaves in doubt what has happened. Pure.

The texts are for people, and name settings as Kafka does. A code without a hint has none worth giving: a client deals
with it by itself, or it says what to do already.
"""

from collections.abc import Mapping
from typing import Final

from .error_codes import ErrorCode

__all__ = ["HINTS", "IN_DOUBT"]

_ACCESS: Final = "ask the operator of the cluster for the right to do this"
_REPLICAS: Final = "bring brokers back, or lower min.insync.replicas"
_AGAIN: Final = "try again in a moment"
_MISSING_TOPIC: Final = "check the name (barnabas topic list), or create the topic"

HINTS: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "look into the logs of the brokers",
    ErrorCode.OFFSET_OUT_OF_RANGE: "seek to an offset between begin_offsets and end_offsets",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _MISSING_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_ID: _MISSING_TOPIC,
    ErrorCode.RESOURCE_NOT_FOUND: "check the name (barnabas snapshot list)",
    ErrorCode.LEADER_NOT_AVAILABLE: _AGAIN,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _AGAIN,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _AGAIN,
    ErrorCode.NOT_COORDINATOR: _AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: "look whether it has happened, then try again",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records, or raise max.message.bytes of the topic and request_bytes_max",
    ErrorCode.RECORD_LIST_TOO_LARGE: "use a smaller batch_bytes, or raise segment.bytes of the topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: _REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _REPLICAS,
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', at most 249 of them",
    ErrorCode.TOPIC_ALREADY_EXISTS: "use another name, or the topic that is there",
    ErrorCode.INVALID_PARTITIONS: "ask for at least one partition, and for more than there are",
    ErrorCode.INVALID_REPLICATION_FACTOR: "ask for at most as many replicas as there are brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "name brokers of the cluster, each once (Admin.describe_cluster)",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "there is nothing to cancel (Admin.list_partition_reassignments)",
    ErrorCode.POLICY_VIOLATION: "keep to the limit that the message names, or ask the operator to change it",
    ErrorCode.INVALID_CONFIG: "see the settings that a topic has: barnabas topic describe",
    ErrorCode.ILLEGAL_GENERATION: "let the consumer join its group again",
    ErrorCode.UNKNOWN_MEMBER_ID: "let the consumer join its group again",
    ErrorCode.FENCED_INSTANCE_ID: "give each member of the group a group_instance_id of its own",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "give all members of the group an assignor that they have in common",
    ErrorCode.INVALID_SESSION_TIMEOUT: "use a session_timeout_s between the limits of the brokers, 6 s to 30 min",
    ErrorCode.INVALID_GROUP_ID: "use a group_id that is not empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "check the name: barnabas group list",
    ErrorCode.NON_EMPTY_GROUP: "stop the members of the group first",
    ErrorCode.REBALANCE_IN_PROGRESS: _AGAIN,
    ErrorCode.INVALID_TIMESTAMP: "use milliseconds since 1970, near the time of the broker",
    ErrorCode.INVALID_RECORD: "give the record a key if the topic is compacted",
    ErrorCode.PRODUCER_FENCED: "another producer with the same transactional id has taken over",
    ErrorCode.TRANSACTION_ABORTABLE: "abort the transaction, then try it again",
    ErrorCode.CONCURRENT_TRANSACTIONS: _AGAIN,
    ErrorCode.INVALID_TXN_STATE: "make a new producer, which aborts what is open",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "make a new producer; the transactional id was idle for too long",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "use a timeout of at most transaction.max.timeout.ms of the brokers",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "check the transactional id; it may have been idle for too long",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "look at what else of the request was refused",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _AGAIN,
    ErrorCode.INVALID_REGULAR_EXPRESSION: "check the pattern",
    ErrorCode.INVALID_PRODUCER_EPOCH: "make a new producer",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old or too new for this call",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "use another compression",
    ErrorCode.KAFKA_STORAGE_ERROR: "look at the disks of the brokers",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "send or ask less, or wait",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.SASL_AUTHENTICATION_FAILED: "check the name and the password",
}

IN_DOUBT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Answers after which nobody knows whether the request was, or will be, carried out."""
