"""Measures brokers and a well-behaved client while something is done to them.

A stage is three brokers that serve unfinished APIs, too, and else have default settings, but for a secret if one is
given, the client beside them (`beside`), and the watch of the machine (`machine`). `hostile.run` plays scenes on it,
`hostile.largest` asks the largest requests.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from machines import cluster_handle

from .costs import BrokerCosts, Cost
from .judge import judge
from .machine import Machine
from .processes import Told

__all__ = ["FAILED", "Measured", "Stage", "stage"]

CLIENT_PER_S = 50
END_LIMIT_S = 150.0
FAILED = 1

Result = TypeVar("Result")


class Measured(NamedTuple):
    """The costs of an action, and the complaints about those beyond the limits.

    `client` is the report of the client beside, `idle_ms` the latest waking of an idle process.
    """

    took_s: float
    client: dict[str, Any]
    costs: Sequence[Cost]
    idle_ms: float
    complaints: list[str]

    @property
    def has_ended(self) -> bool:
        """True if a broker has ended."""
        return any(not cost.alive for cost in self.costs)


class Stage:
    """One cluster and its company. `is_timed`: the verdict is about callbacks and pauses as well."""

    def __init__(
        self, cluster: cluster_handle.ClusterHandle, beside: Told, machine: Machine, *, is_timed: bool
    ) -> None:
        status = cluster.status()
        self.brokers = [("127.0.0.1", int(one["port"])) for one in status["brokers"]]
        self.peers = [("127.0.0.1", int(one["peer_port"])) for one in status["brokers"]]
        self._costs = BrokerCosts(cluster.data)
        self._beside = beside
        self._machine = machine
        self._is_timed = is_timed

    def measure(self, act: Callable[[], Result], *, settle_s: float = 0.0) -> tuple[Result, Measured]:
        """Return the result of `act` and its costs; the brokers are watched for `settle_s` behind it."""
        was_forgotten = self._costs.forget() if self._is_timed else True
        self._costs.begin()
        self._beside.ask()
        self._machine.take()
        began = time.monotonic()
        result = act()
        took_s = time.monotonic() - began
        time.sleep(settle_s)
        kept = self._machine.take()
        client = self._beside.ask()
        costs = self._costs.take(kept.stills)
        complaints = judge(client, costs, timed=self._is_timed)
        if not was_forgotten:
            complaints.append("the brokers still remembered what was before it when it began")
        return result, Measured(took_s=took_s, client=client, costs=costs, idle_ms=kept.idle_ms, complaints=complaints)

    def end(self) -> list[str]:
        """Let the client finish; return its errors."""
        return [f"the client at the end: {text}" for text in self._beside.ask("end", END_LIMIT_S)["errors"]]


@contextmanager
def stage(*, keep: bool, is_timed: bool = True, secret: str | None = None) -> Iterator[Stage]:
    """Start all of it, and leave neither process nor file behind; `keep` leaves the files."""
    settings = {"unstable.api.versions.enable": "true"} | ({} if secret is None else {"cluster.secret": secret})
    with (
        cluster_handle.cluster(settings=settings, keep=keep) as cluster,
        Told("beside", cluster.bootstrap, CLIENT_PER_S) as beside,
        Machine() as machine,
    ):
        yield Stage(cluster, beside, machine, is_timed=is_timed)
