"""Finds the shards that have the groups of a request (`shard_routing`), and waits for what they do."""

import asyncio
from collections.abc import Callable

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.runtime.contracts import Done
from barnabas_broker.coordinators.runtime.shard import CONFIRM_S
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode

from . import shard_routing
from .shard_routing import Outcome, Refused, Reply, Steps, begun

__all__ = [
    "APPEND_S",
    "CONFIRM_S",
    "REASON_MAX",
    "REQUEST_MS",
    "Outcome",
    "Refused",
    "Reply",
    "ShardFinder",
    "Steps",
    "begun",
    "certain_shard",
    "has_outcome",
    "route",
]

APPEND_S = 5.0  # Kafka's offsets.commit.timeout.ms
REQUEST_MS = 10_000  # for all groups of a request together; the rest is refused
REASON_MAX = 255  # characters of a reason that are kept, as Kafka's own clients cut it

Act = Callable[[GroupShard], Reply]


def route(broker: BrokerContext, exchange: Exchange, group_id: str, act: Act, refused: Refused) -> Outcome:
    """Return what a handler returns: the outcome of `act`, or `refused` with the reason."""
    return shard_routing.route(broker.coordinator, exchange, group_id, act, refused)


async def certain_shard(broker: BrokerContext, group_id: str) -> GroupShard | ErrorCode:
    """Return the shard that has a group, loaded and sure of its leadership, or why there is none here now."""
    return await broker.coordinator.certain_shard(group_id)


class ShardFinder:
    """Finds the shards of the groups of one request. All its waits together end within `REQUEST_MS` and one wait."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._until_ms = broker.now_ms() + REQUEST_MS

    async def find(self, group_id: str) -> GroupShard | ErrorCode:
        """Return as `certain_shard`; COORDINATOR_NOT_AVAILABLE when the time is up."""
        if self._broker.now_ms() >= self._until_ms:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return await certain_shard(self._broker, group_id)


async def has_outcome(begin: Callable[[Done], object]) -> ErrorCode:
    """Return the code that `begin`'s argument is called with; COORDINATOR_NOT_AVAILABLE if it is not within `APPEND_S`.

    Cancelled or late, it may still come about.
    """
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(error: ErrorCode) -> None:
        if not future.done():
            future.set_result(error)

    begin(done)
    try:
        async with asyncio.timeout(APPEND_S):
            return await future
    except TimeoutError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
