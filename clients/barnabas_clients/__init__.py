"""asyncio clients for Barnabas and Apache Kafka: `Producer`, `Consumer`, `Admin`, and what they take, give and raise.

The names below are loaded when they are first used. So `import barnabas_clients.protocol`, which a broker and a Spark
executor do, loads no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin import ConfigResource, NewTopic, OffsetSpec
    from .admin_client import Admin
    from .consumer import Consumer
    from .consumer_errors import CorruptRecordsError, LogTruncatedError, NoOffsetError
    from .consumer_record import ConsumerRecord, RecordBatch
    from .delivery import Delivery, Receipt, RecordsLostError
    from .errors import ClientClosedError, ClientError, CommitFailedError, ConnectionLostError, DeadlineExceededError
    from .offset_resets import ResetTo
    from .producer import Producer
    from .protocol.errors import KafkaError
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

_HOMES = {
    "admin": ("ConfigResource", "NewTopic", "OffsetSpec"),
    "admin_client": ("Admin",),
    "consumer": ("Consumer",),
    "consumer_errors": ("CorruptRecordsError", "LogTruncatedError", "NoOffsetError"),
    "consumer_record": ("ConsumerRecord", "RecordBatch"),
    "delivery": ("Delivery", "Receipt", "RecordsLostError"),
    "errors": ("ClientClosedError", "ClientError", "CommitFailedError", "ConnectionLostError", "DeadlineExceededError"),
    "offset_resets": ("ResetTo",),
    "producer": ("Producer",),
    "protocol.errors": ("KafkaError",),
    "topic_partition": ("OffsetAndMetadata", "TopicPartition"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
