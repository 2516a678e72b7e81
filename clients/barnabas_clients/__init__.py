"""asyncio clients for Barnabas and Apache Kafka: `Producer`, `Consumer` and `Admin`.

Beside them are the values that they take and return, and the errors that they raise. A name is loaded when it is first
used. So `import barnabas_clients.protocol`, which a broker and a Spark executor do, loads no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas_clients.admin.client import Admin
    from barnabas_clients.admin.offset_resets import ResetTo
    from barnabas_clients.admin.values import ConfigResource, NewTopic, OffsetSpec
    from barnabas_clients.consumer.consumer import Consumer
    from barnabas_clients.consumer.errors import CorruptRecordsError, LogTruncatedError, NoOffsetError, NotAssignedError
    from barnabas_clients.consumer.metrics import ConsumerMetrics
    from barnabas_clients.consumer.record import ConsumerRecord, RecordBatch
    from barnabas_clients.producer.delivery import Delivery, Receipt, RecordsLostError
    from barnabas_clients.producer.metrics import ProducerMetrics
    from barnabas_clients.producer.producer import Producer
    from barnabas_clients.producer.transaction import Transaction
    from barnabas_clients.protocol.errors import (
        ErrorCode,
        FencedInstanceIdError,
        GroupAuthorizationFailedError,
        GroupIdNotFoundError,
        InvalidConfigError,
        InvalidPartitionsError,
        InvalidRecordError,
        InvalidReplicaAssignmentError,
        InvalidReplicationFactorError,
        InvalidTimestampError,
        InvalidTopicError,
        KafkaError,
        MessageTooLargeError,
        NonEmptyGroupError,
        NoReassignmentInProgressError,
        NotEnoughReplicasError,
        OffsetOutOfRangeError,
        PolicyViolationError,
        ProducerFencedError,
        ResourceNotFoundError,
        TopicAlreadyExistsError,
        TopicAuthorizationFailedError,
        UnknownTopicOrPartitionError,
    )

    from .errors import (
        BarnabasError,
        ClientClosedError,
        ClientError,
        CommitFailedError,
        ConnectionLostError,
        DeadlineExceededError,
        SnapshotExistsError,
        TransactionAbortedError,
        UnknownLeaderError,
        UnsupportedVersionError,
    )
    from .topic_partition import OffsetAndMetadata, TopicPartition

__all__ = [
    "Admin",
    "BarnabasError",
    "ClientClosedError",
    "ClientError",
    "CommitFailedError",
    "ConfigResource",
    "ConnectionLostError",
    "Consumer",
    "ConsumerMetrics",
    "ConsumerRecord",
    "CorruptRecordsError",
    "DeadlineExceededError",
    "Delivery",
    "ErrorCode",
    "FencedInstanceIdError",
    "GroupAuthorizationFailedError",
    "GroupIdNotFoundError",
    "InvalidConfigError",
    "InvalidPartitionsError",
    "InvalidRecordError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "KafkaError",
    "LogTruncatedError",
    "MessageTooLargeError",
    "NewTopic",
    "NoOffsetError",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "NotAssignedError",
    "NotEnoughReplicasError",
    "OffsetAndMetadata",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "PolicyViolationError",
    "Producer",
    "ProducerFencedError",
    "ProducerMetrics",
    "Receipt",
    "RecordBatch",
    "RecordsLostError",
    "ResetTo",
    "ResourceNotFoundError",
    "SnapshotExistsError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicPartition",
    "Transaction",
    "TransactionAbortedError",
    "UnknownLeaderError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
]

__version__: str
"""Of this distribution, and of `barnabas`, which is released together with it."""

_HOMES = {
    "admin.client": ("Admin",),
    "admin.values": (
        "ConfigResource",
        "NewTopic",
        "OffsetSpec",
    ),
    "admin.offset_resets": ("ResetTo",),
    "consumer.consumer": ("Consumer",),
    "consumer.errors": (
        "CorruptRecordsError",
        "LogTruncatedError",
        "NoOffsetError",
        "NotAssignedError",
    ),
    "consumer.metrics": ("ConsumerMetrics",),
    "consumer.record": (
        "ConsumerRecord",
        "RecordBatch",
    ),
    "errors": (
        "BarnabasError",
        "ClientClosedError",
        "ClientError",
        "CommitFailedError",
        "ConnectionLostError",
        "DeadlineExceededError",
        "SnapshotExistsError",
        "TransactionAbortedError",
        "UnknownLeaderError",
        "UnsupportedVersionError",
    ),
    "producer.delivery": (
        "Delivery",
        "Receipt",
        "RecordsLostError",
    ),
    "producer.metrics": ("ProducerMetrics",),
    "producer.producer": ("Producer",),
    "producer.transaction": ("Transaction",),
    "protocol.errors": (
        "ErrorCode",
        "FencedInstanceIdError",
        "GroupAuthorizationFailedError",
        "GroupIdNotFoundError",
        "InvalidConfigError",
        "InvalidPartitionsError",
        "InvalidRecordError",
        "InvalidReplicaAssignmentError",
        "InvalidReplicationFactorError",
        "InvalidTimestampError",
        "InvalidTopicError",
        "KafkaError",
        "MessageTooLargeError",
        "NoReassignmentInProgressError",
        "NonEmptyGroupError",
        "NotEnoughReplicasError",
        "OffsetOutOfRangeError",
        "PolicyViolationError",
        "ProducerFencedError",
        "ResourceNotFoundError",
        "TopicAlreadyExistsError",
        "TopicAuthorizationFailedError",
        "UnknownTopicOrPartitionError",
    ),
    "topic_partition": (
        "OffsetAndMetadata",
        "TopicPartition",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("barnabas_raftlog.version").__version__
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__, "__version__"]
