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

import barnabas_clients

__version__: str
"""Of everything that this package offers; a release has one."""

if TYPE_CHECKING:
    from barnabas_broker.testing import Cluster as Cluster
    from barnabas_broker.testing import RunningCluster as RunningCluster
    from barnabas_clients import *  # noqa: F403 - checkers take all names of its `__all__`, and show them as ours
else:  # where a checker would take any name for granted
    __all__ = [*barnabas_clients.__all__, "Cluster", "RunningCluster"]  # noqa: PLE0604 - all of them are strings

    def __getattr__(name: str) -> Any:
        if name in {"Cluster", "RunningCluster"}:
            return getattr(import_module("barnabas_broker.testing"), name)
        if name in barnabas_clients.__all__ or name == "__version__":
            return getattr(barnabas_clients, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *__all__, "__version__"]
