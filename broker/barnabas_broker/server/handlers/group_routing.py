"""Finds the shard that has the group of a request, and waits for it.

A shard whose leadership is beyond doubt is asked at once, within the order of the requests of its connection. After a
stall (a suspended process, a long pause of the loop) another broker may lead by now: then a majority is asked first,
which takes a round trip, and the request waits for that. A shard that is being read is waited for, a little. A request
that waits holds back those behind it: a position that was stored later must not be overwritten by one that waited. For
the same reason nothing is done any more for a client whose connection has ended: it may have stored something newer
through another one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.runtime.contracts import Done
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message

__all__ = [
    "APPEND_S",
    "CONFIRM_S",
    "REASON_MAX",
    "REQUEST_MS",
    "Outcome",
    "Reply",
    "ShardFinder",
    "Steps",
    "begun",
    "certain_shard",
    "has_outcome",
    "route",
]

CONFIRM_S = 2.0
APPEND_S = 5.0  # Kafka's offsets.commit.timeout.ms
REQUEST_MS = 10_000  # for all groups of a request together; the rest is refused
REASON_MAX = 255  # characters of a reason that are kept, as Kafka's own clients cut it

Steps = Generator[None, None, Message | None]
Reply = Message | None | Steps
Act = Callable[[GroupShard], Reply]
Refused = Callable[[ErrorCode], Reply]
Outcome = Reply | Coroutine[Any, Any, Message | None]


def route(broker: BrokerContext, exchange: Exchange, group_id: str, act: Act, refused: Refused) -> Outcome:
    """Return what a handler returns: the outcome of `act`, or `refused` with the reason."""
    shard = broker.coordinator.shard_of(group_id)
    if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or (
        isinstance(shard, GroupShard) and not shard.runtime.is_certain
    ):
        exchange.hold()
        return _later(broker, exchange, group_id, act, refused)
    return begun(refused(shard) if isinstance(shard, ErrorCode) else act(shard))


def begun(reply: Reply) -> Reply:
    """Take the first of several steps: most have no other, and need not wait for those that have."""
    if isinstance(reply, Generator):
        try:
            next(reply)
        except StopIteration as end:
            answer: Message | None = end.value
            return answer
    return reply


async def _later(
    broker: BrokerContext, exchange: Exchange, group_id: str, act: Act, refused: Refused
) -> Message | None:
    shard = await certain_shard(broker, group_id)
    if exchange.connection.is_closed:
        return None
    reply = refused(shard) if isinstance(shard, ErrorCode) else act(shard)
    response = await taken(reply) if isinstance(reply, Generator) else reply
    exchange.release()
    return response


async def certain_shard(broker: BrokerContext, group_id: str) -> GroupShard | ErrorCode:
    """Return the shard that has a group, loaded and sure of its leadership, or why there is none here now."""
    shard = await broker.coordinator.find_shard(group_id)
    if isinstance(shard, ErrorCode) or shard.runtime.is_certain:
        return shard
    error = await shard.runtime.confirm(CONFIRM_S)
    return shard if error is ErrorCode.NONE else error


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
