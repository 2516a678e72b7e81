"""asyncio clients for Barnabas and Apache Kafka: `Producer`, `Consumer` and `Admin`.

The names below are loaded when they are first used. So `import barnabas_clients.protocol`, which a broker and a Spark
executor do, loads no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin_client import Admin
    from .consumer import Consumer
    from .producer import Producer
    from .topic_partition import OffsetAndMetadata, TopicPartition

__all__ = ["Admin", "Consumer", "OffsetAndMetadata", "Producer", "TopicPartition"]

_HOMES = {
    "Admin": "admin_client",
    "Consumer": "consumer",
    "OffsetAndMetadata": "topic_partition",
    "Producer": "producer",
    "TopicPartition": "topic_partition",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
