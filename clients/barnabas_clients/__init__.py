"""asyncio clients for Barnabas and Apache Kafka: `Producer`, `Consumer` and `Admin`.

Beside them are the values that they take and return, and the errors that they raise. A name is loaded when it is first
used. So `import barnabas_clients.protocol`, which a broker and a Spark executor do, loads no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas_clients.admin.client import Admin
    from barnabas_clients.admin.configs import ConfigResource
    from barnabas_clients.admin.offset_resets import ResetTo
    from barnabas_clients.admin.offsets import OffsetSpec
    from barnabas_clients.admin.topics import NewTopic
    from barnabas_clients.consumer.consumer import Consumer
    from barnabas_clients.consumer.errors import CorruptRecordsError, LogTruncatedError, NoOffsetError
    from barnabas_clients.consumer.record import ConsumerRecord, RecordBatch
    from barnabas_clients.producer.delivery import Delivery, Receipt, RecordsLostError
    from barnabas_clients.producer.producer import Producer
    from barnabas_clients.protocol.errors import KafkaError

    from .errors import ClientClosedError, ClientError, CommitFailedError, ConnectionLostError, DeadlineExceededError
    from .topic_partition import OffsetAndMetadata, TopicPartition

__all__ = [
    "Admin",
    "ClientClosedError",
    "ClientError",
    "CommitFailedError",
    "ConfigResource",
    "ConnectionLostError",
    "Consumer",
    "ConsumerRecord",
    "CorruptRecordsError",
    "DeadlineExceededError",
    "Delivery",
    "KafkaError",
    "LogTruncatedError",
    "NewTopic",
    "NoOffsetError",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Producer",
    "Receipt",
    "RecordBatch",
    "RecordsLostError",
    "ResetTo",
    "TopicPartition",
]

__version__: str
"""Of this distribution, and of `barnabas`, which is released together with it."""

_HOMES = {
    "admin.client": ("Admin",),
    "admin.configs": ("ConfigResource",),
    "admin.offset_resets": ("ResetTo",),
    "admin.offsets": ("OffsetSpec",),
    "admin.topics": ("NewTopic",),
    "consumer.consumer": ("Consumer",),
    "consumer.errors": ("CorruptRecordsError", "LogTruncatedError", "NoOffsetError"),
    "consumer.record": ("ConsumerRecord", "RecordBatch"),
    "errors": ("ClientClosedError", "ClientError", "CommitFailedError", "ConnectionLostError", "DeadlineExceededError"),
    "producer.delivery": ("Delivery", "Receipt", "RecordsLostError"),
    "producer.producer": ("Producer",),
    "protocol.errors": ("KafkaError",),
    "topic_partition": ("OffsetAndMetadata", "TopicPartition"),
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
