"""Offers all that a program needs of Barnabas, and loads each name when it is first used.

`Producer`, `Consumer` and `Admin` are the clients; `Cluster` is real brokers in this process, for tests and notebooks:

    import barnabas

    async with barnabas.Cluster(brokers=1) as cluster:
        async with barnabas.Producer(cluster.bootstrap) as producer:
            await producer.send_and_wait("orders", b"one espresso", key=b"table 4")

Every name of `barnabas_clients` is here, with `Cluster` and `RunningCluster` of `barnabas_broker.testing`. A service
that only talks to a cluster imports `barnabas_clients`, which can be installed without a broker (`barnabas-clients`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas_broker.testing import Cluster, RunningCluster
    from barnabas_clients import (
        Admin,
        ClientClosedError,
        ClientError,
        CommitFailedError,
        ConfigResource,
        ConnectionLostError,
        Consumer,
        ConsumerRecord,
        CorruptRecordsError,
        DeadlineExceededError,
        Delivery,
        KafkaError,
        LogTruncatedError,
        NewTopic,
        NoOffsetError,
        OffsetAndMetadata,
        OffsetSpec,
        Producer,
        Receipt,
        RecordBatch,
        RecordsLostError,
        ResetTo,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "ClientClosedError",
    "ClientError",
    "Cluster",
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
    "RunningCluster",
    "TopicPartition",
]

__version__: str
"""Of everything that this package offers; a release has one."""

_HOMES = {"Cluster": "barnabas_broker.testing", "RunningCluster": "barnabas_broker.testing"}


def __getattr__(name: str) -> Any:
    if name not in __all__ and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "barnabas_clients")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__, "__version__"]
