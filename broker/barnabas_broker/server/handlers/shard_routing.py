"""Finds the shard of a coordinator that a request is for, and waits for it.

A shard whose leadership is beyond doubt is asked at once, within the order of the requests of its connection. After a
stall (a suspended process, a long pause of the loop) another broker may lead by now: then a majority is asked first,
which takes a round trip, and the request waits for that. A shard that is being read is waited for, a little. A request
that waits holds back those behind it: a position that was stored later must not be overwritten by one that waited. For
the same reason nothing is done any more for a client whose connection has ended: it may have stored something newer
through another one.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from barnabas_broker.coordinators.runtime.contracts import CoordinatorShard
from barnabas_broker.coordinators.runtime.homes import Homes
from barnabas_broker.coordinators.runtime.shard import ShardRuntime
from barnabas_broker.server.connections import Exchange
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message

__all__ = ["Outcome", "Refused", "Reply", "Shard", "Steps", "begun", "route"]


class Shard(CoordinatorShard[Any], Protocol):
    """A shard of any coordinator."""

    @property
    def runtime(self) -> ShardRuntime[Any, Any]: ...


S = TypeVar("S", bound=Shard)

Steps = Generator[None, None, Message | None]
Reply = Message | None | Steps
Refused = Callable[[ErrorCode], Reply]
Outcome = Reply | Coroutine[Any, Any, Message | None]


def route(homes: Homes[Any, S], exchange: Exchange, name: str, act: Callable[[S], Reply], refused: Refused) -> Outcome:
    """Return what a handler returns: the outcome of `act` of the name's shard, or `refused` with the reason."""
    shard = homes.shard_of(name)
    if isinstance(shard, ErrorCode):
        if shard is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return begun(refused(shard))
    elif shard.runtime.is_certain:
        return begun(act(shard))
    exchange.hold()
    return _later(homes, exchange, name, act, refused)


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
    homes: Homes[Any, S], exchange: Exchange, name: str, act: Callable[[S], Reply], refused: Refused
) -> Message | None:
    shard = await homes.certain_shard(name)
    if exchange.connection.is_closed:
        return None
    reply = refused(shard) if isinstance(shard, ErrorCode) else act(shard)
    response = await taken(reply) if isinstance(reply, Generator) else reply
    exchange.release()
    return response
