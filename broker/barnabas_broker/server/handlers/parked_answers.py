"""A request to a group of KIP-848 that waits for its answer: until that is committed, and for a member's target.

Requests behind it on its connection do not wait.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, respond
from barnabas_broker.timing.deadlines import Deadline
from barnabas_clients.protocol.registry import Message

from .group_routing import APPEND_S

__all__ = ["ParkedAnswer"]

T = TypeVar("T")


class ParkedAnswer(Generic[T]):
    """One request (`hosted_consumers.ParkedBeat`, `consumers.ParkedSync`).

    `response` makes the response of an answer, and says whether it is long. `late` is the answer when there has been
    none within `APPEND_S`.
    """

    __slots__ = ("_broker", "_deadline", "_exchange", "_late", "_response")

    def __init__(
        self, broker: BrokerContext, exchange: Exchange, response: Callable[[T], tuple[Message, bool]], late: T
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._response = response
        self._late = late
        self._deadline: Deadline[Callable[[], None]] | None = None

    def on_answer(self, answer: T) -> None:
        if not self._exchange.is_answered:
            self.abandon()
            response, is_long = self._response(answer)
            respond(self._exchange, response, is_long=is_long)

    def park(self) -> None:
        """Wait, but not for ever; the answer may have been given."""
        if not self._exchange.is_answered:
            self._exchange.abandon = self.abandon
            self._deadline = self._broker.timers.add(int(APPEND_S * 1000), self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        self.on_answer(self._late)

    def abandon(self) -> None:
        if self._deadline is not None:
            self._broker.timers.cancel(self._deadline)
            self._deadline = None
